#include "common/tensor/dim.h"

#include "gtest/gtest.h"

namespace tp {
namespace {

const Dim kBatch = Dim::Symbol("batch");
const Dim kTime = Dim::Symbol("time");

TEST(DimTest, PrintsInCanonicalForm) {
  EXPECT_EQ(Dim().ToString(), "0");
  EXPECT_EQ(Dim(7).ToString(), "7");
  EXPECT_EQ(Dim(-7).ToString(), "-7");
  EXPECT_EQ((kTime * 32 * kBatch + 1).ToString(), "32*batch*time + 1");
  EXPECT_EQ((kTime - kBatch).ToString(), "-batch + time");
  EXPECT_EQ((Dim(1) - kTime * kTime).ToString(), "-time*time + 1");
  EXPECT_EQ((kTime - 3).ToString(), "time - 3");
}

TEST(DimTest, EqualPolynomialsAreEqual) {
  EXPECT_EQ((kBatch + 1) * (kTime + 1), kTime * kBatch + kTime + kBatch + 1);
  EXPECT_EQ(kBatch - kBatch, Dim(0));
  EXPECT_NE(kBatch, kTime);
  EXPECT_TRUE((kBatch * 0).IsConstant());
  EXPECT_EQ((kBatch * 0 + 4).constant(), 4);
  EXPECT_FALSE(kBatch.IsConstant());
  EXPECT_EQ((kTime * kTime * kBatch).Symbols(), (std::vector<std::string>{"batch", "time"}));
}

TEST(DimTest, DividesExactlyOrNotAtAll) {
  EXPECT_EQ(*(kBatch * kTime * 32).DividedBy(kBatch * 8), kTime * 4);
  EXPECT_EQ(*(kBatch * 6 + kBatch * kTime * 2).DividedBy(kBatch * 2), kTime + 3);
  EXPECT_EQ(*Dim(0).DividedBy(kBatch), Dim(0));
  EXPECT_EQ((kBatch * 6 + 3).DividedBy(kBatch), std::nullopt);
  EXPECT_EQ((kBatch * 6).DividedBy(Dim(4)), std::nullopt);
  EXPECT_EQ(kBatch.DividedBy(kTime), std::nullopt);
  EXPECT_EQ(kBatch.DividedBy(Dim(0)), std::nullopt);
  EXPECT_EQ((kBatch * kBatch + kBatch).DividedBy(kBatch + 1), std::nullopt);
  EXPECT_EQ(Dim(INT64_MIN).DividedBy(Dim(-1)), std::nullopt);
}

TEST(DimTest, Evaluates) {
  const Dim dim = kBatch * kTime * 32 + 1;
  EXPECT_EQ(*dim.Evaluate({{"batch", 2}, {"time", 3}}), 193);
  EXPECT_EQ(*dim.Evaluate({{"batch", 0}, {"time", 3}, {"unused", 9}}), 1);
  EXPECT_EQ(*EvaluateShape({kBatch, Dim(256)}, {{"batch", 4}}), (Shape{4, 256}));
}

TEST(DimTest, RefusesToEvaluateWhatHasNoSize) {
  EXPECT_EQ(kBatch.Evaluate({}).status().message(), "no value for symbol batch of dim batch");
  EXPECT_EQ(kBatch.Evaluate({{"batch", -1}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((kBatch - 3).Evaluate({{"batch", 2}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((kBatch * kBatch).Evaluate({{"batch", int64_t{1} << 32}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((kBatch + kTime).Evaluate({{"batch", INT64_MAX}, {"time", 1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DimTest, CoefficientsThatOverflowStayRefused) {
  const Dim huge = Dim(INT64_MAX) * Dim(2);
  EXPECT_FALSE(huge.Evaluate({}).ok());
  EXPECT_FALSE((huge * Dim(0)).Evaluate({}).ok());
  EXPECT_FALSE((Dim(1) - huge).Evaluate({}).ok());
  EXPECT_FALSE((kBatch * INT64_MAX + kBatch).Evaluate({{"batch", 0}}).ok());
  EXPECT_EQ(huge.DividedBy(Dim(1)), std::nullopt);
  EXPECT_FALSE(ParseDim(huge.ToString()).ok());
}

TEST(DimTest, TextParsesBack) {
  for (const Dim& dim : {Dim(), Dim(-5), kBatch, kBatch * kTime * 32 + 1, Dim(2) - kTime * kTime * 3, kTime - kBatch}) {
    const absl::StatusOr<Dim> parsed = ParseDim(dim.ToString());
    ASSERT_TRUE(parsed.ok()) << dim.ToString();
    EXPECT_EQ(*parsed, dim);
  }
  EXPECT_EQ(*ParseDim("2*batch*3+time"), kBatch * 6 + kTime);
  EXPECT_EQ(*ParseDim(" - 1 + _x9 "), Dim::Symbol("_x9") - 1);
}

TEST(DimTest, BadTextIsRefused) {
  for (const char* text :
       {"", " ", "+", "2*", "*2", "2 3", "a b", "2a", "a/b", "(a)", "a + ", "99999999999999999999"}) {
    EXPECT_EQ(ParseDim(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseDim(std::string(5000, 'a')).ok());
}

TEST(DimTest, ShapeHelpers) {
  const SymShape shape = {kBatch, kTime, 256};
  EXPECT_EQ(SymShapeText(shape), "[batch, time, 256]");
  EXPECT_EQ(ProductOf(shape), kBatch * kTime * 256);
  EXPECT_EQ(ProductOf({}), Dim(1));
  EXPECT_EQ(ToSymShape({2, 3}), (SymShape{2, 3}));
}

}  // namespace
}  // namespace tp
