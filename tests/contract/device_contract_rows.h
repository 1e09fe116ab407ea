// Norms, softmax, rotary embedding and selections.
#pragma once

#include <algorithm>

#include "tests/contract/device_contract.h"

namespace tp::testing {

using worker::Extreme;

TEST_P(DeviceContract, RmsNormMultipliesAfterTheCastBack) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const DType weight_dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t rows : {0, 1, 7, 70}) {
        for (const int64_t d : {0, 1, 7, 15, 16, 17, 257}) {
          const auto x = Random(dtype, rows * d, 11);
          const auto w = Random(weight_dtype, d, 12);
          const DeviceTensor input = Put(dtype, {rows, d}, x);
          const DeviceTensor weight = Put(weight_dtype, {d}, w);
          const DeviceTensor output = Empty(dtype, {rows, d});
          ASSERT_EQ(Done(device_->RmsNorm(*stream_, input.view, weight.view, 1e-5, output.view)), absl::OkStatus());
          std::vector<double> want;
          for (int64_t r = 0; r < rows; ++r) {
            double sum = 0;
            for (int64_t i = 0; i < d; ++i) sum += x[r * d + i] * x[r * d + i];
            for (int64_t i = 0; i < d; ++i) {
              const double normed = x[r * d + i] / std::sqrt(sum / static_cast<double>(d) + 1e-5);
              want.push_back(AsDType(dtype, {normed})[0] * w[i]);
            }
          }
          ExpectNear(Values(output), want, dtype == DType::kBF16 ? 1.0 / 100 : 4e-6);
        }
      }
    }
  }
}

// x = [3, 4], eps 0: x / sqrt(12.5) = [0.84853, 1.13137], as BF16 [0.84765625, 1.1328125]. Times 3 the second is
// 3.3984375, which rounds to 3.40625; without the first rounding it would be 3.39411 and round to 3.390625.
TEST_P(DeviceContract, RmsNormRoundsTwiceInBF16) {
  const DeviceTensor input = Put(DType::kBF16, {1, 2}, {3, 4});
  const DeviceTensor weight = Put(DType::kBF16, {2}, {3, 3});
  const DeviceTensor output = Empty(DType::kBF16, {1, 2});
  ASSERT_EQ(Done(device_->RmsNorm(*stream_, input.view, weight.view, 0, output.view)), absl::OkStatus());
  ExpectNear(Values(output), {2.546875, 3.40625}, 0);
}

TEST_P(DeviceContract, LayerNormOverTheLastDims) {
  struct Case {
    Shape shape;
    int dims;
  };
  const std::vector<Case> cases = {{{0, 4}, 1},  {{3, 0}, 1},    {{5}, 1},       {{7, 1}, 1},
                                   {{3, 17}, 1}, {{2, 3, 5}, 2}, {{70, 257}, 1}, {{2, 3}, 2}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const DType weight_dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [shape, dims] : cases) {
        for (int given = 0; given < 4; ++given) {  // bit 0: weight, bit 1: bias
          const Shape inner(shape.end() - dims, shape.end());
          const int64_t d = ElementCount(inner);
          auto x = Random(dtype, ElementCount(shape), 21);
          for (double& value : x) value = AsDType(dtype, {value + 4})[0];  // far from 0: the mean must go first
          const auto w = Random(weight_dtype, d, 22), b = Random(weight_dtype, d, 23);
          const DeviceTensor input = Put(dtype, shape, x), output = Empty(dtype, shape);
          const DeviceTensor weight = Put(weight_dtype, inner, w), bias = Put(weight_dtype, inner, b);
          const ConstTensorView weight_view = weight.view, bias_view = bias.view;
          ASSERT_EQ(Done(device_->LayerNorm(*stream_, input.view, (given & 1) != 0 ? &weight_view : nullptr,
                                            (given & 2) != 0 ? &bias_view : nullptr, dims, 1e-5, output.view)),
                    absl::OkStatus());
          std::vector<double> want;
          for (size_t first = 0; d > 0 && first < x.size(); first += static_cast<size_t>(d)) {
            double mean = 0, variance = 0;
            for (int64_t i = 0; i < d; ++i) mean += x[first + i] / static_cast<double>(d);
            for (int64_t i = 0; i < d; ++i) variance += std::pow(x[first + i] - mean, 2) / static_cast<double>(d);
            for (int64_t i = 0; i < d; ++i) {
              const double normed = (x[first + i] - mean) / std::sqrt(variance + 1e-5);
              want.push_back(normed * ((given & 1) != 0 ? w[i] : 1) + ((given & 2) != 0 ? b[i] : 0));
            }
          }
          ExpectNear(Values(output), want, dtype == DType::kBF16 ? 1.0 / 200 : 1e-5);
        }
      }
    }
  }
}

TEST_P(DeviceContract, SoftmaxOverEveryDim) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& shape : std::vector<Shape>{{1}, {257}, {3, 17}, {2, 0}, {0, 4}, {4, 5, 6}, {2, 300, 90}}) {
      for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
        const auto x = [&] {
          auto values = Random(dtype, ElementCount(shape), 13);
          for (double& v : values) v *= 16;
          return values;
        }();
        const DeviceTensor input = Put(dtype, shape, x);
        const DeviceTensor output = Empty(dtype, shape);
        const int given = dim % 2 == 0 ? dim : dim - static_cast<int>(shape.size());  // negative dims too
        ASSERT_EQ(Done(device_->Softmax(*stream_, input.view, given, output.view)), absl::OkStatus());
        const DeviceTensor logs = Empty(dtype, shape);
        ASSERT_EQ(Done(device_->LogSoftmax(*stream_, input.view, given, logs.view)), absl::OkStatus());
        const int64_t count = shape[static_cast<size_t>(dim)];
        const int64_t inner = ElementCount(absl::MakeConstSpan(shape).subspan(static_cast<size_t>(dim) + 1));
        std::vector<double> want(x.size());
        for (int64_t i = 0; i < ElementCount(shape); ++i) {
          const int64_t first = i / (count * inner) * count * inner + i % inner;
          double sum = 0;
          for (int64_t j = 0; j < count; ++j) sum += std::exp(x[first + j * inner] - x[i]);
          want[static_cast<size_t>(i)] = 1 / sum;
        }
        ExpectNear(Values(output), want, Tolerance(dtype));
        for (double& value : want) value = std::log(value);
        ExpectNear(Values(logs), want, Tolerance(dtype));
      }
    }
  }
}

TEST_P(DeviceContract, SoftmaxOfLargeValuesMasksAndNaN) {
  const double inf = INFINITY;
  const double nan = std::nan("");
  const DeviceTensor input = Put(DType::kF32, {3, 3}, {1e4, 1e4, -inf, nan, 1, 2, -inf, -inf, -inf});
  const DeviceTensor output = Empty(DType::kF32, {3, 3});
  ASSERT_EQ(Done(device_->Softmax(*stream_, input.view, 1, output.view)), absl::OkStatus());
  ExpectNear(Values(output), {0.5, 0.5, 0, nan, nan, nan, nan, nan, nan}, 1e-7);
  ASSERT_EQ(Done(device_->LogSoftmax(*stream_, input.view, 1, output.view)), absl::OkStatus());
  ExpectNear(Values(output), {-std::log(2), -std::log(2), -inf, nan, nan, nan, nan, nan, nan}, 1e-7);
}

TEST_P(DeviceContract, RotaryTurnsHalvesByGlobalPositions) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : {0, 1, 7, 33}) {
      for (const int64_t dim : {2, 14, 32, 66}) {
        const int64_t heads = 3;
        const double theta = 10000;
        std::vector<int64_t> positions;
        for (int64_t t = 0; t < tokens; ++t) positions.push_back((t * 37 + 5) % 401);
        const auto x = Random(dtype, tokens * heads * dim, 14);
        const DeviceTensor input = Put(dtype, {tokens, heads, dim}, x);
        const DeviceTensor at = PutIds({tokens}, positions);
        const DeviceTensor output = Empty(dtype, {tokens, heads, dim});
        ASSERT_EQ(Done(device_->Rotary(*stream_, input.view, at.view, theta, output.view)), absl::OkStatus());
        std::vector<double> want(x.size());
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t h = 0; h < heads; ++h) {
            for (int64_t i = 0; i < dim / 2; ++i) {
              const double angle = static_cast<double>(positions[t]) *
                                   std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
              const int64_t a = (t * heads + h) * dim + i;
              const int64_t b = a + dim / 2;
              want[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
              want[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
            }
          }
        }
        // An angle is a product of two F32: wrong by up to 401 * 2^-23.
        ExpectNear(Values(output), want, dtype == DType::kBF16 ? 1.0 / 200 : 1e-4);
      }
    }
  }
}

TEST_P(DeviceContract, RotarySeesChangedPositions) {
  const DeviceTensor input = Put(DType::kF32, {1, 1, 2}, {1, 0});
  const DeviceTensor output = Empty(DType::kF32, {1, 1, 2});
  for (const int64_t position : {0, 1, 2}) {
    const DeviceTensor at = PutIds({1}, {position});
    ASSERT_EQ(Done(device_->Rotary(*stream_, input.view, at.view, 1e4, output.view)), absl::OkStatus());
    const double angle = static_cast<double>(position);
    ExpectNear(Values(output), {std::cos(angle), std::sin(angle)}, 1e-6);
  }
}

TEST_P(DeviceContract, EmbeddingLooksUpItsOwnRowsOnly) {
  // Rows 2..4 of a vocabulary of 6; row r holds r * 10 and r * 10 + 1.
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const DeviceTensor table = Put(dtype, {3, 2}, {20, 21, 30, 31, 40, 41});
    const DeviceTensor ids = PutIds({2, 3}, {0, 2, 4, 5, 3, 1});
    const DeviceTensor output = Empty(dtype, {2, 3, 2});
    ASSERT_EQ(Done(device_->Embedding(*stream_, ids.view, table.view, 2, 6, output.view)), absl::OkStatus());
    EXPECT_THAT(Values(output), ::testing::ElementsAre(0, 0, 20, 21, 40, 41, 0, 0, 30, 31, 0, 0));
    const DeviceTensor narrow = Put(DType::kI32, {1, 3}, {4, 1, 2});
    const DeviceTensor few = Empty(dtype, {1, 3, 2});
    ASSERT_EQ(Done(device_->Embedding(*stream_, narrow.view, table.view, 2, 6, few.view)), absl::OkStatus());
    EXPECT_THAT(Values(few), ::testing::ElementsAre(40, 41, 0, 0, 20, 21));
  }
}

TEST_P(DeviceContract, EmbeddingWithoutIdsAndWithoutRows) {
  const DeviceTensor table = Put(DType::kF32, {0, 2}, {});
  const DeviceTensor none = PutIds({1, 0}, {});
  const DeviceTensor nothing = Empty(DType::kF32, {1, 0, 2});
  EXPECT_EQ(Done(device_->Embedding(*stream_, none.view, table.view, 0, 6, nothing.view)), absl::OkStatus());
  const DeviceTensor ids = PutIds({1}, {5});
  const DeviceTensor output = Put(DType::kF32, {1, 2}, {7, 7});
  ASSERT_EQ(Done(device_->Embedding(*stream_, ids.view, table.view, 6, 6, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(0, 0));
}

TEST_P(DeviceContract, EmbeddingRefusesIdsOutsideTheVocabulary) {
  const DeviceTensor table = Put(DType::kF32, {3, 1}, {1, 2, 3});
  const DeviceTensor output = Empty(DType::kF32, {3, 1});
  for (const int64_t bad : {int64_t{6}, int64_t{-1}, int64_t{1} << 40, INT64_MIN}) {
    const DeviceTensor ids = PutIds({3}, {0, bad, 1});
    const absl::Status status = Done(device_->Embedding(*stream_, ids.view, table.view, 0, 6, output.view));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("id " + std::to_string(bad) + " at position 1 outside [0, 6)"));
  }
  EXPECT_EQ(device_->Synchronize(*stream_), absl::OkStatus());  // a failure is reported once
}

TEST_P(DeviceContract, ArgMaxTakesTheLowestIndexAndNaNFirst) {
  const double nan = std::nan("");
  const DeviceTensor input =
      Put(DType::kF32, {4, 4}, {1, 3, 3, 2, nan, 9, nan, 1, -5, -4, -9, -4, 1, nan, INFINITY, 0});
  const DeviceTensor output = Empty(DType::kI64, {4});
  ASSERT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMax, input.view, -1, nullptr, output.view)), absl::OkStatus());
  EXPECT_THAT(Ids(output), ::testing::ElementsAre(1, 0, 1, 1));
  ASSERT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMax, input.view, 0, nullptr, output.view)), absl::OkStatus());
  EXPECT_THAT(Ids(output), ::testing::ElementsAre(1, 3, 1, 0));
}

TEST_P(DeviceContract, ArgMaxOfEveryTypeAndOfEmptyShapes) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kI32, DType::kU8}) {
    std::vector<double> x(257, 0);
    x[200] = 5;
    x[201] = 5;
    const DeviceTensor input = Put(dtype, {1, 257}, x);
    const DeviceTensor output = Empty(DType::kI64, {1, 1});
    ASSERT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMax, input.view, 1, nullptr, output.view)),
              absl::OkStatus());
    EXPECT_THAT(Ids(output), ::testing::ElementsAre(200));
  }
  const DeviceTensor empty = Put(DType::kF32, {0, 3}, {});
  const DeviceTensor none = Empty(DType::kI64, {0});
  EXPECT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMax, empty.view, 1, nullptr, none.view)), absl::OkStatus());
  const DeviceTensor three = Empty(DType::kI64, {3});
  EXPECT_EQ(Done(device_->ArgExtreme(*stream_, Extreme::kMax, empty.view, 0, nullptr, three.view)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceContract, SelectRowsCopiesRowsInOrder) {
  const DeviceTensor input = Put(DType::kBF16, {3, 1, 2}, {1, 2, 3, 4, 5, 6});
  const DeviceTensor rows = PutIds({4}, {2, 0, 2, 1});
  const DeviceTensor output = Empty(DType::kBF16, {4, 1, 2});
  ASSERT_EQ(Done(device_->SelectRows(*stream_, input.view, rows.view, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(5, 6, 1, 2, 5, 6, 3, 4));
  const DeviceTensor none = PutIds({0}, {});
  const DeviceTensor nothing = Empty(DType::kBF16, {0, 1, 2});
  EXPECT_EQ(Done(device_->SelectRows(*stream_, input.view, none.view, nothing.view)), absl::OkStatus());
  const DeviceTensor bad = PutIds({4}, {0, 1, 3, 2});
  EXPECT_EQ(Done(device_->SelectRows(*stream_, input.view, bad.view, output.view)).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace tp::testing
