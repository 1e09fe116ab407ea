// The GPU's kernels against loops in float64, over sizes that are no multiple of a warp, a block or a vector.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/contract/device_contract_attention.h"

namespace tp::testing {

using worker::BinaryOp;
using worker::Reduction;
using worker::UnaryOp;

inline constexpr int64_t kSizes[] = {1, 3, 17, 63, 65, 257};
inline constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

// Rounding of a result of `dtype`, as DeviceContract::Tolerance; F16 has 3 bits more than BF16.
inline double Rounding(DType dtype) {
  return dtype == DType::kBF16 ? 1.0 / 200 : dtype == DType::kF16 ? 1.0 / 1600 : 4e-6;
}

class KernelSweep : public DeviceContract {
 protected:
  // Rows of `size` that `dtype` holds, each in [-1, 1).
  struct Rows {
    std::vector<double> values;
    DeviceTensor on_device;
  };
  Rows MakeRows(DType dtype, int64_t rows, int64_t size, uint32_t seed) {
    Rows made{Random(dtype, rows * size, seed), {}};
    made.on_device = Put(dtype, {rows, size}, made.values);
    return made;
  }
  void Expect(const absl::Status& call, const DeviceTensor& output, const std::vector<double>& want, double tolerance) {
    ASSERT_EQ(Done(call), absl::OkStatus());
    ExpectNear(Values(output), want, tolerance);
  }
};

TEST_P(KernelSweep, Elementwise) {
  for (const DType dtype : kFloats) {
    for (const int64_t size :
         {int64_t{1}, int64_t{3}, int64_t{17}, int64_t{63}, int64_t{65}, int64_t{257}, int64_t{70001}}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << size);
      const Rows a = MakeRows(dtype, 1, size, 1), b = MakeRows(dtype, 1, size, 2);
      const DeviceTensor out = Empty(dtype, {1, size});
      std::vector<double> silu, gelu, sum, product;
      for (size_t i = 0; i < a.values.size(); ++i) {
        const double x = a.values[i];
        silu.push_back(x / (1 + std::exp(-x)));
        gelu.push_back(x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))));
        sum.push_back(x + b.values[i]);
        product.push_back(x * b.values[i]);
      }
      const double bound = Rounding(dtype);
      const TensorView &x = a.on_device.view, &y = b.on_device.view;
      Expect(device_->Unary(*stream_, UnaryOp::kSilu, x, out.view), out, silu, bound);
      Expect(device_->Unary(*stream_, UnaryOp::kGelu, x, out.view), out, gelu, bound);
      Expect(device_->Binary(*stream_, BinaryOp::kAdd, x, y, out.view), out, sum, bound);
      Expect(device_->Binary(*stream_, BinaryOp::kMul, x, y, out.view), out, product, bound);
    }
  }
}

TEST_P(KernelSweep, RowsOfNormsAndSoftmax) {
  for (const DType dtype : kFloats) {
    for (const int64_t rows : {1, 3, 17}) {
      for (const int64_t size : kSizes) {
        SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << rows << " x " << size);
        const Rows in = MakeRows(dtype, rows, size, 3), weight = MakeRows(dtype, 1, size, 4),
                   bias = MakeRows(dtype, 1, size, 5);
        const DeviceTensor out = Empty(dtype, {rows, size});
        std::vector<double> rms, layer, softmax;
        for (int64_t r = 0; r < rows; ++r) {
          const double* x = in.values.data() + r * size;
          double mean = 0, squares = 0, variance = 0, total = 0;
          for (int64_t i = 0; i < size; ++i) mean += x[i] / static_cast<double>(size);
          for (int64_t i = 0; i < size; ++i) {
            squares += x[i] * x[i] / static_cast<double>(size);
            variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(size);
            total += std::exp(x[i]);
          }
          for (int64_t i = 0; i < size; ++i) {
            rms.push_back(x[i] / std::sqrt(squares + 1e-3) * weight.values[i]);
            layer.push_back((x[i] - mean) / std::sqrt(variance + 1e-3) * weight.values[i] + bias.values[i]);
            softmax.push_back(std::exp(x[i]) / total);
          }
        }
        const Shape one = {size};
        const ConstTensorView w{dtype, weight.on_device.view.data, one}, b{dtype, bias.on_device.view.data, one};
        const double bound = 2 * Rounding(dtype);  // rms_norm rounds before the weight too
        Expect(device_->RmsNorm(*stream_, in.on_device.view, w, 1e-3, out.view), out, rms, bound);
        Expect(device_->LayerNorm(*stream_, in.on_device.view, &w, &b, 1, 1e-3, out.view), out, layer, bound);
        Expect(device_->Softmax(*stream_, in.on_device.view, 1, out.view), out, softmax, bound);
      }
    }
  }
}

TEST_P(KernelSweep, Reductions) {
  for (const DType dtype : kFloats) {
    for (const int64_t size : kSizes) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << size);
      const Rows in = MakeRows(dtype, 5, size, 6);
      std::vector<double> sums, largest, columns(static_cast<size_t>(size), 0);
      std::vector<int64_t> where;
      for (int64_t r = 0; r < 5; ++r) {
        const double* x = in.values.data() + r * size;
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) {
          sum += x[i];
          columns[static_cast<size_t>(i)] += x[i];
        }
        sums.push_back(sum);
        where.push_back(std::max_element(x, x + size) - x);
        largest.push_back(x[where.back()]);
      }
      const DeviceTensor by_row = Empty(dtype, {5}), by_column = Empty(dtype, {size});
      const double bound = Rounding(dtype) * std::sqrt(static_cast<double>(size));
      Expect(device_->Reduce(*stream_, Reduction::kSum, in.on_device.view, {1}, 1, by_row.view), by_row, sums, bound);
      Expect(device_->Reduce(*stream_, Reduction::kMax, in.on_device.view, {1}, 1, by_row.view), by_row, largest, 0);
      Expect(device_->Reduce(*stream_, Reduction::kSum, in.on_device.view, {0}, 1, by_column.view), by_column, columns,
             2 * Rounding(dtype));
      const DeviceTensor indices = Empty(DType::kI64, {5});
      ASSERT_EQ(Done(device_->ArgExtreme(*stream_, worker::Extreme::kMax, in.on_device.view, 1, nullptr, indices.view)),
                absl::OkStatus());
      EXPECT_EQ(Ids(indices), where);
    }
  }
}

TEST_P(KernelSweep, RotaryOfHeads) {
  for (const DType dtype : kFloats) {
    for (const int64_t dim : {64, 80, 128}) {
      for (const int64_t tokens : {1, 3, 17, 65}) {
        SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << tokens << " x " << dim);
        const int64_t heads = 3, half = dim / 2;
        const auto x = Random(dtype, tokens * heads * dim, 7);
        std::vector<int64_t> positions;
        for (int64_t t = 0; t < tokens; ++t) positions.push_back(t * 37 % 4000);
        std::vector<double> want(x.size());
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t h = 0; h < heads; ++h) {
            const size_t at = static_cast<size_t>((t * heads + h) * dim);
            for (int64_t i = 0; i < half; ++i) {
              const double angle = static_cast<double>(positions[static_cast<size_t>(t)]) *
                                   std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
              const double first = x[at + i], second = x[at + half + i];
              want[at + i] = first * std::cos(angle) - second * std::sin(angle);
              want[at + half + i] = second * std::cos(angle) + first * std::sin(angle);
            }
          }
        }
        const DeviceTensor in = Put(dtype, {tokens, heads, dim}, x), out = Empty(dtype, {tokens, heads, dim});
        const DeviceTensor ids = PutIds({tokens}, positions);
        // An angle of thousands in F32 is off by some 1e-4.
        Expect(device_->Rotary(*stream_, in.view, ids.view, 10000, out.view), out, want, 5e-4 + Rounding(dtype));
      }
    }
  }
}

TEST_P(KernelSweep, ProductsOfWeights) {
  for (const DType dtype : kFloats) {
    for (const int64_t m : kSizes) {
      for (const int64_t k : kSizes) {
        for (const int64_t n : {1, 17, 65, 257}) {
          SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " m=" << m << " k=" << k << " n=" << n);
          const Rows in = MakeRows(dtype, m, k, 8);
          const Rows weight = MakeRows(dtype, n, k, 9), bias = MakeRows(dtype, 1, n, 10);
          std::vector<double> want;
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = bias.values[static_cast<size_t>(j)];
              for (int64_t c = 0; c < k; ++c) sum += in.values[i * k + c] * weight.values[j * k + c];
              want.push_back(sum);
            }
          }
          auto packed = device_->PackWeight(*stream_, weight.on_device.view);
          ASSERT_EQ(Done(packed.status()), absl::OkStatus());
          const ConstTensorView b{dtype, bias.on_device.view.data, {n}};
          const DeviceTensor out = Empty(dtype, {m, n}), wide = Empty(DType::kF32, {m, n});
          const double sums = 1e-6 * std::sqrt(static_cast<double>(k) + 1) * 4;
          Expect(device_->Linear(*stream_, in.on_device.view, **packed, &b, out.view), out, want,
                 dtype == DType::kF32 ? sums : Rounding(dtype));
          Expect(device_->Linear(*stream_, in.on_device.view, **packed, &b, wide.view), wide, want, sums);
        }
      }
    }
  }
}

class AttentionSweep : public AttentionContract {};

TEST_P(AttentionSweep, HeadsOfEverySizeWithPagesAndWithout) {
  for (const DType dtype : kFloats) {
    for (const int64_t dim : {64, 80, 128}) {
      for (const auto& [q_heads, kv_heads] : {std::pair<int64_t, int64_t>{1, 1}, {6, 2}, {8, 8}}) {
        const Sizes s{q_heads, kv_heads, dim};
        const double scale = 1 / std::sqrt(static_cast<double>(dim));
        for (const int64_t length : kSizes) {
          SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << q_heads << "/" << kv_heads << " x " << dim
                                            << ", length " << length);
          const Text text = MakeText(dtype, s, length, static_cast<uint32_t>(100 + length));
          ExpectNear(Run(dtype, s, {{&text, 0, length, {}}}, scale, true, false),
                     Reference(s, text, 0, length, scale, true), Rounding(dtype));
          // All but the last token as a prefill, then that one, over pages in no order.
          std::vector<int32_t> pages;
          const auto count = static_cast<int32_t>((length + 15) / 16);
          for (int32_t i = 0; i < count; ++i) pages.push_back((i * 7 + 3) % 20 + 20 * (i / 20));
          MakeCache(dtype, s, 40);
          Run(dtype, s, {{&text, 0, length - 1, length > 1 ? pages : std::vector<int32_t>{}}}, scale, true, true);
          ExpectNear(Run(dtype, s, {{&text, length - 1, 1, pages}}, scale, true, true),
                     Reference(s, text, length - 1, length, scale, true), Rounding(dtype));
        }
      }
    }
  }
}

}  // namespace tp::testing
