#include "worker/device/cpu/cpu_device.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/tensor/host_tensor.h"
#include "worker/device/cpu/activation_products.h"
#include "worker/device/cpu/buffer.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/cpu/product.h"

namespace tp::worker {
namespace {

class CpuStream : public Stream {};

absl::Status Move(const void* from, void* to, int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

// Streams are inline: a call has done its work, or says why not, when it returns. Owned by one thread.
class CpuDevice : public Device {
 public:
  CpuDevice(int threads, std::shared_ptr<MemoryAccount> account, std::unique_ptr<Products> products,
            std::unique_ptr<ActivationProducts> activation_products)
      : threads_(threads),
        account_(std::move(account)),
        products_(std::move(products)),
        activation_products_(std::move(activation_products)) {}

  std::string Describe() const override {
    return absl::StrCat("cpu (", kernels::TargetName(), ", ", threads_, threads_ == 1 ? " thread)" : " threads)");
  }
  bool HasProduct(DType dtype) const override {
    return dtype == DType::kF32 || (dtype == DType::kBF16 && products_->HasBF16());
  }
  std::unique_ptr<Stream> CreateStream() override { return std::make_unique<CpuStream>(); }
  // Every failure was returned by the call itself.
  absl::Status Synchronize(Stream&) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    return AllocateCpuBuffer(account_, bytes);
  }

  absl::Status CopyToDevice(Stream&, const void* host, void* device, int64_t bytes) override {
    return Move(host, device, bytes);
  }
  absl::Status CopyToHost(Stream&, const void* device, void* host, int64_t bytes) override {
    return Move(device, host, bytes);
  }
  absl::Status CopyOnDevice(Stream&, const void* from, void* to, int64_t bytes) override {
    return Move(from, to, bytes);
  }
  absl::Status FillZero(Stream&, void* device, int64_t bytes) override {
    if (bytes > 0) std::memset(device, 0, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status CopyBox(Stream&, const ConstTensorView& from, absl::Span<const int64_t> from_offset,
                       const TensorView& to, absl::Span<const int64_t> to_offset,
                       absl::Span<const int64_t> sizes) override {
    if (from.dtype != to.dtype) return absl::InvalidArgumentError("copy_box: two dtypes");
    tp::CopyBox(from.data, from.shape, from_offset, to.data, to.shape, to_offset, sizes, ItemSize(from.dtype));
    return absl::OkStatus();
  }
  absl::Status CopyStrided(Stream&, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                           const TensorView& to, absl::Span<const int64_t> to_strides,
                           absl::Span<const int64_t> sizes) override {
    return kernels::CopyStrided(threads_, from, from_strides, to, to_strides, sizes);
  }
  absl::Status Arange(Stream&, int64_t start, int64_t step, const TensorView& output) override {
    return kernels::Arange(start, step, output);
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(Stream&, const ConstTensorView& weight) override {
    SetThreads(threads_);
    return products_->Pack(weight);
  }
  absl::Status UnpackWeight(Stream&, const PackedWeight& weight, const TensorView& plain) override {
    SetThreads(threads_);
    return products_->Unpack(weight, plain);
  }
  absl::Status Linear(Stream&, const ConstTensorView& input, const PackedWeight& weight, const ConstTensorView* bias,
                      const TensorView& output) override {
    SetThreads(threads_);
    return products_->Linear(input, weight, bias, output);
  }
  absl::Status MatMul(Stream&, const ConstTensorView& a, const ConstTensorView& b, const TensorView& output) override {
    SetThreads(threads_);
    return activation_products_->MatMul(a, b, output);
  }
  absl::Status Convolution(Stream&, const ConvolutionArguments& arguments) override {
    SetThreads(threads_);
    return activation_products_->Convolution(arguments);
  }

  absl::Status Embedding(Stream&, const ConstTensorView& ids, const ConstTensorView& table, int64_t row_begin,
                         int64_t vocabulary, const TensorView& output) override {
    return kernels::Embedding(threads_, ids, table, row_begin, vocabulary, output);
  }
  absl::Status RmsNorm(Stream&, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                       const TensorView& output) override {
    return kernels::RmsNorm(threads_, input, weight, eps, output);
  }
  absl::Status LayerNorm(Stream&, const ConstTensorView& input, const ConstTensorView* weight,
                         const ConstTensorView* bias, int dims, double eps, const TensorView& output) override {
    return kernels::LayerNorm(threads_, input, weight, bias, dims, eps, output);
  }
  absl::Status Rotary(Stream&, const ConstTensorView& input, const ConstTensorView& positions, double theta,
                      const TensorView& output) override {
    return kernels::Rotary(threads_, rotary_, input, positions, theta, output);
  }
  absl::Status Attention(Stream&, const AttentionArguments& arguments) override {
    return kernels::Attention(threads_, arguments);
  }

  absl::Status Unary(Stream&, UnaryOp op, const ConstTensorView& input, const TensorView& output) override {
    return kernels::Unary(threads_, op, input, output);
  }
  absl::Status Binary(Stream&, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                      const TensorView& output) override {
    return kernels::Binary(threads_, op, a, b, output);
  }
  absl::Status BinaryScalar(Stream&, BinaryOp op, const ConstTensorView& a, double b,
                            const TensorView& output) override {
    return kernels::BinaryScalar(threads_, op, a, b, output);
  }
  absl::Status Where(Stream&, const ConstTensorView& condition, const ConstTensorView& a, const ConstTensorView& b,
                     const TensorView& output) override {
    return kernels::Where(threads_, condition, a, b, output);
  }
  absl::Status MaskedFill(Stream&, const ConstTensorView& input, const ConstTensorView& mask, double value,
                          const TensorView& output) override {
    return kernels::MaskedFill(threads_, input, mask, value, output);
  }
  absl::Status Scale(Stream&, const ConstTensorView& input, double factor, const TensorView& output) override {
    return kernels::Scale(threads_, input, factor, output);
  }
  absl::Status Cast(Stream&, const ConstTensorView& input, const TensorView& output) override {
    return kernels::Cast(threads_, input, output);
  }
  absl::Status Softmax(Stream&, const ConstTensorView& input, int dim, const TensorView& output) override {
    return kernels::Softmax(threads_, input, dim, /*log=*/false, output);
  }
  absl::Status LogSoftmax(Stream&, const ConstTensorView& input, int dim, const TensorView& output) override {
    return kernels::Softmax(threads_, input, dim, /*log=*/true, output);
  }
  absl::Status Reduce(Stream&, Reduction op, const ConstTensorView& input, absl::Span<const int> dims, double divisor,
                      const TensorView& output) override {
    return kernels::Reduce(threads_, op, input, dims, divisor, output);
  }
  absl::Status ArgExtreme(Stream&, Extreme which, const ConstTensorView& input, int dim, const TensorView* values,
                          const TensorView& indices) override {
    return kernels::ArgExtreme(threads_, which, input, dim, values, indices);
  }
  absl::Status TopK(Stream&, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                    const TensorView& indices) override {
    return kernels::TopK(threads_, input, k, dim, values, indices);
  }
  absl::Status Gather(Stream&, const ConstTensorView& input, const ConstTensorView& index, int dim, int64_t begin,
                      int64_t limit, std::optional<int64_t> ignored, const TensorView& output) override {
    return kernels::Gather(threads_, input, index, dim, begin, limit, ignored, output);
  }
  absl::Status Transpose(Stream&, const ConstTensorView& input, absl::Span<const int> permutation,
                         const TensorView& output) override {
    return kernels::Transpose(threads_, input, permutation, output);
  }
  absl::Status SelectRows(Stream&, const ConstTensorView& input, const ConstTensorView& rows,
                          const TensorView& output) override {
    return kernels::SelectRows(threads_, input, rows, output);
  }

 private:
  const int threads_;
  const std::shared_ptr<MemoryAccount> account_;
  const std::unique_ptr<Products> products_;
  const std::unique_ptr<ActivationProducts> activation_products_;
  kernels::RotaryTable rotary_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("threads: ", options.threads, ", at least 1 is needed"));
  }
  if (options.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("memory_limit_bytes: ", options.memory_limit_bytes));
  }
  auto account = std::make_shared<MemoryAccount>(options.memory_limit_bytes);
  TP_ASSIGN_OR_RETURN(auto products, Products::Create(options.threads, account));
  TP_ASSIGN_OR_RETURN(auto activation_products, ActivationProducts::Create(account, products->HasBF16()));
  return std::make_unique<CpuDevice>(options.threads, std::move(account), std::move(products),
                                     std::move(activation_products));
}

}  // namespace tp::worker
