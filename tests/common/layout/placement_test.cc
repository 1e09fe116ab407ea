#include "common/layout/placement.h"

#include "gtest/gtest.h"

namespace tp {
namespace {

struct Row {
  Placement placement;
  std::string text;
  std::string long_text;
};

std::vector<Row> Rows() {
  return {
      {Placement::Replicate(), "R", "Replicate()"},
      {Placement::Shard(0), "S(0)", "Shard(dim=0)"},
      {Placement::Shard(-1), "S(-1)", "Shard(dim=-1)"},
      {Placement::Partial(), "P(sum)", "Partial(sum)"},
      {Placement::Partial(ReduceOp::kAvg), "P(avg)", "Partial(avg)"},
      {Placement::Partial(ReduceOp::kMin), "P(min)", "Partial(min)"},
      {Placement::Partial(ReduceOp::kMax), "P(max)", "Partial(max)"},
      {Placement::Partial(ReduceOp::kProduct), "P(product)", "Partial(product)"},
      {Placement::StridedShard(0, 2), "SS(0,2)", "StridedShard(dim=0, split_factor=2)"},
      {Placement::InterleavedShard(0, {1, 1}), "IS(0,2)", "InterleavedShard(dim=0, parts=2)"},
      {Placement::InterleavedShard(-1, {8, 2, 2}), "IS(-1,[8,2,2])", "InterleavedShard(dim=-1, parts=[8, 2, 2])"},
      {Placement::GroupShard(0, 4), "GS(0,4)", "GroupShard(dim=0, groups=4)"},
  };
}

TEST(PlacementTest, TextFormsAreExactAndParseBack) {
  for (const Row& row : Rows()) {
    EXPECT_EQ(PlacementText(row.placement), row.text);
    EXPECT_EQ(PlacementLongText(row.placement), row.long_text);
    const absl::StatusOr<Placement> parsed = ParsePlacement(row.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, row.placement) << row.text;
  }
}

TEST(PlacementTest, SpacesAreAllowed) {
  EXPECT_EQ(*ParsePlacement(" IS( 0 , [8, 2 ,2] ) "), Placement::InterleavedShard(0, {8, 2, 2}));
}

TEST(PlacementTest, BadTextIsRefusedWithTheKnownForms) {
  for (const char* text : {"",        "r",         "S",        "S()",         "S(x)",           "S(0",
                           "S(0,1)",  "P()",       "P(mean)",  "SS(0)",       "SS(0,x)",        "IS(0)",
                           "IS(0,0)", "IS(0,-1)",  "IS(0,[])", "IS(0,[1,x])", "IS(0,[1,2)",     "IS(0,99999999)",
                           "GS(0)",   "GS(0,1,2)", "X(0)",     "R()",         "S(99999999999)", "S(0))"}) {
    const absl::Status status = ParsePlacement(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(status.message()).find("known forms: R, S(dim)"), std::string::npos) << text;
  }
}

TEST(PlacementTest, KindsThatCut) {
  EXPECT_FALSE(Placement::Replicate().IsSharding());
  EXPECT_FALSE(Placement::Partial().IsSharding());
  EXPECT_TRUE(Placement::Partial().IsPartial());
  for (const Row& row : Rows()) {
    EXPECT_EQ(row.placement.Cuts(0), row.placement.IsSharding() && row.placement.dim == 0) << row.text;
  }
}

TEST(PlacementsTest, TextParsesBack) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  const Placements placements = {Placement::Replicate(), Placement::InterleavedShard(0, {8, 2, 2})};
  EXPECT_EQ(PlacementsText(mesh, placements), "dp=R,tp=IS(0,[8,2,2])");
  EXPECT_EQ(*ParsePlacements(mesh, "dp=R,tp=IS(0,[8,2,2])"), placements);
  EXPECT_EQ(*ParsePlacements(mesh, " tp = IS(0,[8, 2, 2]) "), placements);
  EXPECT_EQ(PlacementsText(Mesh(), {}), "");
  EXPECT_EQ(*ParsePlacements(Mesh(), ""), Placements{});
}

TEST(PlacementsTest, AxesThatAreNotNamedGetTheDefault) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_EQ(*ParsePlacements(mesh, "tp=S(1)"), (Placements{Placement::Replicate(), Placement::Shard(1)}));
  EXPECT_EQ(*ParsePlacements(mesh, "", Placement::Shard(0)), (Placements{Placement::Shard(0), Placement::Shard(0)}));
}

TEST(PlacementsTest, BadTextIsRefused) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_NE(std::string(ParsePlacements(mesh, "pp=R").status().message()).find("axes not in mesh: {pp}"),
            std::string::npos);
  for (const char* text : {"tp", "tp=", "tp=Q", "tp=R,tp=R", "tp=R,", "S(0)"}) {
    EXPECT_EQ(ParsePlacements(mesh, text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tp
