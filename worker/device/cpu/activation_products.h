// Products of activations and convolutions, by oneDNN: what has no weight packed in advance. Example:
//   auto products = *ActivationProducts::Create(account, /*has_bf16=*/false);  products->MatMul(a, b, output);
#pragma once

#include <memory>

#include "worker/device/cpu/buffer.h"
#include "worker/device/device.h"

namespace tp::worker {

// Without bf16 products BF16 operands are widened to F32 in scratch. Shapes differ from call to call, so that oneDNN's
// own cache of primitives is the only one. Owned by the device's thread.
class ActivationProducts {
 public:
  // Scratch counts against `account`. INTERNAL where oneDNN does not start.
  static absl::StatusOr<std::unique_ptr<ActivationProducts>> Create(std::shared_ptr<MemoryAccount> account,
                                                                    bool has_bf16);
  ~ActivationProducts();

  // As Device::MatMul and Convolution. UNIMPLEMENTED for dtypes but F32 and BF16; INVALID_ARGUMENT for shapes that do
  // not fit; INTERNAL for an error of oneDNN.
  absl::Status MatMul(const ConstTensorView& a, const ConstTensorView& b, const TensorView& output);
  absl::Status Convolution(const ConvolutionArguments& arguments);

 private:
  class Impl;
  explicit ActivationProducts(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tp::worker
