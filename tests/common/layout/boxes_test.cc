#include "common/layout/boxes.h"

#include <gmock/gmock.h>

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Box> BoxesOf(const Shape& shape, const char* mesh_text, const char* placements, int rank) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return LocalBoxes(shape, *ParsePlacements(mesh, placements), mesh, mesh.CoordinateOf(rank));
}

TEST(LocalBoxesTest, APlainShardIsOneBox) {
  EXPECT_THAT(BoxesOf({5, 10}, "tp=4", "tp=S(0)", 2), ElementsAre(Box{{4, 0}, {1, 10}, {0, 0}}));
}

TEST(LocalBoxesTest, AnEmptyShardHasNoneAndAScalarHasOne) {
  EXPECT_THAT(BoxesOf({5, 10}, "tp=4", "tp=S(0)", 3), IsEmpty());
  EXPECT_THAT(BoxesOf({0, 10}, "tp=1", "", 0), IsEmpty());
  EXPECT_THAT(BoxesOf({}, "tp=2", "", 1), ElementsAre(Box{{}, {}, {}}));
}

TEST(LocalBoxesTest, StridedShardsGiveOneBoxForEachProductOfIntervals) {
  // Rows {0,1,4,5} x columns {1,3}.
  EXPECT_THAT(BoxesOf({8, 4}, "a=2,b=2", "a=SS(0,2),b=SS(1,2)", 1),
              ElementsAre(Box{{0, 1}, {2, 1}, {0, 0}}, Box{{0, 3}, {2, 1}, {0, 1}}, Box{{4, 1}, {2, 1}, {2, 0}},
                          Box{{4, 3}, {2, 1}, {2, 1}}));
}

}  // namespace
}  // namespace tp
