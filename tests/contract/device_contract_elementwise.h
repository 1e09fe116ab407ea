// Elementwise functions, broadcasting and transposing.
#pragma once

#include "tests/contract/device_contract.h"

namespace tp::testing {

using worker::BinaryOp;
using worker::UnaryOp;

TEST_P(DeviceContract, UnaryFunctionsEqualTheirDefinitions) {
  const std::vector<std::pair<UnaryOp, std::function<double(double)>>> functions = {
      {UnaryOp::kSilu, [](double x) { return x / (1 + std::exp(-x)); }},
      {UnaryOp::kRelu, [](double x) { return x > 0 ? x : 0; }},
      {UnaryOp::kGelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {UnaryOp::kGeluTanh,
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {UnaryOp::kNegate, [](double x) { return -x; }},
      {UnaryOp::kAbs, [](double x) { return std::fabs(x); }},
      {UnaryOp::kLog, [](double x) { return std::log(x); }},
      {UnaryOp::kSqrt, [](double x) { return std::sqrt(x); }},
      {UnaryOp::kRsqrt, [](double x) { return 1 / std::sqrt(x); }},
      {UnaryOp::kSin, [](double x) { return std::sin(x); }},
      {UnaryOp::kCos, [](double x) { return std::cos(x); }},
      {UnaryOp::kTanh, [](double x) { return std::tanh(x); }},
      {UnaryOp::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      // Of numbers whose power F32 holds, and of some beyond.
      {UnaryOp::kExp, [](double x) { return x > 88.8 ? INFINITY : std::exp(x); }}};
  for (const auto& [op, function] : functions) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t count : {0, 1, 7, 15, 16, 17, 257, 40000}) {
        auto x = Random(dtype, count, 7);
        for (size_t i = 0; i < x.size(); ++i) x[i] *= i % 4 == 0 ? 64 : 4;  // powers of two: still exact
        const DeviceTensor input = Put(dtype, {count}, x);
        const DeviceTensor output = Empty(dtype, {count});
        ASSERT_EQ(Done(device_->Unary(*stream_, op, input.view, output.view)), absl::OkStatus());
        std::vector<double> want;
        for (const double v : x) want.push_back(function(v));
        ExpectNear(Values(output), want, Tolerance(dtype));
      }
    }
  }
}

TEST_P(DeviceContract, UnaryKeepsNaNAndLargeValues) {
  const DeviceTensor input = Put(DType::kF32, {4}, {std::nan(""), 1e30, -1e30, -1000});
  const DeviceTensor output = Empty(DType::kF32, {4});
  ASSERT_EQ(Done(device_->Unary(*stream_, UnaryOp::kSilu, input.view, output.view)), absl::OkStatus());
  ExpectNear(Values(output), {std::nan(""), static_cast<double>(1e30f), 0, 0}, 1e-6);
  ASSERT_EQ(Done(device_->Unary(*stream_, UnaryOp::kRelu, input.view, output.view)), absl::OkStatus());
  ExpectNear(Values(output), {std::nan(""), static_cast<double>(1e30f), 0, 0}, 0);
}

TEST_P(DeviceContract, UnaryOfOtherTypesIsUnimplemented) {
  const DeviceTensor input = PutIds({1}, {1});
  const DeviceTensor output = PutIds({1}, {0});
  for (const UnaryOp op : {UnaryOp::kSilu, UnaryOp::kExp, UnaryOp::kNot}) {
    EXPECT_EQ(Done(device_->Unary(*stream_, op, input.view, output.view)).code(), absl::StatusCode::kUnimplemented);
  }
}

TEST_P(DeviceContract, UnaryOfIntegersAndBooleans) {
  for (const DType dtype : {DType::kI64, DType::kI32}) {
    const double lowest = dtype == DType::kI64 ? -0x1p63 : -0x1p31;
    const DeviceTensor input = Put(dtype, {4}, {-3, 0, 5, lowest}), output = Empty(dtype, {4});
    ASSERT_EQ(Done(device_->Unary(*stream_, UnaryOp::kNegate, input.view, output.view)), absl::OkStatus());
    EXPECT_THAT(Values(output), ::testing::ElementsAre(3, 0, -5, lowest));
    ASSERT_EQ(Done(device_->Unary(*stream_, UnaryOp::kAbs, input.view, output.view)), absl::OkStatus());
    EXPECT_THAT(Values(output), ::testing::ElementsAre(3, 0, 5, lowest));
    ASSERT_EQ(Done(device_->Unary(*stream_, UnaryOp::kRelu, input.view, output.view)), absl::OkStatus());
    EXPECT_THAT(Values(output), ::testing::ElementsAre(0, 0, 5, 0));
  }
  const DeviceTensor input = Put(DType::kBool, {3}, {0, 1, 0}), output = Empty(DType::kBool, {3});
  ASSERT_EQ(Done(device_->Unary(*stream_, UnaryOp::kNot, input.view, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(1, 0, 1));
}

TEST_P(DeviceContract, UnaryAtTheEdges) {
  const double nan = std::nan(""), inf = INFINITY;
  const DeviceTensor input = Put(DType::kF32, {5}, {nan, inf, -inf, 0, -1}), output = Empty(DType::kF32, {5});
  const std::vector<std::pair<UnaryOp, std::vector<double>>> cases = {
      {UnaryOp::kExp, {nan, inf, 0, 1, std::exp(-1)}},
      {UnaryOp::kLog, {nan, inf, nan, -inf, nan}},
      {UnaryOp::kSqrt, {nan, inf, nan, 0, nan}},
      {UnaryOp::kRsqrt, {nan, 0, nan, inf, nan}},
      {UnaryOp::kTanh, {nan, 1, -1, 0, std::tanh(-1)}},
      {UnaryOp::kSigmoid, {nan, 1, 0, 0.5, 1 / (1 + std::exp(1))}},
      {UnaryOp::kAbs, {nan, inf, inf, 0, 1}}};
  for (const auto& [op, want] : cases) {
    ASSERT_EQ(Done(device_->Unary(*stream_, op, input.view, output.view)), absl::OkStatus());
    ExpectNear(Values(output), want, 1e-6);
  }
}

struct BroadcastCase {
  Shape a, b, out;
};

TEST_P(DeviceContract, BinaryBroadcasts) {
  const std::vector<BroadcastCase> cases = {{{}, {}, {}},
                                            {{0}, {1}, {0}},
                                            {{17}, {17}, {17}},
                                            {{257}, {}, {257}},
                                            {{3, 5}, {5}, {3, 5}},
                                            {{3, 5}, {3, 1}, {3, 5}},
                                            {{1, 5}, {3, 1}, {3, 5}},
                                            {{2, 1, 7}, {4, 1}, {2, 4, 7}},
                                            {{1}, {2, 3}, {2, 3}},
                                            {{2, 0}, {1, 1}, {2, 0}},
                                            {{2, 3, 4}, {2, 3, 1}, {2, 3, 4}},
                                            {{40, 1, 50}, {30, 50}, {40, 30, 50}}};
  for (const BroadcastCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kF64}) {
      auto xa = Random(dtype, ElementCount(c.a), 8);
      auto xb = Random(dtype, ElementCount(c.b), 9);
      if (dtype == DType::kI64) {
        for (size_t i = 0; i < xa.size(); ++i) xa[i] = static_cast<double>(i) - 3;
        for (size_t i = 0; i < xb.size(); ++i) xb[i] = static_cast<double>(i) * 2;
      }
      const DeviceTensor a = Put(dtype, c.a, xa);
      const DeviceTensor b = Put(dtype, c.b, xb);
      const DeviceTensor out = Empty(dtype, c.out);
      for (const BinaryOp op : {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul}) {
        ASSERT_EQ(Done(device_->Binary(*stream_, op, a.view, b.view, out.view)), absl::OkStatus());
        std::vector<double> want;
        for (int64_t i = 0; i < ElementCount(c.out); ++i) {
          const auto at = [&](const Shape& shape) {
            int64_t rest = i, offset = 0, stride = 1;
            for (size_t d = 0; d < c.out.size(); ++d) {
              const int64_t size = c.out[c.out.size() - 1 - d];
              const int64_t index = rest % size;
              rest /= size;
              if (d >= shape.size()) continue;
              const int64_t own = shape[shape.size() - 1 - d];
              if (own != 1) offset += index * stride;
              stride *= own;
            }
            return static_cast<size_t>(offset);
          };
          const double x = xa[at(c.a)];
          const double y = xb[at(c.b)];
          want.push_back(op == BinaryOp::kAdd ? x + y : op == BinaryOp::kSub ? x - y : x * y);
        }
        if (dtype != DType::kI64) want = AsDType(dtype, want);  // one rounding, to nearest even
        ExpectNear(Values(out), want, dtype == DType::kBF16 ? 1e-9 : 1e-7);
      }
    }
  }
}

TEST_P(DeviceContract, BinaryOfI64IsExact) {
  const DeviceTensor a = PutIds({2}, {(int64_t{1} << 60) + 1, INT64_MAX});
  const DeviceTensor b = PutIds({2}, {2, 1});
  const DeviceTensor out = PutIds({2}, {0, 0});
  ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kAdd, a.view, b.view, out.view)), absl::OkStatus());
  EXPECT_THAT(Ids(out), ::testing::ElementsAre((int64_t{1} << 60) + 3, INT64_MIN));
}

TEST_P(DeviceContract, BinaryRefusesShapesThatDoNotBroadcast) {
  const DeviceTensor a = Put(DType::kF32, {2}, {1, 2});
  const DeviceTensor b = Put(DType::kF32, {3}, {1, 2, 3});
  EXPECT_EQ(Done(device_->Binary(*stream_, BinaryOp::kAdd, a.view, b.view, b.view)).code(),
            absl::StatusCode::kInvalidArgument);
}

// What a divide (R -> P(sum)) on 4 ranks needs: exact, halfway cases and all.
TEST_P(DeviceContract, ScaleOfEveryFloatingTypeIsExactForPowersOfTwo) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    std::vector<double> x = Random(dtype, 1003, 12);
    x.insert(x.end(), {std::nan(""), INFINITY, -INFINITY, 0});
    const DeviceTensor input = Put(dtype, {1007}, x), output = Empty(dtype, {1007});
    ASSERT_EQ(Done(device_->Scale(*stream_, input.view, 0.25, output.view)), absl::OkStatus());
    for (double& value : x) value *= 0.25;
    ExpectNear(Values(output), AsDType(dtype, x), 0);
  }
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8, DType::kBool}) {
    const DeviceTensor input = Put(dtype, {1}, {1}), output = Empty(dtype, {1});
    EXPECT_EQ(Done(device_->Scale(*stream_, input.view, 0.25, output.view)).code(), absl::StatusCode::kUnimplemented);
  }
}

TEST_P(DeviceContract, ScaleMultiplies) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const int64_t count : {0, 1, 17, 257}) {
      const auto x = Random(dtype, count, 10);
      const DeviceTensor input = Put(dtype, {count}, x);
      const DeviceTensor output = Empty(dtype, {count});
      ASSERT_EQ(Done(device_->Scale(*stream_, input.view, -0.3, output.view)), absl::OkStatus());
      std::vector<double> want;
      for (const double v : x) want.push_back(v * -0.3);
      ExpectNear(Values(output), want, Tolerance(dtype));
    }
  }
}

TEST_P(DeviceContract, TransposePermutes) {
  struct Case {
    Shape shape;
    std::vector<int> permutation;
  };
  const std::vector<Case> cases = {{{}, {}},
                                   {{5}, {0}},
                                   {{3, 4}, {1, 0}},
                                   {{2, 0}, {1, 0}},
                                   {{2, 3, 4}, {0, 2, 1}},
                                   {{2, 3, 4}, {2, 0, 1}},
                                   {{2, 1, 3, 5}, {1, 3, 0, 2}},
                                   {{2, 3, 4}, {1, 0, 2}},
                                   {{150, 170}, {1, 0}}};
  for (const Case& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8}) {
      const int64_t count = ElementCount(c.shape);
      std::vector<double> x(static_cast<size_t>(count));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 251);  // 251 is prime and fits every dtype
      Shape out_shape;
      for (const int p : c.permutation) out_shape.push_back(c.shape[static_cast<size_t>(p)]);
      const DeviceTensor input = Put(dtype, c.shape, x);
      const DeviceTensor output = Empty(dtype, out_shape);
      ASSERT_EQ(Done(device_->Transpose(*stream_, input.view, c.permutation, output.view)), absl::OkStatus());
      std::vector<double> want(x.size());
      for (int64_t i = 0; i < count; ++i) {
        Shape index(c.shape.size());
        int64_t rest = i;
        for (size_t d = c.shape.size(); d-- > 0; rest /= c.shape[d]) index[d] = rest % c.shape[d];
        int64_t at = 0;
        for (size_t d = 0; d < c.shape.size(); ++d)
          at = at * out_shape[d] + index[static_cast<size_t>(c.permutation[d])];
        want[static_cast<size_t>(at)] = AsDType(dtype, {x[static_cast<size_t>(i)]})[0];
      }
      EXPECT_EQ(Values(output), want) << ShapeText(c.shape) << " " << DTypeName(dtype);
    }
  }
}

}  // namespace tp::testing
