// The CPU kernels apart from products, by family, one file each: row code in Highway (compiled for several instruction
// sets, chosen at run time) and around it the loops over rows, split over `threads`. F32 and BF16 (computed in F32,
// rounded to nearest even) unless a comment says more; other dtypes are UNIMPLEMENTED with kernel and dtype. Shapes
// that do not fit each other are INVALID_ARGUMENT. All block; all are thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/device/device.h"

namespace tp::worker::kernels {

// The instruction set that the kernels run with, as "AVX2".
std::string TargetName();

// Product of all dims but the last; 1 for a scalar.
int64_t RowCount(absl::Span<const int64_t> shape);
// The last dim; 1 for a scalar.
int64_t RowSize(absl::Span<const int64_t> shape);
absl::Status Unimplemented(std::string_view kernel, DType dtype);
// INVALID_ARGUMENT where the two differ in shape or (where `dtypes`) in dtype.
absl::Status CheckSame(std::string_view kernel, const ConstTensorView& a, const ConstTensorView& b, bool dtypes = true);

// kernels_elementwise.cc. Negate also I64 and F64; Scale also F64; Cast: all pairs, as tp::ConvertTo.
absl::Status Unary(int threads, UnaryOp op, const ConstTensorView& input, const TensorView& output);
absl::Status Scale(int threads, const ConstTensorView& input, double factor, const TensorView& output);
absl::Status Cast(int threads, const ConstTensorView& input, const TensorView& output);
void WidenBF16(const uint16_t* from, float* to, int64_t count);
void RoundToBF16(const float* from, uint16_t* to, int64_t count);

// kernels_binary.cc. Also I64 (modulo 2^64) and F64. The output has the broadcast shape.
absl::Status Binary(int threads, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                    const TensorView& output);

// kernels_norm.cc. The weight [d] may be of either dtype.
absl::Status RmsNorm(int threads, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                     const TensorView& output);
absl::Status Softmax(int threads, const ConstTensorView& input, int dim, const TensorView& output);

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

// kernels_select.cc. Embedding and SelectRows: every dtype. ArgMax: all but BOOL; over an empty dim INVALID_ARGUMENT.
absl::Status Embedding(int threads, const ConstTensorView& ids, const ConstTensorView& table, int64_t row_begin,
                       int64_t vocabulary, const TensorView& output);
absl::Status SelectRows(int threads, const ConstTensorView& input, const ConstTensorView& rows,
                        const TensorView& output);
absl::Status ArgMax(int threads, const ConstTensorView& input, int dim, const TensorView& output);

// kernels_transpose.cc. Every dtype; output dim i is input dim permutation[i].
absl::Status Transpose(int threads, const ConstTensorView& input, absl::Span<const int> permutation,
                       const TensorView& output);

}  // namespace tp::worker::kernels
