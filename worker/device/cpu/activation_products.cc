#include "worker/device/cpu/activation_products.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/device/broadcast.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/one_dnn.h"
#include "worker/device/strided.h"

namespace tp::worker {
namespace {

using one_dnn::DataType;
using one_dnn::Dims;
using one_dnn::Guarded;
using one_dnn::TypeOf;

int64_t TypeSize(DataType type) { return type == DataType::bf16 ? 2 : 4; }

Dims DimsOf(absl::Span<const int64_t> shape) { return Dims(shape.begin(), shape.end()); }

dnnl::memory::desc RowMajor(absl::Span<const int64_t> shape, DataType type) {
  return dnnl::memory::desc(DimsOf(shape), type, DimsOf(RowMajorStrides(shape)));
}

absl::Status CheckDType(std::string_view kernel, const ConstTensorView& a, const ConstTensorView& b,
                        const TensorView& output) {
  if (output.dtype != DType::kF32 && output.dtype != DType::kBF16) return kernels::Unimplemented(kernel, output.dtype);
  if (a.dtype == output.dtype && b.dtype == output.dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(kernel), ": operands and output must have one dtype"));
}

}  // namespace

class ActivationProducts::Impl {
 public:
  Impl(std::shared_ptr<MemoryAccount> account, bool has_bf16)
      : account_(std::move(account)), has_bf16_(has_bf16), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  absl::Status MatMul(const ConstTensorView& a, const ConstTensorView& b, const TensorView& output) {
    const DataType type = ComputeType(output.dtype);
    TP_ASSIGN_OR_RETURN(const Block left, Widened(a, type));
    TP_ASSIGN_OR_RETURN(const Block right, Widened(b, type));
    TP_ASSIGN_OR_RETURN(const Block target, Target(output, type));
    const auto batch = absl::MakeConstSpan(output.shape).first(output.shape.size() - 2);
    const auto batch_of = [](const Shape& shape) { return absl::MakeConstSpan(shape).first(shape.size() - 2); };
    const int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
    const int64_t batches = ElementCount(batch);
    if (ElementCount(batch_of(b.shape)) == 1 && ElementCount(batch_of(a.shape)) == batches) {
      Multiply(1, batches * m, k, n, type, left.data, right.data, target.data);  // one product of all rows
    } else if (ElementCount(batch_of(a.shape)) == batches && ElementCount(batch_of(b.shape)) == batches) {
      Multiply(batches, m, k, n, type, left.data, right.data, target.data);
    } else {
      TP_ASSIGN_OR_RETURN(const Shape a_strides, BroadcastStrides("matmul", batch_of(a.shape), batch));
      TP_ASSIGN_OR_RETURN(const Shape b_strides, BroadcastStrides("matmul", batch_of(b.shape), batch));
      const auto loop = StridedLoop<2>::Create(batch, {a_strides, b_strides});
      const int64_t item = TypeSize(type);
      loop.ForRows(0, loop.outer(), [&](int64_t r, const std::array<int64_t, 2>& offsets) {
        for (int64_t i = 0; i < loop.inner(); ++i) {
          Multiply(1, m, k, n, type, left.data + (offsets[0] + i * loop.inner_stride(0)) * m * k * item,
                   right.data + (offsets[1] + i * loop.inner_stride(1)) * k * n * item,
                   target.data + (r * loop.inner() + i) * m * n * item);
        }
      });
    }
    Finish(target, type, output);
    return absl::OkStatus();
  }

  absl::Status Convolution(const ConvolutionArguments& arguments, int64_t groups) {
    const DataType type = ComputeType(arguments.output.dtype);
    Shape weight_shape = arguments.weight.shape;
    if (groups > 1) {
      weight_shape[0] /= groups;
      weight_shape.insert(weight_shape.begin(), groups);
    }
    Dims dilation = DimsOf(arguments.dilation);
    for (auto& d : dilation) --d;  // oneDNN counts the gaps
    const auto any = [type](const Shape& shape) {
      return dnnl::memory::desc(DimsOf(shape), type, dnnl::memory::format_tag::any);
    };
    const auto forward = dnnl::prop_kind::forward_inference;
    const auto direct = dnnl::algorithm::convolution_direct;
    const Dims stride = DimsOf(arguments.stride), padding = DimsOf(arguments.padding);
    const auto operation =
        arguments.bias == nullptr
            ? dnnl::convolution_forward::desc(forward, direct, any(arguments.input.shape), any(weight_shape),
                                              any(arguments.output.shape), stride, dilation, padding, padding)
            : dnnl::convolution_forward::desc(forward, direct, any(arguments.input.shape), any(weight_shape),
                                              any(arguments.bias->shape), any(arguments.output.shape), stride, dilation,
                                              padding, padding);
    const dnnl::convolution_forward::primitive_desc chosen(operation, engine_);
    TP_ASSIGN_OR_RETURN(const Block input, Widened(arguments.input, type));
    TP_ASSIGN_OR_RETURN(const Block weight, Widened(arguments.weight, type));
    TP_ASSIGN_OR_RETURN(const Block target, Target(arguments.output, type));
    TP_ASSIGN_OR_RETURN(const Block source,
                        Reordered(RowMajor(arguments.input.shape, type), input.data, chosen.src_desc()));
    TP_ASSIGN_OR_RETURN(const Block kernel,
                        Reordered(RowMajor(weight_shape, type), weight.data, chosen.weights_desc()));
    std::unordered_map<int, dnnl::memory> memory = {
        {DNNL_ARG_SRC, dnnl::memory(chosen.src_desc(), engine_, source.data)},
        {DNNL_ARG_WEIGHTS, dnnl::memory(chosen.weights_desc(), engine_, kernel.data)}};
    Block bias;
    if (arguments.bias != nullptr) {
      TP_ASSIGN_OR_RETURN(bias, Widened(*arguments.bias, type));
      memory.emplace(DNNL_ARG_BIAS, dnnl::memory(chosen.bias_desc(), engine_, bias.data));
    }
    const auto plain = RowMajor(arguments.output.shape, type);
    Block result;
    result.data = target.data;
    if (chosen.dst_desc() != plain) {
      TP_ASSIGN_OR_RETURN(result, Scratch(static_cast<int64_t>(chosen.dst_desc().get_size())));
    }
    memory.emplace(DNNL_ARG_DST, dnnl::memory(chosen.dst_desc(), engine_, result.data));
    dnnl::convolution_forward(chosen).execute(stream_, memory);
    stream_.wait();
    if (chosen.dst_desc() != plain) Reorder(chosen.dst_desc(), result.data, plain, target.data);
    Finish(target, type, arguments.output);
    return absl::OkStatus();
  }

 private:
  // Memory to compute on: scratch that it owns, or a view's own.
  struct Block {
    std::unique_ptr<DeviceBuffer> owned;
    char* data = nullptr;
  };

  DataType ComputeType(DType dtype) const {
    return dtype == DType::kBF16 && has_bf16_ ? DataType::bf16 : DataType::f32;
  }
  absl::StatusOr<Block> Scratch(int64_t bytes) {
    Block block;
    TP_ASSIGN_OR_RETURN(block.owned, AllocateCpuBuffer(account_, bytes));
    block.data = static_cast<char*>(block.owned->data());
    return block;
  }
  absl::StatusOr<Block> Widened(const ConstTensorView& view, DataType type) {
    Block block;
    block.data = const_cast<char*>(static_cast<const char*>(view.data));
    if (TypeOf(view.dtype) == type) return block;
    const int64_t count = ElementCount(view.shape);
    TP_ASSIGN_OR_RETURN(block, Scratch(count * 4));
    kernels::WidenBF16(static_cast<const uint16_t*>(view.data), reinterpret_cast<float*>(block.data), count);
    return block;
  }
  absl::StatusOr<Block> Target(const TensorView& output, DataType type) {
    if (TypeOf(output.dtype) != type) return Scratch(ElementCount(output.shape) * 4);
    Block block;
    block.data = static_cast<char*>(output.data);
    return block;
  }
  // Rounds what was computed in F32 for a BF16 output.
  void Finish(const Block& target, DataType type, const TensorView& output) {
    if (TypeOf(output.dtype) == type) return;
    kernels::RoundToBF16(reinterpret_cast<const float*>(target.data), static_cast<uint16_t*>(output.data),
                         ElementCount(output.shape));
  }
  void Reorder(const dnnl::memory::desc& from, void* source, const dnnl::memory::desc& to, void* target) {
    dnnl::memory a(from, engine_, source);
    dnnl::memory b(to, engine_, target);
    dnnl::reorder(a, b).execute(stream_, a, b);
    stream_.wait();
  }
  absl::StatusOr<Block> Reordered(const dnnl::memory::desc& plain, char* data, const dnnl::memory::desc& wanted) {
    Block block;
    block.data = data;
    if (wanted == plain) return block;
    const auto bytes = static_cast<int64_t>(wanted.get_size());
    TP_ASSIGN_OR_RETURN(block, Scratch(bytes));
    std::memset(block.data, 0, static_cast<size_t>(bytes));  // padding of the layout
    Reorder(plain, data, wanted, block.data);
    return block;
  }
  void Multiply(int64_t batch, int64_t m, int64_t k, int64_t n, DataType type, char* a, char* b, char* to) {
    const auto desc = [&](int64_t rows, int64_t columns) {
      return batch == 1 ? RowMajor({rows, columns}, type) : RowMajor({batch, rows, columns}, type);
    };
    const auto source = desc(m, k), weight = desc(k, n), target = desc(m, n);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(source, weight, target), engine_);
    dnnl::matmul(chosen).execute(stream_, {{DNNL_ARG_SRC, dnnl::memory(source, engine_, a)},
                                           {DNNL_ARG_WEIGHTS, dnnl::memory(weight, engine_, b)},
                                           {DNNL_ARG_DST, dnnl::memory(target, engine_, to)}});
    stream_.wait();
  }

  const std::shared_ptr<MemoryAccount> account_;
  const bool has_bf16_;
  dnnl::engine engine_;
  dnnl::stream stream_;
};

absl::StatusOr<std::unique_ptr<ActivationProducts>> ActivationProducts::Create(std::shared_ptr<MemoryAccount> account,
                                                                               bool has_bf16) {
  std::unique_ptr<Impl> impl;
  TP_RETURN_IF_ERROR(Guarded("starting", [&] {
    impl = std::make_unique<Impl>(std::move(account), has_bf16);
    return absl::OkStatus();
  }));
  return std::unique_ptr<ActivationProducts>(new ActivationProducts(std::move(impl)));
}
ActivationProducts::ActivationProducts(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ActivationProducts::~ActivationProducts() = default;

absl::Status ActivationProducts::MatMul(const ConstTensorView& a, const ConstTensorView& b, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckDType("matmul", a, b, output));
  const size_t rank = output.shape.size();
  bool fits = a.shape.size() >= 2 && b.shape.size() >= 2 && rank >= 2;
  if (fits) {
    const int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
    fits = b.shape[b.shape.size() - 2] == k && output.shape[rank - 2] == m && output.shape[rank - 1] == n;
    const auto batch = absl::MakeConstSpan(output.shape).first(rank - 2);
    for (const Shape* shape : {&a.shape, &b.shape}) {
      fits = fits && BroadcastStrides("matmul", absl::MakeConstSpan(*shape).first(shape->size() - 2), batch).ok();
    }
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("matmul: ", ShapeText(a.shape), " x ", ShapeText(b.shape), " to ", ShapeText(output.shape)));
  }
  const int64_t count = ElementCount(output.shape);
  if (count == 0) return absl::OkStatus();
  if (a.shape.back() == 0) {  // oneDNN divides by it
    std::memset(output.data, 0, static_cast<size_t>(count * ItemSize(output.dtype)));
    return absl::OkStatus();
  }
  return Guarded("a product", [&] { return impl_->MatMul(a, b, output); });
}

absl::Status ActivationProducts::Convolution(const ConvolutionArguments& arguments) {
  const Shape& input = arguments.input.shape;
  const Shape& weight = arguments.weight.shape;
  const Shape& output = arguments.output.shape;
  TP_RETURN_IF_ERROR(CheckDType("convolution", arguments.input, arguments.weight, arguments.output));
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
    fits = arguments.bias->dtype == arguments.output.dtype && arguments.bias->shape == Shape{output[1]};
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("convolution: ", ShapeText(input), " by ", ShapeText(weight), " to ",
                                                   ShapeText(output), " (stride ", ShapeText(arguments.stride),
                                                   ", padding ", ShapeText(arguments.padding), ", dilation ",
                                                   ShapeText(arguments.dilation), ")"));
  }
  if (ElementCount(output) == 0) return absl::OkStatus();
  if (ElementCount(input) == 0 || ElementCount(weight) == 0) {  // nothing to sum: the bias, or zeros
    const int64_t item = ItemSize(arguments.output.dtype);
    std::memset(arguments.output.data, 0, static_cast<size_t>(ElementCount(output) * item));
    if (arguments.bias == nullptr) return absl::OkStatus();
    Shape column(output.size(), 1);
    column[1] = output[1];
    return kernels::Binary(1, BinaryOp::kAdd, arguments.output,
                           ConstTensorView(arguments.bias->dtype, arguments.bias->data, column), arguments.output);
  }
  return Guarded("a convolution", [&] { return impl_->Convolution(arguments, groups); });
}

}  // namespace tp::worker
