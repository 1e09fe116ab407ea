// The CPU kernels apart from products, by family, one file each: row code in Highway (compiled for several instruction
// sets, chosen at run time) and around it the loops over rows, split over `threads`. F32 and BF16 (computed in F32,
// rounded to nearest even) unless a comment says more; other dtypes are UNIMPLEMENTED with kernel and dtype. Shapes
// that do not fit each other are INVALID_ARGUMENT. All block; all are thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/device/device.h"
#include "worker/device/shapes.h"

namespace tp::worker::kernels {

// The instruction set that the kernels run with, as "AVX2".
std::string TargetName();

absl::Status Unimplemented(std::string_view kernel, DType dtype);

// kernels_elementwise.cc (Unary's integers and BOOL too). Scale also F64, F16; Cast: all pairs, as tp::ConvertTo.
absl::Status Unary(int threads, UnaryOp op, const ConstTensorView& input, const TensorView& output);
absl::Status Scale(int threads, const ConstTensorView& input, double factor, const TensorView& output);
absl::Status Cast(int threads, const ConstTensorView& input, const TensorView& output);
void WidenBF16(const uint16_t* from, float* to, int64_t count);
void RoundToBF16(const float* from, uint16_t* to, int64_t count);

// kernels_binary.cc: arithmetic of floats, and which kernel does the rest. The output has the broadcast shape.
absl::Status Binary(int threads, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                    const TensorView& output);
absl::Status BinaryScalar(int threads, BinaryOp op, const ConstTensorView& a, double b, const TensorView& output);

// kernels_where.cc. Every dtype.
absl::Status Where(int threads, const ConstTensorView& condition, const ConstTensorView& a, const ConstTensorView& b,
                   const TensorView& output);
absl::Status MaskedFill(int threads, const ConstTensorView& input, const ConstTensorView& mask, double value,
                        const TensorView& output);

// kernels_norm.cc. The weight [d] may be of either dtype.
absl::Status RmsNorm(int threads, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                     const TensorView& output);
absl::Status LayerNorm(int threads, const ConstTensorView& input, const ConstTensorView* weight,
                       const ConstTensorView* bias, int dims, double eps, const TensorView& output);
// `log`: its logarithm.
absl::Status Softmax(int threads, const ConstTensorView& input, int dim, bool log, const TensorView& output);

// kernels_rotary.cc. Cosines and sines of a step's positions, [tokens, head_dim / 2] each: every layer of a step uses
// the same, so the last one is kept. Thread-compatible.
struct RotaryTable {
  double theta = 0;
  int64_t half = -1;
  std::vector<int64_t> positions;
  std::vector<float> cosines;
  std::vector<float> sines;
};
absl::Status Rotary(int threads, RotaryTable& table, const ConstTensorView& input, const ConstTensorView& positions,
                    double theta, const TensorView& output);

// kernels_attention.cc.
absl::Status Attention(int threads, const AttentionArguments& arguments);

// kernels_select.cc. Every dtype.
absl::Status Embedding(int threads, const ConstTensorView& ids, const ConstTensorView& table, int64_t row_begin,
                       int64_t vocabulary, const TensorView& output);
absl::Status SelectRows(int threads, const ConstTensorView& input, const ConstTensorView& rows,
                        const TensorView& output);
absl::Status Gather(int threads, const ConstTensorView& input, const ConstTensorView& index, int dim, int64_t begin,
                    int64_t limit, std::optional<int64_t> ignored, const TensorView& output);

// kernels_reduce.cc, kernels_order.cc: as Device's.
absl::Status Reduce(int threads, Reduction op, const ConstTensorView& input, absl::Span<const int> dims, double divisor,
                    const TensorView& output);
absl::Status ArgExtreme(int threads, Extreme which, const ConstTensorView& input, int dim, const TensorView* values,
                        const TensorView& indices);
absl::Status TopK(int threads, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                  const TensorView& indices);

// kernels_copy.cc. Every dtype; output dim i of Transpose is input dim permutation[i].
absl::Status CopyStrided(int threads, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                         const TensorView& to, absl::Span<const int64_t> to_strides, absl::Span<const int64_t> sizes);
absl::Status Transpose(int threads, const ConstTensorView& input, absl::Span<const int> permutation,
                       const TensorView& output);
absl::Status Arange(int64_t start, int64_t step, const TensorView& output);

}  // namespace tp::worker::kernels
