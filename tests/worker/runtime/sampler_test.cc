#include "worker/runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace tp::worker {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(GreedyToken, TakesTheLargestTiesToTheLowest) {
  EXPECT_EQ(GreedyToken(std::vector<float>{0.5, 2, -1, 2}), 1);
  EXPECT_EQ(GreedyToken(std::vector<float>{-kInf, -kInf}), 0);
  EXPECT_EQ(GreedyToken(std::vector<float>{3}), 0);
}

TEST(GreedyToken, NaNIsTheLargest) { EXPECT_EQ(GreedyToken(std::vector<float>{1, kInf, kNaN, kNaN}), 2); }

TEST(SampleToken, TemperatureZeroIsGreedy) {
  EXPECT_EQ(SampleToken(std::vector<float>{0, 1, 3, 2}, {.temperature = 0, .seed = 9, .position = 4}), 2);
}

TEST(SampleToken, DependsOnSeedAndPositionOnly) {
  const std::vector<float> logits(50, 0.f);
  std::set<int64_t> by_position, by_seed;
  for (int64_t position = 0; position < 40; ++position) {
    const SamplingRow sampling{.temperature = 1, .seed = 42, .position = position};
    const int64_t token = SampleToken(logits, sampling);
    EXPECT_EQ(token, SampleToken(logits, sampling));
    by_position.insert(token);
    by_seed.insert(SampleToken(logits, {.temperature = 1, .seed = static_cast<uint64_t>(position), .position = 3}));
  }
  EXPECT_GT(by_position.size(), 15u);
  EXPECT_GT(by_seed.size(), 15u);
}

// Counter (0, 0, 0, 0) and key (0, 0) give the word 0x6627e8d5 first: u = 0.39904...
TEST(SampleToken, DrawsByTheFirstPhiloxWord) {
  std::vector<float> logits(100, 1.f);  // equal, so ordered by index
  EXPECT_EQ(SampleToken(logits, {.temperature = 1, .seed = 0, .position = 0}), 39);
}

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<float> logits{std::log(1.f), std::log(2.f), std::log(5.f)};
  std::vector<int> counts(3, 0);
  for (int64_t position = 0; position < 8000; ++position) {
    ++counts[SampleToken(logits, {.temperature = 1, .seed = 7, .position = position})];
  }
  EXPECT_NEAR(counts[0], 1000, 120);
  EXPECT_NEAR(counts[1], 2000, 160);
  EXPECT_NEAR(counts[2], 5000, 200);
}

TEST(SampleToken, TopKKeepsTheLargest) {
  const std::vector<float> logits{1, 4, 2, 4, 3};
  std::set<int64_t> seen;
  for (int64_t position = 0; position < 200; ++position) {
    seen.insert(SampleToken(logits, {.temperature = 5, .top_k = 3, .seed = 1, .position = position}));
  }
  EXPECT_EQ(seen, (std::set<int64_t>{1, 3, 4}));
  EXPECT_EQ(SampleToken(logits, {.temperature = 5, .top_k = 1, .seed = 1, .position = 0}), 1);
}

TEST(SampleToken, TopPKeepsTheShortestPrefixThatReachesIt) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  std::set<int64_t> seen;
  for (int64_t position = 0; position < 200; ++position) {
    seen.insert(SampleToken(logits, {.temperature = 1, .top_p = 0.7, .seed = 1, .position = position}));
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1}));
  for (int64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(SampleToken(logits, {.temperature = 1, .top_p = 0.3, .seed = 1, .position = position}), 0);
  }
}

TEST(SampleToken, NaNAndInfinityAreGreedy) {
  EXPECT_EQ(SampleToken(std::vector<float>{1, kNaN, 9}, {.temperature = 1, .seed = 1, .position = 0}), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{1, 2, kInf}, {.temperature = 1, .seed = 1, .position = 0}), 2);
  EXPECT_EQ(SampleToken(std::vector<float>{-kInf, -kInf}, {.temperature = 1, .seed = 1, .position = 0}), 0);
}

}  // namespace
}  // namespace tp::worker
