// Products of activations and convolutions.
#pragma once

#include "tests/contract/device_contract.h"

namespace tp::testing {

class ProductContract : public DeviceContract {
 protected:
  void CheckMatMul(DType dtype, const Shape& a_shape, const Shape& b_shape, const Shape& shape) {
    SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << ShapeText(a_shape) << " x " << ShapeText(b_shape));
    const auto x = Random(dtype, ElementCount(a_shape), 71), y = Random(dtype, ElementCount(b_shape), 72);
    const DeviceTensor a = Put(dtype, a_shape, x), b = Put(dtype, b_shape, y), output = Empty(dtype, shape);
    ASSERT_EQ(Done(device_->MatMul(*stream_, a.view, b.view, output.view)), absl::OkStatus());
    const int64_t k = a_shape.back();
    const auto batch_of = [](const Shape& s) { return Shape(s.begin(), s.end() - 2); };
    std::vector<double> want;
    ForIndices(shape, [&](const Shape& index, size_t) {
      const Shape batch = batch_of(index);
      const int64_t row = index[index.size() - 2], column = index.back();
      const size_t first = At(batch_of(a_shape), batch) * a_shape[a_shape.size() - 2] * k + row * k;
      const size_t second = At(batch_of(b_shape), batch) * k * b_shape.back() + column;
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += x[first + i] * y[second + i * b_shape.back()];
      want.push_back(sum);
    });
    ExpectNear(Values(output), want, dtype == DType::kBF16 ? 1.0 / 200 : 1e-6 * std::sqrt(k + 1.0) * 4);
  }

  struct Window {
    Shape stride, padding, dilation;
  };
  void CheckConvolution(DType dtype, const Shape& in, const Shape& kernel, const Window& window, bool with_bias) {
    SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << ShapeText(in) << " by " << ShapeText(kernel));
    Shape shape = {in[0], kernel[0]};
    for (size_t d = 0; d < window.stride.size(); ++d) {
      const int64_t reach = window.dilation[d] * (kernel[2 + d] - 1) + 1;
      shape.push_back((in[2 + d] + 2 * window.padding[d] - reach) / window.stride[d] + 1);
    }
    const auto x = Random(dtype, ElementCount(in), 73), w = Random(dtype, ElementCount(kernel), 74);
    const auto b = Random(dtype, kernel[0], 75);
    const DeviceTensor input = Put(dtype, in, x), weight = Put(dtype, kernel, w), bias = Put(dtype, {kernel[0]}, b);
    const DeviceTensor output = Empty(dtype, shape);
    const ConstTensorView bias_view = bias.view;
    ASSERT_EQ(Done(device_->Convolution(*stream_, {input.view, weight.view, with_bias ? &bias_view : nullptr,
                                                   output.view, window.stride, window.padding, window.dilation})),
              absl::OkStatus());
    const int64_t groups = kernel[1] == 0 ? 1 : in[1] / kernel[1];
    std::vector<double> want;
    ForIndices(shape, [&](const Shape& index, size_t) {
      double sum = with_bias ? b[index[1]] : 0;
      const Shape taps(kernel.begin() + 1, kernel.end());  // channel of the group, then the window
      ForIndices(taps, [&](const Shape& tap, size_t position) {
        Shape from = {index[0], index[1] / (kernel[0] / groups) * kernel[1] + tap[0]};
        bool inside = true;
        for (size_t d = 0; d < window.stride.size(); ++d) {
          from.push_back(index[2 + d] * window.stride[d] - window.padding[d] + tap[1 + d] * window.dilation[d]);
          inside = inside && from.back() >= 0 && from.back() < in[2 + d];
        }
        if (!inside) return;
        int64_t at = 0;
        for (size_t d = 0; d < in.size(); ++d) at = at * in[d] + from[d];
        sum += x[at] * w[index[1] * ElementCount(taps) + static_cast<int64_t>(position)];
      });
      want.push_back(sum);
    });
    ExpectNear(Values(output), want, dtype == DType::kBF16 ? 1.0 / 100 : 2e-5);
  }
};

TEST_P(ProductContract, MatMulOfMatrices) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t m : {0, 1, 3, 17}) {
      for (const int64_t k : {0, 1, 16, 65}) {
        for (const int64_t n : {0, 1, 7, 33}) CheckMatMul(dtype, {m, k}, {k, n}, {m, n});
      }
    }
  }
}

TEST_P(ProductContract, MatMulBroadcastsTheLeadingDims) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CheckMatMul(dtype, {5, 3, 4}, {5, 4, 2}, {5, 3, 2});
    CheckMatMul(dtype, {2, 5, 3, 4}, {2, 5, 4, 7}, {2, 5, 3, 7});
    CheckMatMul(dtype, {5, 3, 4}, {4, 2}, {5, 3, 2});
    CheckMatMul(dtype, {3, 4}, {5, 4, 2}, {5, 3, 2});
    CheckMatMul(dtype, {2, 1, 3, 4}, {5, 4, 2}, {2, 5, 3, 2});
    CheckMatMul(dtype, {2, 1, 3, 4}, {1, 5, 4, 2}, {2, 5, 3, 2});
    CheckMatMul(dtype, {1, 3, 4}, {1, 4, 2}, {1, 3, 2});
    CheckMatMul(dtype, {0, 3, 4}, {0, 4, 2}, {0, 3, 2});
    CheckMatMul(dtype, {2, 3, 0}, {2, 0, 2}, {2, 3, 2});
  }
}

TEST_P(ProductContract, MatMulRefusesOtherTypesAndShapes) {
  const DeviceTensor a = PutIds({1, 1}, {1});
  EXPECT_EQ(Done(device_->MatMul(*stream_, a.view, a.view, a.view)).code(), absl::StatusCode::kUnimplemented);
  const DeviceTensor b = Put(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Done(device_->MatMul(*stream_, b.view, b.view, b.view)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(ProductContract, ConvolutionOverOneDim) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CheckConvolution(dtype, {2, 3, 11}, {5, 3, 3}, {{1}, {1}, {1}}, true);
    CheckConvolution(dtype, {1, 4, 17}, {4, 1, 3}, {{2}, {2}, {2}}, false);  // each channel on its own
    CheckConvolution(dtype, {3, 6, 8}, {4, 3, 1}, {{3}, {0}, {1}}, true);    // two groups
    CheckConvolution(dtype, {0, 3, 11}, {5, 3, 3}, {{1}, {1}, {1}}, true);
    CheckConvolution(dtype, {2, 3, 11}, {0, 3, 3}, {{1}, {1}, {1}}, true);
    CheckConvolution(dtype, {2, 0, 11}, {5, 0, 3}, {{1}, {1}, {1}}, true);  // no channels: the bias
    CheckConvolution(dtype, {2, 0, 11}, {5, 0, 3}, {{1}, {1}, {1}}, false);
  }
}

TEST_P(ProductContract, ConvolutionOverTwoDims) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CheckConvolution(dtype, {2, 3, 7, 9}, {4, 3, 3, 2}, {{1, 1}, {0, 0}, {1, 1}}, true);
    CheckConvolution(dtype, {1, 3, 8, 8}, {16, 3, 4, 4}, {{4, 4}, {0, 0}, {1, 1}}, true);  // patches
    CheckConvolution(dtype, {2, 4, 7, 9}, {6, 2, 3, 3}, {{2, 1}, {1, 2}, {1, 2}}, true);
    CheckConvolution(dtype, {1, 16, 5, 5}, {16, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}}, false);
    CheckConvolution(dtype, {1, 32, 6, 5}, {32, 32, 1, 1}, {{1, 1}, {0, 0}, {1, 1}}, true);
  }
}

TEST_P(ProductContract, ConvolutionRefusesOtherTypesAndShapes) {
  const DeviceTensor ids = PutIds({1, 1, 1}, {1});
  EXPECT_EQ(Done(device_->Convolution(*stream_, {ids.view, ids.view, nullptr, ids.view, {1}, {0}, {1}})).code(),
            absl::StatusCode::kUnimplemented);
  const DeviceTensor input = Put(DType::kF32, {1, 2, 2}, {1, 2, 3, 4}),
                     weight = Put(DType::kF32, {1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const DeviceTensor output = Empty(DType::kF32, {1, 1, 1});  // the window is larger than the input
  EXPECT_EQ(Done(device_->Convolution(*stream_, {input.view, weight.view, nullptr, output.view, {1}, {0}, {1}})).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace tp::testing
