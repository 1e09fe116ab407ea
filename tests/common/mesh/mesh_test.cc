#include "common/mesh/mesh.h"

#include <numeric>

#include "gtest/gtest.h"

namespace tp {
namespace {

TEST(MeshTest, RanksAreRowMajorWithTheLastAxisFastest) {
  const Mesh mesh = *Mesh::Create({{"dp", 2}, {"tp", 3}});
  EXPECT_EQ(mesh.rank_count(), 6);
  EXPECT_EQ(mesh.CoordinateOf(4), (Coordinate{1, 1}));
  EXPECT_EQ(mesh.RankAt({1, 1}), 4);
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(mesh.CoordinateOf(rank), (Coordinate{rank / 3, rank % 3}));
}

TEST(MeshTest, GroupsFollowTheOrderOfTheGivenAxes) {
  const Mesh mesh = *Mesh::Create({{"dp", 2}, {"tp", 3}});
  EXPECT_EQ(mesh.GroupAlong(1, 4), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.GroupAlong(0, 4), (std::vector<int>{1, 4}));
  EXPECT_EQ(mesh.GroupAlong({0, 1}, 4), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(mesh.GroupAlong({1, 0}, 4), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(mesh.GroupAlong(absl::Span<const int>(), 4), (std::vector<int>{4}));
  const Mesh cube = *Mesh::Create({{"a", 2}, {"b", 3}, {"c", 2}});
  EXPECT_EQ(cube.GroupAlong({0, 2}, 3), (std::vector<int>{2, 3, 8, 9}));
}

TEST(MeshTest, AMeshWithoutAxesHasOneRank) {
  const Mesh mesh;
  EXPECT_EQ(mesh.rank_count(), 1);
  EXPECT_EQ(mesh.CoordinateOf(0), Coordinate{});
  EXPECT_EQ(mesh.RankAt({}), 0);
  EXPECT_EQ(mesh.ToString(), "");
  EXPECT_EQ(*Mesh::Parse(""), mesh);
}

TEST(MeshTest, AnAxisOfOneRankIsLegal) {
  const Mesh mesh = *Mesh::Parse("dp=1,tp=2");
  EXPECT_EQ(mesh.GroupAlong(0, 1), (std::vector<int>{1}));
  EXPECT_EQ(mesh.rank_count(), 2);
}

TEST(MeshTest, TextParsesBack) {
  for (const char* text : {"tp=4", "dp=2,tp=2", "a_1=3,_b=1,C=5"}) {
    ASSERT_TRUE(Mesh::Parse(text).ok()) << text;
    EXPECT_EQ(Mesh::Parse(text)->ToString(), text);
  }
  EXPECT_EQ(*Mesh::Parse(" dp = 2 , tp = 3 "), *Mesh::Create({{"dp", 2}, {"tp", 3}}));
}

TEST(MeshTest, BadMeshesAreRefused) {
  for (const char* text : {"tp", "tp=", "=2", "tp=0", "tp=-1", "tp=x", "2tp=2", "t p=2", "tp=2,tp=2", "tp=2,", ",tp=2",
                           "tp=2=3", "tp=2097152", "a=1024,b=1024,c=2", "tp=99999999999999"}) {
    const absl::Status status = Mesh::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
  }
  EXPECT_EQ(Mesh::Parse("a=1024,b=1024")->rank_count(), 1 << 20);
}

TEST(MeshTest, AnAxisThatIsNotThereIsNamedBesideThoseThatAre) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_EQ(*mesh.AxisIndex("tp"), 1);
  const absl::Status status = mesh.AxisIndex("pp").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "axes not in mesh: {pp}; the mesh is dp=2,tp=2");
}

TEST(MeshTest, EqualityIsByShapeAndNames) {
  EXPECT_EQ(*Mesh::Parse("dp=2,tp=2"), *Mesh::Parse("dp=2,tp=2"));
  EXPECT_FALSE(*Mesh::Parse("dp=2,tp=2") == *Mesh::Parse("tp=2,dp=2"));
  EXPECT_FALSE(*Mesh::Parse("tp=2") == *Mesh::Parse("tp=4"));
}

}  // namespace
}  // namespace tp
