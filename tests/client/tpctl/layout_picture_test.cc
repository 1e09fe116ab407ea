#include "client/tpctl/layout_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/layout/spec.h"

namespace tp::client {
namespace {

using ::testing::HasSubstr;

TensorInfo Tensor(const std::string& mesh, const std::string& placements, Shape shape) {
  TensorInfo tensor{.name = "w", .mesh_name = "m", .mesh = *Mesh::Parse(mesh)};
  tensor.shape = std::move(shape);
  tensor.placements = *NormalizePlacements(*ParsePlacements(tensor.mesh, placements),
                                           static_cast<int>(tensor.shape.size()), tensor.dtype, tensor.mesh);
  return tensor;
}

TEST(LayoutPictureTest, RowsOverRanksUneven) {
  EXPECT_EQ(LayoutPicture(Tensor("tp=2", "tp=S(0)", {3, 2})),
            "+-------+\n"
            "| 0   0 |\n"
            "| 0   0 |\n"
            "+-------+\n"
            "| 1   1 |\n"
            "+-------+\n");
}

TEST(LayoutPictureTest, OneDimAndCopies) {
  EXPECT_EQ(LayoutPicture(Tensor("dp=2,tp=2", "tp=S(0)", {3})),
            "+-----------+-----+\n"
            "| 0,2   0,2 | 1,3 |\n"
            "+-----------+-----+\n");
  EXPECT_EQ(LayoutPicture(Tensor("tp=4", "", {1})), "+-----+\n| 0-3 |\n+-----+\n");
}

TEST(LayoutPictureTest, BothDimsCut) {
  EXPECT_EQ(LayoutPicture(Tensor("dp=2,tp=2", "dp=S(0),tp=S(1)", {2, 2})),
            "+---+---+\n"
            "| 0 | 1 |\n"
            "+---+---+\n"
            "| 2 | 3 |\n"
            "+---+---+\n");
}

TEST(LayoutPictureTest, StridedRowsAlternate) {
  EXPECT_EQ(LayoutPicture(Tensor("tp=2", "tp=SS(0,2)", {4})),
            "+---+---+---+---+\n| 0 | 1 | 0 | 1 |\n+---+---+---+---+\n");
}

TEST(LayoutPictureTest, BigTensorsAreScaledDown) {
  const std::string picture = LayoutPicture(Tensor("tp=2", "tp=S(1)", {1 << 20, int64_t{1} << 40}));
  EXPECT_LT(picture.size(), 8000u);
  EXPECT_THAT(picture, HasSubstr("a cell stands for about 65536x45812984491 elements"));
  EXPECT_THAT(picture, HasSubstr("| 0   0   0 "));
}

TEST(LayoutPictureTest, WideLabelsBecomeLetters) {
  const std::string picture = LayoutPicture(Tensor("a=2,b=2,c=2", "b=S(0)", {32}));
  EXPECT_THAT(picture, HasSubstr("A: ranks 0,1,4,5\n"));
  EXPECT_THAT(picture, HasSubstr("B: ranks 2,3,6,7\n"));
}

TEST(LayoutPictureTest, NothingForOtherRanksAndWithoutElements) {
  EXPECT_EQ(LayoutPicture(Tensor("tp=2", "tp=S(0)", {2, 2, 2})), "");
  EXPECT_EQ(LayoutPicture(Tensor("tp=2", "", {})), "");
  EXPECT_EQ(LayoutPicture(Tensor("tp=2", "tp=S(0)", {0, 3})), "");
}

}  // namespace
}  // namespace tp::client
