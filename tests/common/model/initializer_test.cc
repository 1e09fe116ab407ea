#include "common/model/initializer.h"

#include <gtest/gtest.h>

#include <cmath>

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
