#include "common/mesh/mesh.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using Names = std::vector<std::string>;
using Ranks = std::vector<int>;

Mesh Cube() { return *Mesh::Parse("a=2,b=3,c=2"); }

TEST(SliceTest, TakesTheAxesInTheRequestedOrder) {
  // Rank 9 is (1, 1, 1).
  const absl::StatusOr<MappedMesh> sliced = Cube().Slice(Names{"c", "b"}, 9);
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  EXPECT_EQ(sliced->mesh.ToString(), "c=2,b=3");
  EXPECT_EQ(sliced->ranks, (Ranks{6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(Cube().Slice(Names{"b", "c"}, 9)->ranks, (Ranks{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Cube().Slice(Names{"a"}, 9)->ranks, (Ranks{3, 9}));
  EXPECT_EQ(*Cube().Slice(Names{}, 9), (MappedMesh{Mesh(), {9}}));
}

TEST(SliceTest, WrongNamesAndRanksAreRefused) {
  EXPECT_NE(std::string(Cube().Slice(Names{"x"}, 0).status().message()).find("axes not in mesh: {x}"),
            std::string::npos);
  for (const auto& [names, rank] : std::vector<std::pair<Names, int>>{{{"a", "a"}, 0}, {{"a"}, 12}, {{"a"}, -1}}) {
    EXPECT_EQ(Cube().Slice(names, rank).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Cube().Submeshes(Names{"a", "x"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SubmeshesTest, EveryRankIsInOne) {
  const std::vector<MappedMesh> all = *Cube().Submeshes(Names{"c", "a"});
  ASSERT_EQ(all.size(), 3u);
  const Ranks expected[] = {{0, 6, 1, 7}, {2, 8, 3, 9}, {4, 10, 5, 11}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].mesh.ToString(), "c=2,a=2");
    EXPECT_EQ(all[i].ranks, expected[i]);
  }
  EXPECT_EQ(Cube().Submeshes(Names{})->size(), 12u);
  EXPECT_EQ(Cube().Submeshes(Names{"a", "b", "c"})->at(0).mesh, Cube());
}

TEST(FlattenTest, JoinsNamesAndKeepsRanksOfAdjacentAxes) {
  const MappedMesh flat = *Cube().Flatten(Names{"a", "b"});
  EXPECT_EQ(flat.mesh.ToString(), "a_b=6,c=2");
  EXPECT_EQ(flat.ranks, (Ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Cube().Flatten(Names{"b", "c"}, "x")->mesh.ToString(), "a=2,x=6");
  EXPECT_EQ(Cube().Flatten(Names{"b"})->mesh, Cube());
  EXPECT_EQ(Cube().Flatten(Names{"b"}, "x")->mesh.ToString(), "a=2,x=3,c=2");
}

TEST(FlattenTest, SaysWhichRankIsWhereWhenAxesMove) {
  const Mesh square = *Mesh::Parse("dp=2,tp=2");
  const MappedMesh swapped = *square.Flatten(Names{"tp", "dp"});
  EXPECT_EQ(swapped.mesh.ToString(), "tp_dp=4");
  EXPECT_EQ(swapped.ranks, (Ranks{0, 2, 1, 3}));
  // Not adjacent: (a, c) outside of b.
  const MappedMesh apart = *Cube().Flatten(Names{"a", "c"});
  EXPECT_EQ(apart.mesh.ToString(), "a_c=4,b=3");
  EXPECT_EQ(apart.ranks, (Ranks{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

TEST(FlattenTest, NamesInUseAndWrongNamesAreRefused) {
  EXPECT_EQ(Cube().Flatten(Names{"a", "b"}, "c").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Cube().Flatten(Names{"a", "b"}, "a").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Mesh::Parse("a=2,b=2,a_b=2")->Flatten(Names{"a", "b"}).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Cube().Flatten(Names{}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Cube().Flatten(Names{"a", "a"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Cube().Flatten(Names{"a", "x"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Cube().Flatten(Names{"a", "b"}, "1x").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(UnflattenTest, TheProductMustMatch) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=6");
  EXPECT_EQ(mesh.Unflatten("tp", {{"x", 2}, {"y", 3}})->ToString(), "dp=2,x=2,y=3");
  EXPECT_EQ(mesh.Unflatten("tp", {{"tp", 3}, {"y", 2}})->ToString(), "dp=2,tp=3,y=2");
  EXPECT_EQ(Mesh::Parse("a=1,b=2")->Unflatten("a", {})->ToString(), "b=2");
  EXPECT_EQ(mesh.Unflatten("tp", {{"dp", 2}, {"y", 3}}).status().code(), absl::StatusCode::kAlreadyExists);
  for (const std::vector<MeshAxis>& parts : std::vector<std::vector<MeshAxis>>{
           {}, {{"x", 2}, {"y", 2}}, {{"x", 6}, {"x", 1}}, {{"x", 0}, {"y", 6}}, {{"x y", 6}}}) {
    EXPECT_EQ(mesh.Unflatten("tp", parts).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(mesh.Unflatten("pp", {{"x", 6}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(UnflattenTest, UndoesFlatten) {
  const MappedMesh flat = *Cube().Flatten(Names{"b", "c"}, "x");
  EXPECT_EQ(*flat.mesh.Unflatten("x", {{"b", 3}, {"c", 2}}), Cube());
}

}  // namespace
}  // namespace tp
