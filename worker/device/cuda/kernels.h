// The CUDA kernels apart from products, by family, one file each. All put work on a stream and return at once; none
// allocates. F32, BF16 and F16 (computed in F32, rounded to nearest even) unless a comment says more; other dtypes are
// UNIMPLEMENTED with kernel and dtype. Shapes that do not fit each other are INVALID_ARGUMENT. The contract of each is
// that of Device's function; what depends on data (ids outside a vocabulary, an integer divided by 0) is noted in
// `fault`, which Device::Synchronize reads.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string_view>

#include "worker/device/device.h"

namespace tp::worker::cuda {

// In pinned host memory that the device sees; the first fault since it was cleared stays. Sequences of kernels on one
// stream write it one after the other.
struct KernelFault {
  enum Kind : int32_t { kNone = 0, kIdOutside, kIndexOutside, kRowOutside, kDivisionByZero };
  int32_t kind = kNone;
  int32_t reserved = 0;
  int64_t value = 0, position = 0, limit = 0;
};

// The sequences of a step in device memory, as attention reads them. `table` [sequences][4]: first token, count, past,
// first entry in `pages`; `rows` [tokens]: the sequence of each token.
struct DeviceSequences {
  int64_t sequence_count = 0, token_count = 0, longest = 0;  // longest: past + count
  const int64_t* table = nullptr;
  const int32_t* rows = nullptr;
  const int32_t* pages = nullptr;
};

// kernels_elementwise.cc
absl::Status Unary(cudaStream_t stream, UnaryOp op, const ConstTensorView& input, const TensorView& output);
absl::Status Scale(cudaStream_t stream, const ConstTensorView& input, double factor, const TensorView& output);
absl::Status Cast(cudaStream_t stream, const ConstTensorView& input, const TensorView& output);
// kernels_binary.cc
absl::Status Binary(cudaStream_t stream, KernelFault* fault, BinaryOp op, const ConstTensorView& a,
                    const ConstTensorView& b, const TensorView& output);
absl::Status BinaryScalar(cudaStream_t stream, KernelFault* fault, BinaryOp op, const ConstTensorView& a, double b,
                          const TensorView& output);
absl::Status Where(cudaStream_t stream, const ConstTensorView& condition, const ConstTensorView& a,
                   const ConstTensorView& b, const TensorView& output);
absl::Status MaskedFill(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView& mask, double value,
                        const TensorView& output);
// kernels_copy.cc: every dtype.
absl::Status CopyStrided(cudaStream_t stream, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                         const TensorView& to, absl::Span<const int64_t> to_strides, absl::Span<const int64_t> sizes);
absl::Status CopyBox(cudaStream_t stream, const ConstTensorView& from, absl::Span<const int64_t> from_offset,
                     const TensorView& to, absl::Span<const int64_t> to_offset, absl::Span<const int64_t> sizes);
absl::Status Transpose(cudaStream_t stream, const ConstTensorView& input, absl::Span<const int> permutation,
                       const TensorView& output);
absl::Status Arange(cudaStream_t stream, int64_t start, int64_t step, const TensorView& output);
// kernels_select.cc: every dtype.
absl::Status Embedding(cudaStream_t stream, KernelFault* fault, const ConstTensorView& ids,
                       const ConstTensorView& table, int64_t row_begin, int64_t vocabulary, const TensorView& output);
absl::Status SelectRows(cudaStream_t stream, KernelFault* fault, const ConstTensorView& input,
                        const ConstTensorView& rows, const TensorView& output);
absl::Status Gather(cudaStream_t stream, KernelFault* fault, const ConstTensorView& input, const ConstTensorView& index,
                    int dim, int64_t begin, int64_t limit, std::optional<int64_t> ignored, const TensorView& output);
// kernels_reduce.cc, kernels_order.cc
absl::Status Reduce(cudaStream_t stream, Reduction op, const ConstTensorView& input, absl::Span<const int> dims,
                    double divisor, const TensorView& output);
absl::Status ArgExtreme(cudaStream_t stream, Extreme which, const ConstTensorView& input, int dim,
                        const TensorView* values, const TensorView& indices);
absl::Status TopK(cudaStream_t stream, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                  const TensorView& indices);
// kernels_norm.cc
absl::Status RmsNorm(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                     const TensorView& output);
absl::Status LayerNorm(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView* weight,
                       const ConstTensorView* bias, int dims, double eps, const TensorView& output);
absl::Status Softmax(cudaStream_t stream, const ConstTensorView& input, int dim, bool log, const TensorView& output);
// kernels_rotary.cc
absl::Status Rotary(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView& positions, double theta,
                    const TensorView& output);
// kernels_attention.cc. `scratch`: device memory of AttentionScratchBytes(arguments, sequences).
int64_t AttentionScratchBytes(const AttentionArguments& arguments, const DeviceSequences& sequences);
absl::Status Attention(cudaStream_t stream, const AttentionArguments& arguments, const DeviceSequences& sequences,
                       void* scratch);
// kernels_convolution.cc
absl::Status Convolution(cudaStream_t stream, const ConvolutionArguments& arguments);
// kernels_sum.cc: output [count] = terms[0] + .. + terms[n - 1] (or product, max, min) of `terms` [n, count] in order;
// 16-bit floats accumulate in F32. `divide`: the sum is divided by n. What the collectives reduce with. Every dtype.
enum class TermReduction { kSum, kProduct, kMax, kMin };
absl::Status ReduceTerms(cudaStream_t stream, TermReduction op, bool divide, DType dtype, const void* terms, int64_t n,
                         int64_t count, void* output);
// kernels_sample.cc: tokens [rows] I64 from logits [rows, vocabulary] F32, chosen as SampleToken (worker/runtime) does:
// greedy choices are equal, others too but where the exponential of a library differs in its last bit. `parameters`
// [rows] and `scratch` (SampleScratchBytes) in device memory. `most_kept`: the largest top_k of the rows; 0 where one
// keeps all. A row may not keep more.
struct SampleParameters {
  double temperature = 0;  // 0 = greedy
  double top_p = 0;        // 0 = all
  uint64_t seed = 0;
  int64_t position = 0;
  int64_t top_k = 0;  // 0 = all
};
int64_t SampleScratchBytes(int64_t rows, int64_t vocabulary, int64_t most_kept);
absl::Status SampleTokens(cudaStream_t stream, const ConstTensorView& logits, const SampleParameters* parameters,
                          int64_t most_kept, const TensorView& output, void* scratch);

}  // namespace tp::worker::cuda
