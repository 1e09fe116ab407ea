// Device: memory, streams and kernels of one processor (a set of CPU cores, a GPU). Every kernel call takes a stream,
// returns at once and runs in the stream's order; CPU streams are inline. Host memory is touched only through the copy
// calls. One thread owns a device; any may Allocate, and copy from and to host on a stream of its own. Example:
//   auto device = *CreateCpuDevice({.threads = 2});  auto stream = device->CreateStream();
//   device->Unary(*stream, UnaryOp::kSilu, x, y);
// Shapes are local. A tensor with a 0 in its shape is legal everywhere. Kernels check nothing that compiling proved;
// what depends on data (ids of an embedding) is checked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tp::worker {

// Dense row-major tensors in device memory; views do not own.
struct TensorView {
  DType dtype = DType::kF32;
  void* data = nullptr;
  Shape shape;
};
struct ConstTensorView {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  Shape shape;
  ConstTensorView() = default;
  ConstTensorView(DType d, const void* p, Shape s) : dtype(d), data(p), shape(std::move(s)) {}
  ConstTensorView(const TensorView& v) : dtype(v.dtype), data(v.data), shape(v.shape) {}  // NOLINT
};

class Stream {
 public:
  virtual ~Stream() = default;
};
class DeviceBuffer {  // owns device memory; freed with it. In sanitizer builds guard bytes are checked when it is
                      // freed.
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() = 0;
  virtual int64_t size() const = 0;
};
// A weight of linear in the device's own layout (oneDNN blocked, F32 where the processor has no bf16 product).
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t out_features() const = 0;
  virtual int64_t in_features() const = 0;
  virtual DType dtype() const = 0;  // as it was given
  virtual int64_t memory_bytes() const = 0;
};

// Calls that were recorded on a stream, to be run again by one call. Destroyed before the memory and the communicator
// that they use.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// A point of a stream that another stream can wait for.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};
// How the next token of a sequence is chosen; see worker/runtime/sampler.h.
struct SamplingRow {
  double temperature = 0;  // 0 = greedy
  int64_t top_k = 0;       // 0 = all
  double top_p = 0;        // 0 = all
  uint64_t seed = 0;
  int64_t position = 0;  // of the new token
};

enum class UnaryOp {
  kSilu,
  kRelu,
  kGelu,
  kGeluTanh,
  kNegate,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kSin,
  kCos,
  kTanh,
  kSigmoid,
  kNot,  // BOOL
};
// The comparisons and the logical ones (of BOOL) write BOOL. kMaximum and kMinimum: NaN where an operand is NaN.
// kFloorDiv and kRemainder are Python's: towards minus infinity, with the divisor's sign.
enum class BinaryOp {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMaximum,
  kMinimum,
  kFloorDiv,
  kRemainder,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
};
enum class Reduction { kSum, kProduct, kMax, kMin };
enum class Extreme { kMax, kMin };

// One sequence of a step: its tokens are rows first_token .. first_token + count - 1 of the flattened [batch * time];
// `past` positions are in the cache already. Page i holds positions 16 i .. 16 i + 15.
struct SequenceSpan {
  int64_t first_token = 0;
  int64_t count = 0;
  int64_t past = 0;
  std::vector<int32_t> pages;  // covers past + count positions; empty in a plain forward (past is 0 then)
};
// Cache of one attention: page p at base + p * [2, kv_heads, 16, head_dim]; first the keys, then the values.
struct PagedCache {
  DType dtype = DType::kF32;
  void* base = nullptr;
  int64_t page_count = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};
struct AttentionArguments {
  ConstTensorView query;  // [tokens, q_heads, head_dim]
  ConstTensorView key;    // [tokens, kv_heads, head_dim]
  ConstTensorView value;
  TensorView output;  // as query
  absl::Span<const SequenceSpan> sequences;
  const PagedCache* cache = nullptr;  // nullptr: keys and values of this call only
  float scale = 1;
  bool causal = true;  // position i sees 0..i; else all of its sequence
};

// Convolution over the last one or two dims; one entry a spatial dim in each of the three lists. The number of groups
// is input channels / weight.shape[1]: a rank that holds some of the groups has as many fewer channels.
struct ConvolutionArguments {
  ConstTensorView input;                  // [batch, in, size..]
  ConstTensorView weight;                 // [out, in / groups, kernel..]
  const ConstTensorView* bias = nullptr;  // [out]
  TensorView output;                      // [batch, out, size'..]
  Shape stride, padding, dilation;        // dilation 1: neighbouring elements
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string Describe() const = 0;  // "cpu (AVX2, 2 threads)"
  // Which physical device it is, equal for two processes on one; "" where several may share it.
  virtual std::string Identity() const { return ""; }
  // Whether products of `dtype` run in it; else weights are widened to F32 when packed.
  virtual bool HasProduct(DType dtype) const = 0;
  virtual std::unique_ptr<Stream> CreateStream() = 0;
  // Waits until all work of the stream is done; the first failure of a kernel since the last call, if any.
  virtual absl::Status Synchronize(Stream& stream) = 0;
  // RESOURCE_EXHAUSTED naming the bytes where there is no memory. Zero bytes give a valid buffer.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) = 0;

  virtual absl::Status CopyToDevice(Stream& stream, const void* host, void* device, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(Stream& stream, const void* device, void* host, int64_t bytes) = 0;
  virtual absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, int64_t bytes) = 0;
  virtual absl::Status FillZero(Stream& stream, void* device, int64_t bytes) = 0;
  // A box of a row-major array to a box of another (as tp::CopyBox).
  virtual absl::Status CopyBox(Stream& stream, const ConstTensorView& from, absl::Span<const int64_t> from_offset,
                               const TensorView& to, absl::Span<const int64_t> to_offset,
                               absl::Span<const int64_t> sizes) = 0;
  // to[i] = from[i] over the index space `sizes`; element i lies sum(i_d * strides_d) elements after the data, whatever
  // the views' shapes are. A stride of `from` may be 0 (expand) or negative; the elements of `to` are distinct and
  // overlap none of `from`. Every dtype.
  virtual absl::Status CopyStrided(Stream& stream, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                                   const TensorView& to, absl::Span<const int64_t> to_strides,
                                   absl::Span<const int64_t> sizes) = 0;
  // output[i] = start + step * i in row-major order: F32 and BF16 (rounded once), I64, I32.
  virtual absl::Status Arange(Stream& stream, int64_t start, int64_t step, const TensorView& output) = 0;

  // weight [out, in] of F32, BF16 or another type that HasProduct -> packed once. UNIMPLEMENTED for other types.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(Stream& stream, const ConstTensorView& weight) = 0;
  // Back to plain [out, in] in the given dtype, bit for bit.
  virtual absl::Status UnpackWeight(Stream& stream, const PackedWeight& weight, const TensorView& plain) = 0;
  // output [m, out] = input [m, in] x weight^T (+ bias [out]). F32 accumulation. input F32 or BF16; output F32 or BF16;
  // bias nullptr or of the input's dtype.
  virtual absl::Status Linear(Stream& stream, const ConstTensorView& input, const PackedWeight& weight,
                              const ConstTensorView* bias, const TensorView& output) = 0;
  // output [.., m, n] = a [.., m, k] x b [.., k, n]; the leading dims broadcast. F32 or BF16, one for all three; F32
  // accumulation.
  virtual absl::Status MatMul(Stream& stream, const ConstTensorView& a, const ConstTensorView& b,
                              const TensorView& output) = 0;
  // F32 or BF16, one for all; F32 accumulation.
  virtual absl::Status Convolution(Stream& stream, const ConvolutionArguments& arguments) = 0;

  // output [.., d] = rows of table [rows, d]; the table holds global rows [row_begin, row_begin + rows) of
  // `vocabulary`; ids of other ranks' rows give zeros. ids I64 or I32. INVALID_ARGUMENT "id X at position P outside [0,
  // vocabulary)".
  virtual absl::Status Embedding(Stream& stream, const ConstTensorView& ids, const ConstTensorView& table,
                                 int64_t row_begin, int64_t vocabulary, const TensorView& output) = 0;
  // Over the last dim; statistics in F32, multiplied by weight after the cast back (Hugging Face).
  virtual absl::Status RmsNorm(Stream& stream, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                               const TensorView& output) = 0;
  // Over the last `dims` dims; statistics in F32, then times weight plus bias in F32 and one rounding. weight and bias
  // have the shape of those dims, F32 or BF16; nullptr: none.
  virtual absl::Status LayerNorm(Stream& stream, const ConstTensorView& input, const ConstTensorView* weight,
                                 const ConstTensorView* bias, int dims, double eps, const TensorView& output) = 0;
  // input [tokens, heads, head_dim], rotate-half (Hugging Face); positions [tokens] I64; angles computed in F64/F32.
  virtual absl::Status Rotary(Stream& stream, const ConstTensorView& input, const ConstTensorView& positions,
                              double theta, const TensorView& output) = 0;
  // With a cache: writes keys and values of this call into the pages, then attends over the pages. Query head h uses kv
  // head h * kv_heads / q_heads. F32 softmax. Does not copy kv heads.
  virtual absl::Status Attention(Stream& stream, const AttentionArguments& arguments) = 0;

  // F32, BF16 (computed in F32); kNegate, kAbs and kRelu also I64 and I32; kNot BOOL. UNIMPLEMENTED for others.
  virtual absl::Status Unary(Stream& stream, UnaryOp op, const ConstTensorView& input, const TensorView& output) = 0;
  // numpy broadcasting; operands of one dtype: F32, BF16 (computed in F32), F64, I64 and I32 (modulo 2^n; no kDiv, no
  // kPow), BOOL and U8 (comparisons; logical ones). INVALID_ARGUMENT for an integer divided by 0.
  virtual absl::Status Binary(Stream& stream, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                              const TensorView& output) = 0;
  // As Binary with one number as the right operand; BF16 takes it as F32. INVALID_ARGUMENT where an integer dtype does
  // not hold it.
  virtual absl::Status BinaryScalar(Stream& stream, BinaryOp op, const ConstTensorView& a, double b,
                                    const TensorView& output) = 0;
  // output = condition ? a : b; all three broadcast. condition BOOL; every dtype.
  virtual absl::Status Where(Stream& stream, const ConstTensorView& condition, const ConstTensorView& a,
                             const ConstTensorView& b, const TensorView& output) = 0;
  // output = mask ? value : input; both broadcast. INVALID_ARGUMENT where an integer dtype does not hold the value.
  virtual absl::Status MaskedFill(Stream& stream, const ConstTensorView& input, const ConstTensorView& mask,
                                  double value, const TensorView& output) = 0;
  // input x factor; floating dtypes (16-bit ones are computed in F32 and rounded once). UNIMPLEMENTED for others.
  virtual absl::Status Scale(Stream& stream, const ConstTensorView& input, double factor, const TensorView& output) = 0;
  virtual absl::Status Cast(Stream& stream, const ConstTensorView& input, const TensorView& output) = 0;
  virtual absl::Status Softmax(Stream& stream, const ConstTensorView& input, int dim, const TensorView& output) = 0;
  virtual absl::Status LogSoftmax(Stream& stream, const ConstTensorView& input, int dim, const TensorView& output) = 0;
  // Over `dims` (distinct, in [0, rank)); the output has the elements of the other dims in order. A sum is divided by
  // `divisor` before it is rounded (mean). An empty reduction gives the identity: 0, 1, the lowest, the highest value
  // (of floats: infinities). Max and min of anything with NaN are NaN. Floats accumulate in F32 or wider.
  // F32 -> F32; BF16 -> BF16 or F32; I64, I32 -> I64 or I32 (modulo 2^n); BOOL -> I64 (kSum) or BOOL (kMax, kMin).
  virtual absl::Status Reduce(Stream& stream, Reduction op, const ConstTensorView& input, absl::Span<const int> dims,
                              double divisor, const TensorView& output) = 0;
  // I64 indices along `dim` of the largest or smallest elements, and the elements themselves where `values` is not
  // nullptr. Ties to the lowest index; NaN is the largest. Every dtype but BOOL. INVALID_ARGUMENT for an empty dim with
  // other elements.
  virtual absl::Status ArgExtreme(Stream& stream, Extreme which, const ConstTensorView& input, int dim,
                                  const TensorView* values, const TensorView& indices) = 0;
  // The k largest along `dim`, descending, ties by index, NaN the largest; indices I64. Every dtype but BOOL.
  // INVALID_ARGUMENT for k over the dim.
  virtual absl::Status TopK(Stream& stream, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                            const TensorView& indices) = 0;
  // output[i] = input[i with i_dim replaced by index[i] - begin]; index (I64 or I32) broadcasts to the output. The
  // input holds global indices [begin, begin + input.shape[dim]) of `limit`: indices of other ranks' blocks and
  // `ignored` give zeros. Sizes of the other dims of the output are at most the input's. Every dtype. INVALID_ARGUMENT
  // "index X at position P outside [0, limit)". Examples, dim 1: index [1, n, 1] is index_select, [b, 1, c] picks one
  // of each row.
  virtual absl::Status Gather(Stream& stream, const ConstTensorView& input, const ConstTensorView& index, int dim,
                              int64_t begin, int64_t limit, std::optional<int64_t> ignored,
                              const TensorView& output) = 0;
  virtual absl::Status Transpose(Stream& stream, const ConstTensorView& input, absl::Span<const int> permutation,
                                 const TensorView& output) = 0;
  // output [rows, ...] = rows of input [n, ...] by I64 indices.
  virtual absl::Status SelectRows(Stream& stream, const ConstTensorView& input, const ConstTensorView& rows,
                                  const TensorView& output) = 0;

  // nullptr where streams are inline: nothing to wait for.
  virtual std::unique_ptr<DeviceEvent> CreateEvent() { return nullptr; }
  // The event stands for what the stream holds now; what the other stream gets from then on runs after it.
  virtual absl::Status RecordEvent(Stream&, DeviceEvent&) { return absl::OkStatus(); }
  virtual absl::Status WaitEvent(Stream&, DeviceEvent&) { return absl::OkStatus(); }

  // Whether SampleTokens works; else logits are copied to the host and sampled there.
  virtual bool HasSampling() const { return false; }
  // tokens[r], in host memory, = SampleToken of row r of logits [rows, vocabulary] F32; written at the latest by the
  // next Synchronize.
  virtual absl::Status SampleTokens(Stream&, const ConstTensorView& /*logits*/, absl::Span<const SamplingRow> /*rows*/,
                                    int64_t* /*tokens*/) {
    return absl::UnimplementedError("sampling on this device");
  }

  // Whether the three calls below work; where not, they are UNIMPLEMENTED.
  virtual bool HasGraphs() const { return false; }
  // From here to EndGraph the calls on the stream are recorded and not run; they copy nothing from or to host memory
  // and wait for nothing, and each kind of call was made once before with these shapes. `sequences`: of all attentions
  // recorded, each of at most `longest` positions at any run.
  virtual absl::Status BeginGraph(Stream&, absl::Span<const SequenceSpan> /*sequences*/, int64_t /*longest*/) {
    return absl::UnimplementedError("graphs on this device");
  }
  // The status of the recording. After an error nothing was recorded, and the stream works as before.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndGraph(Stream&) {
    return absl::UnimplementedError("graphs on this device");
  }
  // Runs the calls again, with other sequences: as many, of the same counts.
  virtual absl::Status RunGraph(Stream&, DeviceGraph&, absl::Span<const SequenceSpan> /*sequences*/) {
    return absl::UnimplementedError("graphs on this device");
  }
};

}  // namespace tp::worker
