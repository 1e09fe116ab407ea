// Products with weights packed once, by oneDNN. Example:
//   auto products = *Products::Create(2, account);  auto packed = *products->Pack(weight);
//   products->Linear(input, *packed, &bias, output);
#pragma once

#include <memory>

#include "worker/device/cpu/buffer.h"
#include "worker/device/device.h"

namespace tp::worker {

// Rows are multiplied in pieces of at most 512, each padded to a bucket (1, 2, 4, 8, then multiples of 16), so that
// there are few oneDNN primitives, made at their first use and kept. Owned by the device's thread.
class Products {
 public:
  // Scratch and packed weights count against `account`. INTERNAL where oneDNN does not start.
  static absl::StatusOr<std::unique_ptr<Products>> Create(int threads, std::shared_ptr<MemoryAccount> account);
  ~Products();

  // Whether BF16 products run in BF16 (the processor has AVX-512); else weights are widened to F32 when packed.
  bool HasBF16() const;
  // As Device::PackWeight, UnpackWeight and Linear. A product's input must have the weight's dtype (INVALID_ARGUMENT).
  // INTERNAL for an error of oneDNN.
  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const ConstTensorView& weight);
  absl::Status Unpack(const PackedWeight& weight, const TensorView& plain);
  absl::Status Linear(const ConstTensorView& input, const PackedWeight& weight, const ConstTensorView* bias,
                      const TensorView& output);

 private:
  class Impl;
  explicit Products(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The bucket of `rows` in 1..512: the smallest of 1, 2, 4, 8 and the multiples of 16 that holds them.
int64_t RowBucket(int64_t rows);

}  // namespace tp::worker
