#include <algorithm>

#include "worker/device/cuda/checks.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

// One output element: the window's products in order (channels of the group, then the window), in F32. One spatial dim
// is two with a height of 1.
template <class T>
struct ConvolutionElement {
  const T* input;
  const T* weight;
  const T* bias;  // or nullptr
  T* output;
  int64_t channels, height, width;         // of the input
  int64_t outputs, out_height, out_width;  // of the output
  int64_t group_channels, group_outputs;   // of one group
  int64_t kernel_height, kernel_width;
  int64_t stride[2], padding[2], dilation[2];
  TP_HD void operator()(int64_t index) const {
    const int64_t column = index % out_width;
    const int64_t row = index / out_width % out_height;
    const int64_t to = index / (out_width * out_height) % outputs;
    const int64_t batch = index / (out_width * out_height * outputs);
    const int64_t first = group_channels == 0 ? 0 : to / group_outputs * group_channels;
    float sum = 0;
    for (int64_t c = 0; c < group_channels; ++c) {
      const T* plane = input + (batch * channels + first + c) * height * width;
      const T* taps = weight + (to * group_channels + c) * kernel_height * kernel_width;
      for (int64_t y = 0; y < kernel_height; ++y) {
        const int64_t from_row = row * stride[0] - padding[0] + y * dilation[0];
        if (from_row < 0 || from_row >= height) continue;
        for (int64_t x = 0; x < kernel_width; ++x) {
          const int64_t from_column = column * stride[1] - padding[1] + x * dilation[1];
          if (from_column < 0 || from_column >= width) continue;
          sum += Widen(plane[from_row * width + from_column]) * Widen(taps[y * kernel_width + x]);
        }
      }
    }
    if (bias != nullptr) sum += Widen(bias[to]);
    output[index] = Narrow<T>(sum);
  }
};

}  // namespace

absl::Status Convolution(cudaStream_t stream, const ConvolutionArguments& arguments) {
  const Shape& input = arguments.input.shape;
  const Shape& weight = arguments.weight.shape;
  const Shape& output = arguments.output.shape;
  const DType dtype = arguments.output.dtype;
  if (!IsKernelFloat(dtype)) return Unimplemented("convolution", dtype);
  if (arguments.input.dtype != dtype || arguments.weight.dtype != dtype) {
    return absl::InvalidArgumentError("convolution: operands and output must have one dtype");
  }
  const size_t spatial = arguments.stride.size();
  bool fits = (spatial == 1 || spatial == 2) && arguments.padding.size() == spatial &&
              arguments.dilation.size() == spatial && input.size() == spatial + 2 && weight.size() == spatial + 2 &&
              output.size() == spatial + 2;
  if (fits) fits = output[0] == input[0] && output[1] == weight[0];
  for (size_t d = 0; fits && d < spatial; ++d) {
    const int64_t reach = arguments.dilation[d] * (weight[2 + d] - 1) + 1;
    const int64_t room = input[2 + d] + 2 * arguments.padding[d] - reach;
    fits = arguments.stride[d] > 0 && arguments.dilation[d] > 0 && arguments.padding[d] >= 0 && weight[2 + d] > 0 &&
           room >= 0 && output[2 + d] == room / arguments.stride[d] + 1;
  }
  int64_t groups = 1;
  if (fits && weight[1] > 0) {
    groups = std::max<int64_t>(1, input[1] / weight[1]);
    fits = input[1] == groups * weight[1] && weight[0] % groups == 0;
  }
  if (fits && arguments.bias != nullptr) {
    fits = arguments.bias->dtype == dtype && arguments.bias->shape == Shape{output[1]};
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("convolution: ", ShapeText(input), " by ", ShapeText(weight), " to ",
                                                   ShapeText(output), " (stride ", ShapeText(arguments.stride),
                                                   ", padding ", ShapeText(arguments.padding), ", dilation ",
                                                   ShapeText(arguments.dilation), ")"));
  }
  const int64_t count = ElementCount(output);
  if (count == 0) return absl::OkStatus();
  // One spatial dim is the last of two.
  const auto two = [&](const Shape& sizes, size_t from, int64_t other) {
    return spatial == 2 ? std::pair(sizes[from], sizes[from + 1]) : std::pair(other, sizes[from]);
  };
  const auto in = two(input, 2, 1), out = two(output, 2, 1), kernel = two(weight, 2, 1);
  const auto stride = two(arguments.stride, 0, 1), padding = two(arguments.padding, 0, 0),
             dilation = two(arguments.dilation, 0, 1);
  return VisitFloats("convolution", dtype, [&](auto t) {
    using T = decltype(t);
    return ForEach(
        "convolution", stream, count,
        ConvolutionElement<T>{static_cast<const T*>(arguments.input.data),
                              static_cast<const T*>(arguments.weight.data),
                              arguments.bias == nullptr ? nullptr : static_cast<const T*>(arguments.bias->data),
                              static_cast<T*>(arguments.output.data),
                              input[1],
                              in.first,
                              in.second,
                              output[1],
                              out.first,
                              out.second,
                              weight[1],
                              weight[0] / groups,
                              kernel.first,
                              kernel.second,
                              {stride.first, stride.second},
                              {padding.first, padding.second},
                              {dilation.first, dilation.second}});
  });
}

}  // namespace tp::worker::cuda
