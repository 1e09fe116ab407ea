#include "common/model/attribute.h"

#include <gtest/gtest.h>

namespace tp {
namespace {

TEST(AttributeTextTest, EachKindHasItsForm) {
  EXPECT_EQ(AttributeText(true), "true");
  EXPECT_EQ(AttributeText(int64_t{3}), "3");
  EXPECT_EQ(AttributeText(1e-5), "1e-05");
  EXPECT_EQ(AttributeText(0.1), "0.1");
  EXPECT_EQ(AttributeText(std::string("tanh")), "\"tanh\"");
  EXPECT_EQ(AttributeText(std::vector<int64_t>{1, 2}), "[1, 2]");
  EXPECT_EQ(AttributeText(SymShape{Dim::Symbol("batch"), Dim(8)}), "[batch, 8]");
  EXPECT_EQ(AttributeText(DType::kF32), "F32");
}

}  // namespace
}  // namespace tp
