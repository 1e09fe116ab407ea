#include "worker/device/cuda/product.h"

#include <algorithm>
#include <utility>

#include "worker/device/cuda/checks.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
constexpr int64_t kLeastScratch = int64_t{1} << 16;

class CudaPackedWeight : public PackedWeight {
 public:
  CudaPackedWeight(int64_t out, int64_t in, DType dtype, std::unique_ptr<DeviceBuffer> memory)
      : out_(out), in_(in), dtype_(dtype), memory_(std::move(memory)) {}
  int64_t out_features() const override { return out_; }
  int64_t in_features() const override { return in_; }
  DType dtype() const override { return dtype_; }
  int64_t memory_bytes() const override { return memory_->size(); }
  void* data() const { return memory_->data(); }
  int64_t bytes() const { return out_ * in_ * ItemSize(dtype_); }

 private:
  const int64_t out_, in_;
  const DType dtype_;
  const std::unique_ptr<DeviceBuffer> memory_;
};

absl::Status CopyOnDevice(cudaStream_t stream, const void* from, void* to, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
                    "copying a weight");
}

// The index space of a product's leading dims, with the distance (in matrices) from one to the next in both operands.
struct BatchDim {
  int64_t size, a, b;
};

// Dims of size 1 dropped, neighbours that lie in order merged. False where an operand does not broadcast to `batch`.
bool BatchDims(absl::Span<const int64_t> a, absl::Span<const int64_t> b, absl::Span<const int64_t> batch,
               std::vector<BatchDim>* dims) {
  if (a.size() > batch.size() || b.size() > batch.size()) return false;
  dims->clear();
  int64_t a_distance = 1, b_distance = 1;
  std::vector<BatchDim> inner_first;
  for (size_t back = 1; back <= batch.size(); ++back) {
    const int64_t size = batch[batch.size() - back];
    const int64_t a_size = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t b_size = back <= b.size() ? b[b.size() - back] : 1;
    if ((a_size != size && a_size != 1) || (b_size != size && b_size != 1)) return false;
    const BatchDim dim{size, a_size == 1 ? 0 : a_distance, b_size == 1 ? 0 : b_distance};
    a_distance *= a_size;
    b_distance *= b_size;
    if (size == 1) continue;
    if (!inner_first.empty()) {
      BatchDim& last = inner_first.back();
      if (dim.a == last.a * last.size && dim.b == last.b * last.size) {
        last.size *= size;
        continue;
      }
    }
    inner_first.push_back(dim);
  }
  dims->assign(inner_first.rbegin(), inner_first.rend());
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(bool tf32, Allocate allocate, LtPlans::Wait wait) {
  auto products = std::unique_ptr<Products>(new Products(std::move(allocate)));
  TP_ASSIGN_OR_RETURN(products->workspace_, products->allocate_(kWorkspaceBytes));
  TP_ASSIGN_OR_RETURN(products->plans_,
                      LtPlans::Create(tf32, products->workspace_->data(), kWorkspaceBytes, std::move(wait)));
  return products;
}
Products::~Products() = default;

absl::StatusOr<void*> Products::Scratch(cudaStream_t stream, ScratchUse use, int64_t bytes) {
  std::unique_ptr<DeviceBuffer>& block = scratch_[use];
  if (block == nullptr || block->size() < bytes) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    TP_RETURN_IF_ERROR(CudaStatus(cudaStreamIsCapturing(stream, &capture), "a stream"));
    if (capture != cudaStreamCaptureStatusNone) {
      return absl::InternalError("more scratch memory for a product in a recorded step than before it");
    }
    int64_t size = kLeastScratch;
    while (size < bytes) size *= 2;
    TP_ASSIGN_OR_RETURN(auto larger, allocate_(size));
    if (block != nullptr) outgrown_.push_back(std::move(block));
    block = std::move(larger);
  }
  return block->data();
}

absl::StatusOr<const void*> Products::As(cudaStream_t stream, ScratchUse use, const ConstTensorView& view,
                                         DType dtype) {
  if (view.dtype == dtype) return view.data;
  TP_ASSIGN_OR_RETURN(void* copy, Scratch(stream, use, ElementCount(view.shape) * ItemSize(dtype)));
  TP_RETURN_IF_ERROR(Cast(stream, view, TensorView{dtype, copy, view.shape}));
  return static_cast<const void*>(copy);
}

absl::Status Products::FillRows(cudaStream_t stream, const ConstTensorView* bias, Activation activation,
                                const TensorView& output) {
  const int64_t bytes = ElementCount(output.shape) * ItemSize(output.dtype);
  TP_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(output.data, 0, static_cast<size_t>(bytes), stream), "filling an empty product"));
  if (bias == nullptr) return absl::OkStatus();  // every activation of 0 is 0
  const ConstTensorView flat(bias->dtype, bias->data, {ElementCount(bias->shape)});
  TP_ASSIGN_OR_RETURN(const void* row, As(stream, kBias, flat, output.dtype));
  TP_RETURN_IF_ERROR(
      Binary(stream, nullptr, BinaryOp::kAdd, output, ConstTensorView(output.dtype, row, flat.shape), output));
  if (activation == Activation::kNone) return absl::OkStatus();
  return Unary(stream, activation == Activation::kRelu ? UnaryOp::kRelu : UnaryOp::kGeluTanh, output, output);
}

absl::StatusOr<std::unique_ptr<PackedWeight>> Products::Pack(cudaStream_t stream, const ConstTensorView& weight) {
  if (!IsKernelFloat(weight.dtype)) return Unimplemented("linear's weight", weight.dtype);
  if (weight.shape.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("linear: weight ", ShapeText(weight.shape), " is not [out, in]"));
  }
  const int64_t bytes = ElementCount(weight.shape) * ItemSize(weight.dtype);
  TP_ASSIGN_OR_RETURN(auto memory, allocate_(bytes));
  TP_RETURN_IF_ERROR(CopyOnDevice(stream, weight.data, memory->data(), bytes));
  return std::make_unique<CudaPackedWeight>(weight.shape[0], weight.shape[1], weight.dtype, std::move(memory));
}

absl::Status Products::Unpack(cudaStream_t stream, const PackedWeight& weight, const TensorView& plain) {
  const auto& packed = static_cast<const CudaPackedWeight&>(weight);
  if (plain.dtype != packed.dtype() || plain.shape != Shape{packed.out_features(), packed.in_features()}) {
    return absl::InvalidArgumentError(absl::StrCat("unpack_weight: weight [", packed.out_features(), ", ",
                                                   packed.in_features(), "] to ", ShapeText(plain.shape),
                                                   " or to another dtype"));
  }
  return CopyOnDevice(stream, packed.data(), plain.data, packed.bytes());
}

absl::Status Products::Linear(cudaStream_t stream, const ConstTensorView& input, const PackedWeight& weight,
                              const ConstTensorView* bias, const TensorView& output, Activation activation) {
  const auto& packed = static_cast<const CudaPackedWeight&>(weight);
  const int64_t out = packed.out_features(), in = packed.in_features(), rows = RowCount(input.shape);
  if (!IsKernelFloat(input.dtype)) return Unimplemented("linear", input.dtype);
  if (!IsKernelFloat(output.dtype)) return Unimplemented("linear's output", output.dtype);
  if (bias != nullptr && bias->dtype != input.dtype) {
    return absl::InvalidArgumentError("linear: input and bias must have one dtype");
  }
  if (RowSize(input.shape) != in || RowSize(output.shape) != out || RowCount(output.shape) != rows ||
      (bias != nullptr && ElementCount(bias->shape) != out)) {
    return absl::InvalidArgumentError(absl::StrCat("linear: input ", ShapeText(input.shape), " by weight [", out, ", ",
                                                   in, "] to ", ShapeText(output.shape)));
  }
  if (rows == 0 || out == 0) return absl::OkStatus();
  if (in == 0) return FillRows(stream, bias, activation, TensorView{output.dtype, output.data, {rows, out}});
  // What cuBLASLt has: operands of one dtype, and their dtype or F32 as the result's and the bias's.
  const DType dtype = input.dtype == packed.dtype() ? input.dtype : DType::kF32;
  const DType result = output.dtype == dtype ? dtype : DType::kF32;
  TP_ASSIGN_OR_RETURN(const void* x, As(stream, kInput, input, dtype));
  TP_ASSIGN_OR_RETURN(const void* w,
                      As(stream, kWeight, ConstTensorView(packed.dtype(), packed.data(), {out, in}), dtype));
  const void* bias_data = nullptr;
  if (bias != nullptr) {
    TP_ASSIGN_OR_RETURN(bias_data, As(stream, kBias, *bias, result));
  }
  void* target = output.data;
  if (result != output.dtype) {
    TP_ASSIGN_OR_RETURN(target, Scratch(stream, kOutput, rows * out * ItemSize(result)));
  }
  // Row-major output [rows, out] is column-major [out, rows]: weight, seen as [in, out], transposed, by the input.
  LtProduct product;
  product.rows = out;
  product.columns = rows;
  product.inner = in;
  product.transpose_a = true;
  product.dtype = dtype;
  product.output_dtype = result;
  product.activation = activation;
  TP_RETURN_IF_ERROR(plans_->Run(stream, product, w, x, bias_data, target));
  if (result == output.dtype) return absl::OkStatus();
  return Cast(stream, ConstTensorView(result, target, output.shape), output);
}

absl::Status Products::MatMul(cudaStream_t stream, const ConstTensorView& a, const ConstTensorView& b,
                              const TensorView& output) {
  if (!IsKernelFloat(output.dtype)) return Unimplemented("matmul", output.dtype);
  if (a.dtype != output.dtype || b.dtype != output.dtype) {
    return absl::InvalidArgumentError("matmul: operands and output must have one dtype");
  }
  const size_t rank = output.shape.size();
  std::vector<BatchDim> dims;
  bool fits = a.shape.size() >= 2 && b.shape.size() >= 2 && rank >= 2;
  if (fits) {
    const auto batch_of = [](const Shape& shape) { return absl::MakeConstSpan(shape).first(shape.size() - 2); };
    fits = b.shape[b.shape.size() - 2] == a.shape.back() && output.shape[rank - 2] == a.shape[a.shape.size() - 2] &&
           output.shape[rank - 1] == b.shape.back() &&
           BatchDims(batch_of(a.shape), batch_of(b.shape), batch_of(output.shape), &dims);
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("matmul: ", ShapeText(a.shape), " x ", ShapeText(b.shape), " to ", ShapeText(output.shape)));
  }
  if (ElementCount(output.shape) == 0) return absl::OkStatus();
  int64_t m = output.shape[rank - 2];
  const int64_t k = a.shape.back(), n = b.shape.back();
  if (k == 0) return FillRows(stream, nullptr, Activation::kNone, output);
  if (!dims.empty() && dims.back().b == 0 && dims.back().a == 1) {  // one b for many a: their rows are those of one
    m *= dims.back().size;
    for (BatchDim& dim : dims) dim.a /= dims.back().size;
    dims.pop_back();
  }
  // Row-major output [m, n] is column-major [n, m]: b, seen as [n, k], by a, seen as [k, m].
  LtProduct product;
  product.rows = n;
  product.columns = m;
  product.inner = k;
  product.dtype = product.output_dtype = output.dtype;
  if (!dims.empty()) {
    product.batch = dims.back().size;
    product.a_stride = dims.back().b * n * k;
    product.b_stride = dims.back().a * m * k;
    product.d_stride = m * n;
    dims.pop_back();
  }
  const int64_t item = ItemSize(output.dtype);
  int64_t groups = 1;
  for (const BatchDim& dim : dims) groups *= dim.size;
  auto* to = static_cast<char*>(output.data);
  for (int64_t group = 0; group < groups; ++group) {
    int64_t rest = group, a_at = 0, b_at = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      a_at += rest % dims[d].size * dims[d].a;
      b_at += rest % dims[d].size * dims[d].b;
      rest /= dims[d].size;
    }
    TP_RETURN_IF_ERROR(plans_->Run(stream, product, static_cast<const char*>(b.data) + b_at * n * k * item,
                                   static_cast<const char*>(a.data) + a_at * m * k * item, nullptr, to));
    to += product.batch * m * n * item;
  }
  return absl::OkStatus();
}

}  // namespace tp::worker::cuda
