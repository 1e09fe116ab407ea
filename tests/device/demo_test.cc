// The demo model against its references, which an independent program computed in float64.
#include "tests/device/demo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "tests/device/check.h"

namespace tp::testing {
namespace {

struct Error {
  double largest = 0, mean = 0;
};
// Of the logits of one prompt.
absl::StatusOr<Error> LogitError(RuntimeCluster& cluster, const std::map<std::string, HostTensor>& reference, int i) {
  HostTensor ids = reference.at(absl::StrCat("ids_", i));
  const HostTensor want = ConvertTo(reference.at(absl::StrCat("logits_", i)), DType::kF64);
  ids.shape = {1, ids.shape[0]};
  const ClusterAnswer answer = cluster.Forward(kDemoModel, {{"ids", ids}});
  if (!answer.status.ok()) return answer.status;
  const HostTensor got = ConvertTo(answer.outputs.at("logits"), DType::kF64);
  if (ElementCount(got.shape) != ElementCount(want.shape)) return absl::InternalError(ShapeText(got.shape));
  Error error;
  const int64_t count = ElementCount(want.shape);
  for (int64_t j = 0; j < count; ++j) {
    const double off = std::fabs(got.data<double>()[j] - want.data<double>()[j]);
    if (!(off <= error.largest)) error.largest = off;  // a NaN stays
    error.mean += off / static_cast<double>(count);
  }
  return error;
}

std::map<std::string, HostTensor> References() {
  auto reference = ReadSafetensors(Options().tree + "/deploy/demo/kjv/reference.safetensors");
  EXPECT_TRUE(reference.ok()) << reference.status();
  return reference.ok() ? *std::move(reference) : std::map<std::string, HostTensor>();
}

class Demo : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Demo, Demo, ::testing::Values(true, false),
                         [](const auto& test) { return test.param ? "Graphs" : "Calls"; });

TEST_P(Demo, GreedyTokensAndLogitsAreTheReferences) {
  const auto cases = DemoCases();
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_FALSE(cases->empty());
  const auto cluster = StartDemo(GetParam(), DType::kF32);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto reference = References();
  for (size_t i = 0; i < cases->size(); ++i) {
    SCOPED_TRACE(i);
    const DemoCase& one = (*cases)[i];
    const auto generated = Generate(**cluster, i + 1, one.ids, static_cast<int>(one.greedy.size()));
    ASSERT_TRUE(generated.ok()) << generated.status();
    EXPECT_EQ(generated->tokens, one.greedy);
    const auto error = LogitError(**cluster, reference, static_cast<int>(i));
    ASSERT_TRUE(error.ok()) << error.status();
    EXPECT_LT(error->largest, 1e-3);
  }
}

TEST_P(Demo, LogitsInBF16StayWithinTheMeanBound) {
  const auto cluster = StartDemo(GetParam(), DType::kBF16);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto reference = References();
  for (int i = 0; i < static_cast<int>(reference.size() / 2); ++i) {
    const auto error = LogitError(**cluster, reference, i);
    ASSERT_TRUE(error.ok()) << error.status();
    EXPECT_LE(error->mean, 0.05) << i;
    EXPECT_GT(error->mean, 0) << "BF16 must not be computed as F32 and called BF16";
  }
}

// For compute-sanitizer, under which all is a hundred times slower.
TEST(DemoShort, AFewTokens) {
  const auto cases = DemoCases();
  ASSERT_TRUE(cases.ok()) << cases.status();
  const auto cluster = StartDemo(true, DType::kF32);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const DemoCase& one = cases->front();
  const auto generated = Generate(**cluster, 1, one.ids, 12);
  ASSERT_TRUE(generated.ok()) << generated.status();
  EXPECT_TRUE(std::equal(generated->tokens.begin(), generated->tokens.end(), one.greedy.begin()));
}

}  // namespace
}  // namespace tp::testing
