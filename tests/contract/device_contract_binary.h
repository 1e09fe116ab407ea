// Every binary function, with one number on the right, and choices by a condition.
#pragma once

#include <map>

#include "tests/contract/device_contract.h"

namespace tp::testing {

using worker::BinaryOp;

struct BinaryCase {
  BinaryOp op;
  std::string name;
  std::function<double(double, double)> value;
};
inline double Greatest(double x, double y) { return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y); }
inline double Least(double x, double y) { return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y); }
inline const std::vector<BinaryCase>& BinaryCases() {
  static const auto* const cases = new std::vector<BinaryCase>{
      {BinaryOp::kAdd, "add", [](double x, double y) { return x + y; }},
      {BinaryOp::kSub, "sub", [](double x, double y) { return x - y; }},
      {BinaryOp::kMul, "mul", [](double x, double y) { return x * y; }},
      {BinaryOp::kDiv, "div", [](double x, double y) { return x / y; }},
      {BinaryOp::kPow, "pow", [](double x, double y) { return std::pow(x, y); }},
      {BinaryOp::kMaximum, "maximum", Greatest},
      {BinaryOp::kMinimum, "minimum", Least},
      {BinaryOp::kFloorDiv, "floor_div", [](double x, double y) { return std::floor(x / y); }},
      {BinaryOp::kRemainder, "remainder", [](double x, double y) { return x - std::floor(x / y) * y; }},
      {BinaryOp::kEqual, "eq", [](double x, double y) { return x == y; }},
      {BinaryOp::kNotEqual, "ne", [](double x, double y) { return x != y; }},
      {BinaryOp::kLess, "lt", [](double x, double y) { return x < y; }},
      {BinaryOp::kLessEqual, "le", [](double x, double y) { return x <= y; }},
      {BinaryOp::kGreater, "gt", [](double x, double y) { return x > y; }},
      {BinaryOp::kGreaterEqual, "ge", [](double x, double y) { return x >= y; }},
      {BinaryOp::kAnd, "and", [](double x, double y) { return x != 0 && y != 0; }},
      {BinaryOp::kOr, "or", [](double x, double y) { return x != 0 || y != 0; }}};
  return *cases;
}
inline bool Takes(BinaryOp op, DType dtype) {
  const bool integer = dtype == DType::kI64 || dtype == DType::kI32;
  const bool logical = op == BinaryOp::kAnd || op == BinaryOp::kOr;
  if (dtype == DType::kBool) return op >= BinaryOp::kEqual;
  return !logical && !(integer && (op == BinaryOp::kDiv || op == BinaryOp::kPow));
}
inline bool ToBool(BinaryOp op) { return op >= BinaryOp::kEqual; }

TEST_P(DeviceContract, BinaryFunctionsOfEveryDType) {
  const Shape out_shape = {3, 5, 37};
  for (const BinaryCase& c : BinaryCases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI64, DType::kI32, DType::kBool}) {
      for (const auto& shapes : std::vector<std::pair<Shape, Shape>>{
               {{3, 5, 37}, {3, 5, 37}}, {{3, 5, 37}, {5, 1}}, {{3, 1, 37}, {5, 37}}}) {
        const Shape& a_shape = shapes.first;
        const Shape& b_shape = shapes.second;
        SCOPED_TRACE(::testing::Message() << c.name << " of " << DTypeName(dtype));
        const auto x = Integers(dtype, ElementCount(a_shape), 31);
        auto y = Integers(dtype, ElementCount(b_shape), 32);
        if (dtype != DType::kBool) {
          for (double& value : y) value = value == 0 ? 3 : value;  // a divisor
        }
        const DeviceTensor a = Put(dtype, a_shape, x), b = Put(dtype, b_shape, y);
        const DeviceTensor out = Empty(ToBool(c.op) ? DType::kBool : dtype, out_shape);
        const absl::Status status = Done(device_->Binary(*stream_, c.op, a.view, b.view, out.view));
        if (!Takes(c.op, dtype)) {
          EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
          continue;
        }
        ASSERT_EQ(status, absl::OkStatus());
        std::vector<double> want;
        ForIndices(out_shape, [&](const Shape& index, size_t) {
          want.push_back(c.value(x[At(a_shape, index)], y[At(b_shape, index)]));
        });
        ExpectNear(Values(out), want, Tolerance(dtype));
        // The same with one number.
        const absl::Status scalar = Done(device_->BinaryScalar(*stream_, c.op, a.view, dtype == DType::kBool ? 1 : -2,
                                                               Empty(out.view.dtype, a_shape).view));
        ASSERT_EQ(scalar, absl::OkStatus());
      }
    }
  }
}

TEST_P(DeviceContract, BinaryWithOneNumber) {
  for (const BinaryCase& c : BinaryCases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kI32}) {
      if (!Takes(c.op, dtype)) continue;
      for (const int64_t count : {0, 1, 7, 257}) {
        SCOPED_TRACE(::testing::Message() << c.name << " of " << DTypeName(dtype));
        const auto x = Integers(dtype, count, 33);
        const DeviceTensor a = Put(dtype, {count}, x);
        const DeviceTensor out = Empty(ToBool(c.op) ? DType::kBool : dtype, {count});
        ASSERT_EQ(Done(device_->BinaryScalar(*stream_, c.op, a.view, -2, out.view)), absl::OkStatus());
        std::vector<double> want;
        for (const double value : x) want.push_back(c.value(value, -2));
        ExpectNear(Values(out), want, Tolerance(dtype));
      }
    }
  }
}

TEST_P(DeviceContract, BinaryTakesItsNumberUnrounded) {
  // 0.1 as BF16 would be 0.10009765625: 640 times that is 64.0625, another BF16 than 64.
  const DeviceTensor a = Put(DType::kBF16, {1}, {640}), out = Empty(DType::kBF16, {1});
  ASSERT_EQ(Done(device_->BinaryScalar(*stream_, BinaryOp::kMul, a.view, 0.1, out.view)), absl::OkStatus());
  EXPECT_THAT(Values(out), ::testing::ElementsAre(64));
  const DeviceTensor big = PutIds({1}, {(int64_t{1} << 60) + 1}), sum = PutIds({1}, {0});
  ASSERT_EQ(Done(device_->BinaryScalar(*stream_, BinaryOp::kAdd, big.view, 1, sum.view)), absl::OkStatus());
  EXPECT_THAT(Ids(sum), ::testing::ElementsAre((int64_t{1} << 60) + 2));
  for (const double bad : std::vector<double>{0.5, NAN, INFINITY, 0x1p63}) {
    EXPECT_EQ(Done(device_->BinaryScalar(*stream_, BinaryOp::kAdd, big.view, bad, sum.view)).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(DeviceContract, BinaryWithNaN) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const DeviceTensor a = Put(dtype, {4}, {NAN, 1, NAN, 2}), b = Put(dtype, {4}, {1, NAN, NAN, 3});
    const DeviceTensor out = Empty(dtype, {4}), flags = Empty(DType::kBool, {4});
    ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kMaximum, a.view, b.view, out.view)), absl::OkStatus());
    ExpectNear(Values(out), {NAN, NAN, NAN, 3}, 0);
    ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kMinimum, a.view, b.view, out.view)), absl::OkStatus());
    ExpectNear(Values(out), {NAN, NAN, NAN, 2}, 0);
    ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kNotEqual, a.view, a.view, flags.view)), absl::OkStatus());
    EXPECT_THAT(Values(flags), ::testing::ElementsAre(1, 0, 1, 0));
    ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kLessEqual, a.view, b.view, flags.view)), absl::OkStatus());
    EXPECT_THAT(Values(flags), ::testing::ElementsAre(0, 0, 0, 1));
  }
}

TEST_P(DeviceContract, DivisionOfIntegersIsPythons) {
  const DeviceTensor a = PutIds({7}, {7, -7, 7, -7, 6, INT64_MIN, INT64_MIN});
  const DeviceTensor b = PutIds({7}, {2, 2, -2, -2, 3, -1, 3});
  const DeviceTensor out = PutIds({7}, {0, 0, 0, 0, 0, 0, 0});
  ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kFloorDiv, a.view, b.view, out.view)), absl::OkStatus());
  EXPECT_THAT(Ids(out), ::testing::ElementsAre(3, -4, -4, 3, 2, INT64_MIN, -3074457345618258603));
  ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kRemainder, a.view, b.view, out.view)), absl::OkStatus());
  EXPECT_THAT(Ids(out), ::testing::ElementsAre(1, 1, -1, -1, 0, 0, 1));
  const DeviceTensor zero = PutIds({1}, {0});
  for (const BinaryOp op : {BinaryOp::kFloorDiv, BinaryOp::kRemainder}) {
    EXPECT_EQ(Done(device_->Binary(*stream_, op, a.view, zero.view, out.view)).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Done(device_->BinaryScalar(*stream_, op, a.view, 0, out.view)).code(),
              absl::StatusCode::kInvalidArgument);
  }
  const DeviceTensor none = PutIds({0}, {});
  EXPECT_EQ(Done(device_->BinaryScalar(*stream_, BinaryOp::kFloorDiv, none.view, 0, none.view)).code(),
            absl::StatusCode::kOk);
}

TEST_P(DeviceContract, DivisionOfFloatsIsPythons) {
  // 1 // 0.1 is 9 in Python: 0.1 is a little more than a tenth.
  const DeviceTensor a = Put(DType::kF64, {5}, {1, -1, 5.5, 1, INFINITY}),
                     b = Put(DType::kF64, {5}, {0.1, 3, -2, 0, 2});
  const DeviceTensor out = Empty(DType::kF64, {5});
  ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kFloorDiv, a.view, b.view, out.view)), absl::OkStatus());
  ExpectNear(Values(out), {9, -1, -3, INFINITY, NAN}, 0);
  ASSERT_EQ(Done(device_->Binary(*stream_, BinaryOp::kRemainder, a.view, b.view, out.view)), absl::OkStatus());
  ExpectNear(Values(out), {0.09999999999999995, 2, -0.5, NAN, NAN}, 1e-15);
}

TEST_P(DeviceContract, WhereChoosesAndBroadcasts) {
  struct Case {
    Shape condition, a, b, out;
  };
  for (const Case& c : std::vector<Case>{{{}, {}, {}, {}},
                                         {{5}, {5}, {5}, {5}},
                                         {{3, 1}, {4}, {3, 4}, {3, 4}},
                                         {{4}, {3, 1}, {}, {3, 4}},
                                         {{0, 4}, {1}, {4}, {0, 4}},
                                         {{2, 1, 37}, {3, 1}, {2, 3, 37}, {2, 3, 37}}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kBool}) {
      const auto chooses = Integers(DType::kBool, ElementCount(c.condition), 41);
      const auto x = Integers(dtype, ElementCount(c.a), 42), y = Integers(dtype, ElementCount(c.b), 43);
      const DeviceTensor condition = Put(DType::kBool, c.condition, chooses);
      const DeviceTensor a = Put(dtype, c.a, x), b = Put(dtype, c.b, y), out = Empty(dtype, c.out);
      ASSERT_EQ(Done(device_->Where(*stream_, condition.view, a.view, b.view, out.view)), absl::OkStatus());
      std::vector<double> want;
      ForIndices(c.out, [&](const Shape& index, size_t) {
        want.push_back(chooses[At(c.condition, index)] != 0 ? x[At(c.a, index)] : y[At(c.b, index)]);
      });
      EXPECT_EQ(Values(out), want);
    }
  }
}

TEST_P(DeviceContract, MaskedFillFillsWhereTheMaskIsSet) {
  const DeviceTensor mask = Put(DType::kBool, {2, 1}, {0, 1});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const DeviceTensor input = Put(dtype, {2, 3}, {1, 2, 3, 4, 5, 6}), out = Empty(dtype, {2, 3});
    ASSERT_EQ(Done(device_->MaskedFill(*stream_, input.view, mask.view, -INFINITY, out.view)), absl::OkStatus());
    ExpectNear(Values(out), {1, 2, 3, -INFINITY, -INFINITY, -INFINITY}, 0);
  }
  const DeviceTensor input = PutIds({3}, {1, 2, 3}), out = PutIds({2, 3}, {0, 0, 0, 0, 0, 0});
  ASSERT_EQ(Done(device_->MaskedFill(*stream_, input.view, mask.view, -7, out.view)), absl::OkStatus());
  EXPECT_THAT(Ids(out), ::testing::ElementsAre(1, 2, 3, -7, -7, -7));
  EXPECT_EQ(Done(device_->MaskedFill(*stream_, input.view, mask.view, 0.5, out.view)).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace tp::testing
