// Reductions, extremes with their indices, the largest k.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/contract/device_contract.h"

namespace tp::testing {

using worker::Extreme;
using worker::Reduction;

struct ReduceCase {
  Shape shape;
  std::vector<int> dims;
};
inline const std::vector<ReduceCase>& ReduceCases() {
  static const auto* const cases = new std::vector<ReduceCase>{{{}, {}},
                                                               {{5}, {0}},
                                                               {{5}, {}},
                                                               {{3, 4}, {0}},
                                                               {{3, 4}, {1}},
                                                               {{3, 4}, {1, 0}},
                                                               {{2, 3, 4}, {1}},
                                                               {{2, 3, 4}, {0, 2}},
                                                               {{2, 1, 4}, {1}},
                                                               {{0, 3}, {0}},
                                                               {{0, 3}, {1}},
                                                               {{3, 0}, {1}},
                                                               {{0}, {0}},
                                                               {{3, 0, 2}, {1, 2}},
                                                               {{70, 3, 257}, {2}},
                                                               {{70, 3, 257}, {0}},
                                                               {{2, 3, 4, 5}, {1, 3}}};
  return *cases;
}

// The result of every kept index, row-major.
inline std::vector<double> Reduced(Reduction op, const ReduceCase& c, const std::vector<double>& x, double highest) {
  const double identity = op == Reduction::kSum       ? 0
                          : op == Reduction::kProduct ? 1
                          : op == Reduction::kMin     ? highest
                                                      : -highest;
  Shape kept;
  for (size_t d = 0; d < c.shape.size(); ++d) {
    if (std::find(c.dims.begin(), c.dims.end(), static_cast<int>(d)) == c.dims.end()) kept.push_back(c.shape[d]);
  }
  std::vector<double> result(static_cast<size_t>(ElementCount(kept)), identity);
  const Shape strides = RowMajorStrides(c.shape);
  for (int64_t i = 0; i < ElementCount(c.shape); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < c.shape.size(); ++d) {
      if (std::find(c.dims.begin(), c.dims.end(), static_cast<int>(d)) != c.dims.end()) continue;
      at = at * c.shape[d] + i / strides[d] % c.shape[d];
    }
    double& total = result[static_cast<size_t>(at)];
    const double value = x[static_cast<size_t>(i)];
    if (op == Reduction::kSum) total += value;
    if (op == Reduction::kProduct) total *= value;
    if (op == Reduction::kMax) total = std::max(total, value);
    if (op == Reduction::kMin) total = std::min(total, value);
  }
  return result;
}

TEST_P(DeviceContract, ReduceFloatsOverEveryChoiceOfDims) {
  for (const ReduceCase& c : ReduceCases()) {
    for (const Reduction op : {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin}) {
      for (const auto& [from, to] : std::vector<std::pair<DType, DType>>{
               {DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32}}) {
        SCOPED_TRACE(::testing::Message() << ShapeText(c.shape) << " op " << static_cast<int>(op));
        const auto x = Random(from, ElementCount(c.shape), 51);
        const auto want = Reduced(op, c, x, INFINITY);
        const DeviceTensor input = Put(from, c.shape, x);
        const DeviceTensor output = Empty(to, {static_cast<int64_t>(want.size())});
        ASSERT_EQ(Done(device_->Reduce(*stream_, op, input.view, c.dims, 1, output.view)), absl::OkStatus());
        ExpectNear(Values(output), want, to == DType::kBF16 ? 1.0 / 200 : 1e-5);
      }
    }
  }
}

TEST_P(DeviceContract, ReduceIntegersAndBooleansOverEveryChoiceOfDims) {
  for (const ReduceCase& c : ReduceCases()) {
    for (const Reduction op : {Reduction::kSum, Reduction::kMax, Reduction::kMin}) {
      for (const DType dtype : {DType::kI64, DType::kI32, DType::kBool}) {
        const auto x = Integers(dtype, ElementCount(c.shape), 52);
        const double highest = dtype == DType::kI64 ? 0x1p63 : dtype == DType::kI32 ? 0x1p31 : 1;
        auto want = Reduced(op, c, x, highest);
        const DType to = dtype == DType::kBool && op == Reduction::kSum ? DType::kI64 : dtype;
        for (double& value : want) {
          if (value == 0x1p31) value -= 1;  // the highest I32; that of I64 reads as 2^63
          if (dtype == DType::kBool && value == -1) value = 0;
        }
        const DeviceTensor input = Put(dtype, c.shape, x);
        const DeviceTensor output = Empty(to, {static_cast<int64_t>(want.size())});
        ASSERT_EQ(Done(device_->Reduce(*stream_, op, input.view, c.dims, 1, output.view)), absl::OkStatus());
        EXPECT_EQ(Values(output), want) << ShapeText(c.shape) << " " << DTypeName(dtype) << static_cast<int>(op);
      }
    }
  }
  const DeviceTensor many = Put(DType::kI32, {2}, {0x1p30, 0x1p30}), sum = PutIds({1}, {0});
  ASSERT_EQ(Done(device_->Reduce(*stream_, Reduction::kSum, many.view, {0}, 1, sum.view)), absl::OkStatus());
  EXPECT_THAT(Ids(sum), ::testing::ElementsAre(int64_t{1} << 31));
}

TEST_P(DeviceContract, ReduceDividesBeforeItRounds) {
  // The sum, 257, is no BF16; a third of it is 85.667, of which 85.5 is the nearest one.
  const DeviceTensor input = Put(DType::kBF16, {2}, {256, 1}), output = Empty(DType::kBF16, {1});
  ASSERT_EQ(Done(device_->Reduce(*stream_, Reduction::kSum, input.view, {0}, 3, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(85.5));
  const DeviceTensor none = Put(DType::kF32, {0}, {}), mean = Empty(DType::kF32, {1});
  ASSERT_EQ(Done(device_->Reduce(*stream_, Reduction::kSum, none.view, {0}, 0, mean.view)), absl::OkStatus());
  ExpectNear(Values(mean), {NAN}, 0);
}

TEST_P(DeviceContract, ReduceKeepsNaN) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Reduction op : {Reduction::kSum, Reduction::kMax, Reduction::kMin}) {
      for (const int dim : {0, 1}) {
        const DeviceTensor input = Put(dtype, {2, 2}, {NAN, 1, 2, NAN}), output = Empty(dtype, {2});
        ASSERT_EQ(Done(device_->Reduce(*stream_, op, input.view, {dim}, 1, output.view)), absl::OkStatus());
        ExpectNear(Values(output), {NAN, NAN}, 0);
      }
    }
  }
}

TEST_P(DeviceContract, ReduceOfManyNumbersIsExactEnough) {
  // In one F32 the sum of these would stop at 2^24.
  const int64_t count = (int64_t{1} << 24) + 1000;
  const DeviceTensor input = Put(DType::kBF16, {count}, std::vector<double>(static_cast<size_t>(count), 1));
  const DeviceTensor output = Empty(DType::kF32, {1});
  ASSERT_EQ(Done(device_->Reduce(*stream_, Reduction::kSum, input.view, {0}, 1, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(static_cast<double>(count)));
}

TEST_P(DeviceContract, ReduceRefusesWhatItDoesNotDo) {
  const DeviceTensor input = Put(DType::kF32, {2, 2}, {1, 2, 3, 4}), output = Empty(DType::kF32, {2});
  for (const std::vector<int>& dims : std::vector<std::vector<int>>{{2}, {-1}, {0, 0}, {}}) {
    EXPECT_EQ(Done(device_->Reduce(*stream_, Reduction::kSum, input.view, dims, 1, output.view)).code(),
              absl::StatusCode::kInvalidArgument);
  }
  const DeviceTensor flags = Put(DType::kBool, {2}, {0, 1}), product = Empty(DType::kBool, {1});
  EXPECT_EQ(Done(device_->Reduce(*stream_, Reduction::kProduct, flags.view, {0}, 1, product.view)).code(),
            absl::StatusCode::kUnimplemented);
}

TEST_P(DeviceContract, ExtremesComeWithTheirIndices) {
  const double nan = std::nan("");
  const DeviceTensor input =
      Put(DType::kBF16, {4, 4}, {1, 3, 3, 1, nan, 9, nan, 1, -5, -4, -9, -9, nan, nan, INFINITY, INFINITY});
  const DeviceTensor values = Empty(DType::kBF16, {4}), indices = Empty(DType::kI64, {4});
  ASSERT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMax, input.view, 1, &values.view, indices.view)),
            absl::OkStatus());
  ExpectNear(Values(values), {3, nan, -4, nan}, 0);
  EXPECT_THAT(Ids(indices), ::testing::ElementsAre(1, 0, 1, 0));
  ASSERT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMin, input.view, 1, &values.view, indices.view)),
            absl::OkStatus());
  ExpectNear(Values(values), {1, 1, -9, INFINITY}, 0);
  EXPECT_THAT(Ids(indices), ::testing::ElementsAre(0, 3, 2, 2));
  ASSERT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMin, input.view, 0, &values.view, indices.view)),
            absl::OkStatus());
  ExpectNear(Values(values), {-5, -4, -9, -9}, 0);
  EXPECT_THAT(Ids(indices), ::testing::ElementsAre(2, 2, 2, 2));
}

TEST_P(DeviceContract, TopKIsDescendingAndStable) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kI32}) {
    for (const Shape& shape : std::vector<Shape>{{7}, {3, 17}, {4, 1}, {0, 5}, {2, 257, 3}}) {
      for (size_t dim = 0; dim < shape.size(); ++dim) {
        for (const int64_t k : {int64_t{0}, std::min<int64_t>(1, shape[dim]), shape[dim] / 2, shape[dim]}) {
          const auto x = Integers(dtype, ElementCount(shape), 53);  // many ties
          Shape out_shape = shape;
          out_shape[dim] = k;
          const DeviceTensor input = Put(dtype, shape, x), values = Empty(dtype, out_shape);
          const DeviceTensor indices = Empty(DType::kI64, out_shape);
          ASSERT_EQ(Done(device_->TopK(*stream_, input.view, k, static_cast<int>(dim), values.view, indices.view)),
                    absl::OkStatus());
          const auto got = Values(values);
          const auto at = Ids(indices);
          ForIndices(out_shape, [&](const Shape& index, size_t position) {
            // Rank `index[dim]` of its row: so many elements stand before it.
            Shape source = index;
            source[dim] = at[position];
            const double value = x[At(shape, source)];
            int64_t before = 0;
            for (int64_t i = 0; i < shape[dim]; ++i) {
              Shape other = index;
              other[dim] = i;
              const double y = x[At(shape, other)];
              before += y > value || (y == value && i < at[position]) ? 1 : 0;
            }
            ASSERT_EQ(before, index[dim]);
            ASSERT_EQ(got[position], value);
          });
        }
      }
    }
  }
}

TEST_P(DeviceContract, TopKPutsNaNFirst) {
  const DeviceTensor input = Put(DType::kF32, {5}, {1, NAN, INFINITY, NAN, 2});
  const DeviceTensor values = Empty(DType::kF32, {4}), indices = Empty(DType::kI64, {4});
  ASSERT_EQ(Done(device_->TopK(*stream_, input.view, 4, -1, values.view, indices.view)), absl::OkStatus());
  ExpectNear(Values(values), {NAN, NAN, INFINITY, 2}, 0);
  EXPECT_THAT(Ids(indices), ::testing::ElementsAre(1, 3, 2, 4));
  const DeviceTensor six = Empty(DType::kF32, {6}), six_indices = Empty(DType::kI64, {6});
  EXPECT_EQ(Done(device_->TopK(*stream_, input.view, 6, 0, six.view, six_indices.view)).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace tp::testing
