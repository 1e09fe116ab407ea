#include "worker/collective/reduce.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace tp::worker {
namespace {

template <typename T>
std::vector<T> Reduce(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& terms) {
  std::vector<const void*> pointers;
  for (const std::vector<T>& term : terms) pointers.push_back(term.data());
  std::vector<T> out(terms[0].size());
  ReduceTerms(dtype, op, pointers, static_cast<int64_t>(out.size()), out.data());
  return out;
}

TEST(ReduceTest, IntegersWrapAndHaveNoAverage) {
  EXPECT_EQ(Reduce<uint8_t>(DType::kU8, ReduceOp::kSum, {{200, 1}, {100, 2}}), (std::vector<uint8_t>{44, 3}));
  const int32_t max = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Reduce<int32_t>(DType::kI32, ReduceOp::kSum, {{max}, {1}}),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min()}));
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    EXPECT_EQ(CheckReduction(dtype, ReduceOp::kAvg).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(CheckReduction(dtype, ReduceOp::kProduct).ok());
  }
  const int64_t largest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Reduce<int64_t>(DType::kI64, ReduceOp::kSum, {{largest}, {2}}),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::min() + 1}));
}

TEST(ReduceTest, ANanWinsInMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const std::vector<float> out = Reduce<float>(DType::kF32, op, {{nan, 1, 1}, {1, nan, 2}});
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
    EXPECT_EQ(out[2], op == ReduceOp::kMin ? 1 : 2);
  }
}

TEST(ReduceTest, BoolIsAllAndAny) {
  EXPECT_EQ(Reduce<uint8_t>(DType::kBool, ReduceOp::kMin, {{1, 1, 0}, {1, 0, 0}}), (std::vector<uint8_t>{1, 0, 0}));
  EXPECT_EQ(Reduce<uint8_t>(DType::kBool, ReduceOp::kMax, {{1, 1, 0}, {1, 0, 0}}), (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_FALSE(CheckReduction(DType::kBool, ReduceOp::kAvg).ok());
  EXPECT_TRUE(CheckReduction(DType::kBool, ReduceOp::kMax).ok());
}

TEST(ReduceTest, OutputMayBeATermAndBlocksMeet) {
  std::vector<double> a(5000), b(5000, 1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i);
  const void* terms[] = {b.data(), a.data()};
  ReduceTerms(DType::kF64, ReduceOp::kSum, terms, 5000, a.data());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], static_cast<double>(i + 1));
}

}  // namespace
}  // namespace tp::worker
