// Products by cuBLASLt on device memory. Example:
//   auto products = *Products::Create(/*tf32=*/false, [memory](int64_t bytes) { return memory->Allocate(bytes); });
//   auto packed = *products->Pack(stream, weight);  products->Linear(stream, input, *packed, &bias, output);
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/device/cuda/lt_plans.h"
#include "worker/device/device.h"

namespace tp::worker::cuda {

// One a device, owned by its thread; its workspace and scratch are shared by all products, so those of different
// streams must not run at once. Work is put on the stream and the call returns, but for the first use of a shape where
// the library's algorithms are timed (LtPlans). F32, BF16 and F16, sums in F32. Memory that a recorded graph may use
// stays until the end.
class Products {
 public:
  using Allocate = std::function<absl::StatusOr<std::unique_ptr<DeviceBuffer>>(int64_t bytes)>;

  // F32 products are in TF32 where `tf32`. Takes 32 MiB for the library. `wait`: algorithms are timed, and this is how
  // the thread waits for an event.
  static absl::StatusOr<std::unique_ptr<Products>> Create(bool tf32, Allocate allocate, LtPlans::Wait wait = nullptr);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // As Device::PackWeight and UnpackWeight: the weight stays [out, in], in its own dtype.
  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(cudaStream_t stream, const ConstTensorView& weight);
  absl::Status Unpack(cudaStream_t stream, const PackedWeight& weight, const TensorView& plain);
  // As Device::Linear, followed by the activation before the one rounding. Input and weight of two dtypes are
  // multiplied in F32.
  absl::Status Linear(cudaStream_t stream, const ConstTensorView& input, const PackedWeight& weight,
                      const ConstTensorView* bias, const TensorView& output, Activation activation = Activation::kNone);
  // As Device::MatMul.
  absl::Status MatMul(cudaStream_t stream, const ConstTensorView& a, const ConstTensorView& b,
                      const TensorView& output);

 private:
  enum ScratchUse { kInput, kWeight, kOutput, kBias, kScratchUses };

  explicit Products(Allocate allocate) : allocate_(std::move(allocate)) {}
  absl::StatusOr<void*> Scratch(cudaStream_t stream, ScratchUse use, int64_t bytes);
  // The view itself, or a copy of it as `dtype` in scratch memory.
  absl::StatusOr<const void*> As(cudaStream_t stream, ScratchUse use, const ConstTensorView& view, DType dtype);
  // What a product over nothing gives: activation(bias), or zeros.
  absl::Status FillRows(cudaStream_t stream, const ConstTensorView* bias, Activation activation,
                        const TensorView& output);

  const Allocate allocate_;
  std::unique_ptr<DeviceBuffer> workspace_;
  std::unique_ptr<LtPlans> plans_;
  std::unique_ptr<DeviceBuffer> scratch_[kScratchUses];
  std::vector<std::unique_ptr<DeviceBuffer>> outgrown_;
};

}  // namespace tp::worker::cuda
