// Products by cuBLASLt, column-major as it sees them, with the algorithm for each shape chosen once. Example:
//   plans->Run(stream, {.rows = n, .columns = m, .inner = k, .transpose_a = true}, weight, input, bias, output);
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"

namespace tp::worker::cuda {

// What follows a product (and its bias) in the same kernel; kGelu is the tanh approximation.
enum class Activation { kNone, kRelu, kGelu };

// D [rows, columns] = activation(op(A) x B [inner, columns] + bias [rows]), all dense and column-major; A is [inner,
// rows] where it is transposed, else [rows, inner]. Strides between the matrices of a batch are in elements; A's and
// B's may be 0. No size is 0. A and B: F32, BF16 or F16, one for both; D: theirs or F32; bias: D's.
struct LtProduct {
  int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false;
  DType dtype = DType::kF32;
  DType output_dtype = DType::kF32;
  Activation activation = Activation::kNone;
  int64_t batch = 1, a_stride = 0, b_stride = 0, d_stride = 0;
};

// Owned by the device's thread. Sums are in F32 (in TF32 products of F32 where `tf32`).
class LtPlans {
 public:
  // Returns when the event is done; how the thread may wait.
  using Wait = std::function<absl::Status(cudaEvent_t)>;

  // `workspace` outlives it; `wait` nullptr: nothing is timed. INTERNAL where cuBLASLt does not start.
  static absl::StatusOr<std::unique_ptr<LtPlans>> Create(bool tf32, void* workspace, int64_t workspace_bytes,
                                                         Wait wait);
  ~LtPlans();
  LtPlans(const LtPlans&) = delete;
  LtPlans& operator=(const LtPlans&) = delete;

  // At the first use of a shape the candidate that the library ranks first is kept for good: the same on equal GPUs, so
  // that products which all ranks compute alike have the same bits. With `wait` its candidates are timed on the stream,
  // which is waited for, and the fastest is kept (not while the stream records a graph). `bias` may be nullptr.
  // UNIMPLEMENTED where the library has no such product.
  absl::Status Run(cudaStream_t stream, const LtProduct& product, const void* a, const void* b, const void* bias,
                   void* d);

 private:
  struct Plan;
  struct Timing;
  using Key = std::tuple<int64_t, int64_t, int64_t, int, int64_t, int64_t, int64_t, int64_t, int>;

  LtPlans(cublasLtHandle_t handle, bool tf32, void* workspace, int64_t workspace_bytes, Wait wait);
  absl::StatusOr<std::unique_ptr<Plan>> Make(const LtProduct& product, bool bias) const;
  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Candidates(const Plan& plan, const uint32_t (&align)[3],
                                                                          int most) const;
  absl::Status Launch(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const void* a,
                      const void* b, void* d) const;
  // Index of the fastest of the candidates.
  absl::StatusOr<size_t> Fastest(cudaStream_t stream, const Plan& plan,
                                 const std::vector<cublasLtMatmulHeuristicResult_t>& candidates, const void* a,
                                 const void* b, void* d) const;

  const cublasLtHandle_t handle_;
  const bool tf32_;
  void* const workspace_;
  const int64_t workspace_bytes_;
  const Wait wait_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace tp::worker::cuda
