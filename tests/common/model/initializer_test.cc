#include "common/model/initializer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tp {
namespace {

// The known answers of Random123's kat_vectors for philox4x32-10.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(InitializerTest, KeyMixesSeedAndPath) {
  EXPECT_EQ(InitializerKey(7, "layers.0.fc.weight"), (std::array<uint32_t, 2>{0x2766f7c9, 0x6d853f75}));
}

// Golden values of an independent script (python's integers, hashlib and math).
struct Golden {
  int64_t index;
  double uniform, normal;
};
class GoldenTest : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, UniformAndNormalEqualTheScript) {
  const Shape shape{int64_t{1} << 20, int64_t{1} << 20};
  EXPECT_DOUBLE_EQ(
      InitialValue({Initializer::Kind::kUniform, -0.5, 0.5}, 7, "layers.0.fc.weight", shape, GetParam().index),
      GetParam().uniform);
  EXPECT_NEAR(InitialValue({Initializer::Kind::kNormal, 0, 1}, 7, "layers.0.fc.weight", shape, GetParam().index),
              GetParam().normal, 1e-14);
  EXPECT_NEAR(InitialValue({Initializer::Kind::kNormal, 3, 2}, 7, "layers.0.fc.weight", shape, GetParam().index),
              3 + 2 * GetParam().normal, 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Indices, GoldenTest,
                         ::testing::Values(Golden{0, 0.30672430992126465, -1.7200412202034585},
                                           Golden{1, -0.051208674907684326, 1.5883095779051373},
                                           Golden{2, 0.3410717248916626, 0.7612947936379719},
                                           Golden{3, -0.40529489517211914, 1.0901451118706933},
                                           Golden{4, 0.07694566249847412, -0.25359584192443435},
                                           Golden{17179869185, -0.2894328236579895, -0.3170032555526013}));

// Golden values of an independent script in python: its own Philox over integers, hashlib's SHA-256, and for the
// quantile a bisection on math.erfc:
//   low = erfc(sqrt(2)) / 2; u = (word >> 8) * 2**-24; find x with erfc(-x / sqrt(2)) / 2 = low + (1 - 2 * low) * u
TEST(InitializerTest, TruncatedNormalIsTheQuantileOfTheUniformValue) {
  const Shape shape{int64_t{1} << 20, int64_t{1} << 20};
  const std::pair<int64_t, double> golden[] = {{0, 0.8160641367246586}, {1, -0.12282880152277215},
                                               {2, 0.9367362257744722}, {3, -1.2099651677063523},
                                               {4, 0.1851507831776365}, {17179869185, -0.7596348320703326}};
  for (const auto& [index, value] : golden) {
    EXPECT_NEAR(InitialValue({Initializer::Kind::kTruncatedNormal, 0, 1}, 7, "layers.0.fc.weight", shape, index), value,
                1e-14);
    EXPECT_NEAR(InitialValue({Initializer::Kind::kTruncatedNormal, 3, 2}, 7, "layers.0.fc.weight", shape, index),
                3 + 2 * value, 1e-13);
  }
}

TEST(InitializerTest, TruncatedNormalStaysWithinTwoStandardDeviations) {
  std::vector<double> values(200000);
  InitialValues({Initializer::Kind::kTruncatedNormal, 0, 1}, 1, "w", {200000}, 0, absl::MakeSpan(values));
  double sum = 0, squares = 0;
  for (const double v : values) {
    ASSERT_LE(std::fabs(v), 2.0);
    sum += v;
    squares += v * v;
  }
  EXPECT_NEAR(sum / 200000, 0, 0.01);
  EXPECT_NEAR(squares / 200000, 0.7737413, 0.01);  // 1 - 4 phi(2) / (1 - 2 low)
}

// A convolution's weight [16, 3, 5, 5]: fan in 3 * 25, fan out 16 * 25. The same script; bounds sqrt(6 / 75) and
// sqrt(6 / 475), standard deviations sqrt(2 / 75) and sqrt(2 / 475).
TEST(InitializerTest, KaimingAndXavierTakeTheFanOfTheGlobalShape) {
  const Shape shape{16, 3, 5, 5};
  EXPECT_EQ(FanOf(shape).in, 75);
  EXPECT_EQ(FanOf(shape).out, 400);
  EXPECT_EQ(FanOf({8, 6}).in, 6);
  EXPECT_EQ(FanOf({8, 6}).out, 8);
  struct {
    Initializer::Kind kind;
    double values[3];  // at 0, 1 and 1199
  } golden[] = {
      {Initializer::Kind::kKaimingUniform, {0.17350947160007238, -0.02896800102624079, -0.019557520125685988}},
      {Initializer::Kind::kXavierUniform, {0.06894567281746625, -0.011510716403624796, -0.007771370469126568}},
      {Initializer::Kind::kKaimingNormal, {-0.2808815550701756, 0.2593698679628609, -0.18649118203264534}},
      {Initializer::Kind::kXavierNormal, {-0.11161101245795838, 0.1030631347693492, -0.07410408147286376}}};
  for (const auto& one : golden) {
    const int64_t indices[] = {0, 1, 1199};
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(InitialValue({one.kind, 0, 0}, 7, "layers.0.fc.weight", shape, indices[i]), one.values[i], 1e-15);
    }
  }
  EXPECT_EQ(CheckInitializer({Initializer::Kind::kXavierNormal, 0, 0}, {5}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckInitializer({Initializer::Kind::kNormal, 0, 1}, {5}).ok());
  EXPECT_TRUE(CheckInitializer({Initializer::Kind::kKaimingUniform, 0, 0}, {5, 0}).ok());
}

constexpr Initializer::Kind kAll[] = {Initializer::Kind::kZeros,
                                      Initializer::Kind::kOnes,
                                      Initializer::Kind::kConstant,
                                      Initializer::Kind::kArange,
                                      Initializer::Kind::kEye,
                                      Initializer::Kind::kUniform,
                                      Initializer::Kind::kNormal,
                                      Initializer::Kind::kTruncatedNormal,
                                      Initializer::Kind::kKaimingUniform,
                                      Initializer::Kind::kKaimingNormal,
                                      Initializer::Kind::kXavierUniform,
                                      Initializer::Kind::kXavierNormal};

// Blocks of all forms hold the values of their indices.
TEST(FillInitialTest, ABlockHoldsTheValuesOfItsGlobalIndices) {
  const Shape shape{7, 5, 6};
  const std::vector<std::vector<std::vector<Interval>>> blocks = {
      {{{0, 7}}, {{0, 5}}, {{0, 6}}},                  // whole
      {{{2, 4}}, {{0, 5}}, {{0, 6}}},                  // rows
      {{{0, 2}, {4, 6}}, {{1, 4}}, {{0, 6}}},          // two runs of rows, some columns
      {{{0, 7}}, {{0, 1}, {3, 4}}, {{1, 3}, {5, 6}}},  // runs of runs
      {{{7, 7}}, {{0, 5}}, {{0, 6}}}};                 // empty
  for (const Initializer::Kind kind : kAll) {
    const Initializer initializer{kind, 0.5, 2};
    for (const auto& block : blocks) {
      std::vector<double> want;
      for (const Interval& x : block[0]) {
        for (int64_t i = x.begin; i < x.end; ++i) {
          for (const Interval& y : block[1]) {
            for (int64_t j = y.begin; j < y.end; ++j) {
              for (const Interval& z : block[2]) {
                for (int64_t k = z.begin; k < z.end; ++k) {
                  want.push_back(InitialValue(initializer, 3, "w", shape, (i * 5 + j) * 6 + k));
                }
              }
            }
          }
        }
      }
      std::vector<double> got(want.size() + 1, -9);
      ASSERT_TRUE(FillInitial(initializer, 3, "w", shape, block, DType::kF64, got.data()).ok());
      EXPECT_EQ(got.back(), -9);
      got.pop_back();
      EXPECT_EQ(got, want);
    }
  }
  double untouched = 1;
  EXPECT_EQ(FillInitial({Initializer::Kind::kXavierUniform, 0, 0}, 3, "w", {9},
                        std::vector<std::vector<Interval>>{{{0, 9}}}, DType::kF64, &untouched)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FillInitialTest, AScalarAndALongRun) {
  float one = 0;
  ASSERT_TRUE(FillInitial({Initializer::Kind::kConstant, 2.5, 0}, 3, "w", {}, {}, DType::kF32, &one).ok());
  EXPECT_EQ(one, 2.5f);
  std::vector<float> many(5000);  // of more than one chunk, from the middle of a Philox block on
  const std::vector<std::vector<Interval>> block = {{{3, 5003}}};
  ASSERT_TRUE(FillInitial({Initializer::Kind::kNormal, 0, 1}, 3, "w", {9000}, block, DType::kF32, many.data()).ok());
  for (int64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(many[i], static_cast<float>(InitialValue({Initializer::Kind::kNormal, 0, 1}, 3, "w", {9000}, 3 + i)));
  }
}

TEST(FillInitialTest, EveryDType) {
  const std::vector<std::vector<Interval>> block = {{{0, 4}}};
  const Initializer ramp{Initializer::Kind::kArange, -1.5, 100.25};  // -1.5, 98.75, 199, 299.25
  const auto fill = [&](DType dtype, void* out) {
    ASSERT_TRUE(FillInitial(ramp, 1, "w", {4}, block, dtype, out).ok());
  };
  std::vector<int64_t> i64(4);
  fill(DType::kI64, i64.data());
  EXPECT_EQ(i64, (std::vector<int64_t>{-1, 98, 199, 299}));
  std::vector<int32_t> i32(4);
  fill(DType::kI32, i32.data());
  EXPECT_EQ(i32, (std::vector<int32_t>{-1, 98, 199, 299}));
  std::vector<uint8_t> u8(4);
  fill(DType::kU8, u8.data());
  EXPECT_EQ(u8, (std::vector<uint8_t>{0, 98, 199, 255}));
  fill(DType::kBool, u8.data());
  EXPECT_EQ(u8, (std::vector<uint8_t>{1, 1, 1, 1}));
  std::vector<uint16_t> half(4);
  fill(DType::kBF16, half.data());
  EXPECT_EQ(half, (std::vector<uint16_t>{0xbfc0, 0x42c6, 0x4347, 0x4396}));  // 98.75 -> 99, 299.25 -> 300
  fill(DType::kF16, half.data());
  EXPECT_EQ(half, (std::vector<uint16_t>{0xbe00, 0x562c, 0x5a38, 0x5cad}));
  const Initializer far{Initializer::Kind::kConstant, 1e30, 0};
  ASSERT_TRUE(FillInitial(far, 1, "w", {4}, block, DType::kI64, i64.data()).ok());
  EXPECT_EQ(i64[0], std::numeric_limits<int64_t>::max());
}

TEST(InitializerTest, ConstantsAndIndices) {
  const Shape shape{2, 3};
  EXPECT_EQ(InitialValue({Initializer::Kind::kZeros, 5, 5}, 1, "w", shape, 4), 0);
  EXPECT_EQ(InitialValue({Initializer::Kind::kOnes, 5, 5}, 1, "w", shape, 4), 1);
  EXPECT_EQ(InitialValue({Initializer::Kind::kConstant, 2.5, 0}, 1, "w", shape, 4), 2.5);
  EXPECT_EQ(InitialValue({Initializer::Kind::kArange, 10, 0.5}, 1, "w", shape, 4), 12);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(InitialValue({Initializer::Kind::kEye, 0, 0}, 1, "w", shape, i), i == 0 || i == 4 ? 1 : 0) << i;
  }
}

TEST(InitializerTest, DefaultsByKind) {
  Initializer initializer;
  ASSERT_TRUE(
      DefaultInitializer(LinearConfig{.in_features = 16, .out_features = 3, .output_dtype = {}}, "bias", &initializer));
  EXPECT_EQ(initializer, (Initializer{Initializer::Kind::kUniform, -0.25, 0.25}));
  ASSERT_TRUE(DefaultInitializer(EmbeddingConfig{4, 2}, "weight", &initializer));
  EXPECT_EQ(initializer, (Initializer{Initializer::Kind::kNormal, 0, 1}));
  ASSERT_TRUE(DefaultInitializer(RMSNormConfig{4, 1e-6}, "weight", &initializer));
  EXPECT_EQ(initializer.kind, Initializer::Kind::kOnes);
  EXPECT_FALSE(DefaultInitializer(CompositeConfig{}, "weight", &initializer));
}

}  // namespace
}  // namespace tp
