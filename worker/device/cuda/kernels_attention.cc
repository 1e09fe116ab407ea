#include <algorithm>

#include "worker/device/cuda/attention_block.h"
#include "worker/device/cuda/checks.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

constexpr int64_t kMostDim = 256;
constexpr int64_t kFewRows = 16;  // of a block: decoding
// Blocks that fill a large GPU; with fewer the positions are split, but not into shares of less than two tiles.
constexpr int64_t kWantedBlocks = 528, kMostSplits = 64;

struct Sizes {
  int64_t tokens = 0, q_heads = 0, kv_heads = 0, dim = 0;
};

absl::Status CheckSequence(const AttentionArguments& a, const SequenceSpan& s, int64_t tokens) {
  if (s.first_token < 0 || s.count < 0 || s.past < 0 || s.first_token + s.count > tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: a sequence of ", s.count, " tokens from ", s.first_token, " in ", tokens, " tokens"));
  }
  if (a.cache == nullptr) {
    if (s.past != 0) return absl::InvalidArgumentError("attention: past positions without a cache");
    return absl::OkStatus();
  }
  const int64_t pages = (s.past + s.count + kPagePositions - 1) / kPagePositions;
  if (static_cast<int64_t>(s.pages.size()) < pages) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: ", s.pages.size(), " pages for ", s.past + s.count, " positions"));
  }
  for (int64_t i = 0; i < pages; ++i) {
    const int32_t page = s.pages[static_cast<size_t>(i)];
    if (page >= 0 && page < a.cache->page_count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attention: page ", page, " outside [0, ", a.cache->page_count, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Sizes> Check(const AttentionArguments& a) {
  TP_RETURN_IF_ERROR(CheckSame("attention's query and output", a.query, a.output));
  TP_RETURN_IF_ERROR(CheckSame("attention's key and value", a.key, a.value));
  if (!IsKernelFloat(a.query.dtype)) return Unimplemented("attention", a.query.dtype);
  const Shape& q = a.query.shape;
  const Shape& k = a.key.shape;
  if (q.size() != 3 || k.size() != 3 || q[0] != k[0] || q[2] != k[2] || a.key.dtype != a.query.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: query ", ShapeText(q), " and key ", ShapeText(k), " do not fit"));
  }
  const Sizes sizes{q[0], q[1], k[1], q[2]};
  if (sizes.q_heads > 0 && (sizes.kv_heads == 0 || sizes.q_heads % sizes.kv_heads != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("attention: ", sizes.q_heads, " query heads are no multiple of ",
                                                   sizes.kv_heads, " key-value heads"));
  }
  if (a.cache != nullptr &&
      (a.cache->dtype != a.key.dtype || a.cache->kv_heads != sizes.kv_heads || a.cache->head_dim != sizes.dim)) {
    return absl::InvalidArgumentError("attention: the cache has another dtype or shape than the keys");
  }
  if (sizes.dim > kMostDim) {
    return absl::UnimplementedError(
        absl::StrCat("attention of head_dim ", sizes.dim, " over ", kMostDim, " on the CUDA device"));
  }
  for (const SequenceSpan& s : a.sequences) TP_RETURN_IF_ERROR(CheckSequence(a, s, sizes.tokens));
  return sizes;
}

// How the work is cut into blocks: by shapes alone, never by what the sequences' table holds.
AttentionShape ShapeOf(const AttentionArguments& a, const DeviceSequences& sequences) {
  AttentionShape s;
  if (a.query.shape.size() != 3 || a.key.shape.size() != 3) return s;
  const int64_t q_heads = a.query.shape[1], kv_heads = a.key.shape[1], dim = a.query.shape[2];
  const int64_t tokens = std::min(a.query.shape[0], sequences.token_count);
  if (tokens == 0 || q_heads == 0 || kv_heads == 0 || dim == 0 || dim > kMostDim || sequences.sequence_count == 0) {
    return s;
  }
  if (q_heads % kv_heads != 0) return s;
  const int64_t group = q_heads / kv_heads;
  const bool large = dim > 128;
  const int64_t most_rows = large ? 32 : 64;
  s.q_heads = static_cast<int32_t>(q_heads);
  s.kv_heads = static_cast<int32_t>(kv_heads);
  s.group = static_cast<int32_t>(group);
  s.dim = static_cast<int32_t>(dim);
  s.tokens = tokens;
  s.heads = static_cast<int32_t>(std::clamp<int64_t>(group, 1, most_rows));
  s.head_parts = static_cast<int32_t>((group + s.heads - 1) / s.heads);
  const int64_t usual_count = (tokens + sequences.sequence_count - 1) / sequences.sequence_count;
  s.tile_tokens = static_cast<int32_t>(std::clamp<int64_t>(most_rows / s.heads, 1, usual_count));
  s.tiles = (tokens + s.tile_tokens - 1) / s.tile_tokens;
  const bool few = s.rows() <= kFewRows;
  s.tile_keys = large || (few && a.query.dtype == DType::kF32) ? 32 : 64;
  s.slices = few ? 4 : 1;
  s.splits = 1;
  const int64_t longest = std::max<int64_t>(sequences.longest, 1);
  const int64_t most_splits = std::min(kMostSplits, (longest + 2 * s.tile_keys - 1) / (2 * s.tile_keys));
  const int64_t splits = std::clamp<int64_t>(kWantedBlocks / s.blocks(), 1, most_splits);
  const int64_t share = (longest + splits - 1) / splits;
  s.share = (share + s.tile_keys - 1) / s.tile_keys * s.tile_keys;
  s.splits = static_cast<int32_t>((longest + s.share - 1) / s.share);
  return s;
}
int64_t PartialRows(const AttentionShape& s) { return s.splits <= 1 ? 0 : s.splits * s.tokens * s.q_heads; }

// Keys and values of this call into their pages, N elements at once.
template <class T, int N>
struct WriteCache {
  const T* key;
  const T* value;
  T* cache;
  const int64_t* table;
  const int32_t* row_sequences;
  const int32_t* pages;
  int64_t kv_heads, dim;
  TP_HD void operator()(int64_t i) const {
    const int64_t d = i % (dim / N) * N;
    const int64_t head = i / (dim / N) % kv_heads;
    const int64_t token = i / (dim / N) / kv_heads;
    const int32_t sequence = row_sequences[token];
    if (sequence < 0) return;
    const int64_t* entry = table + 4 * static_cast<int64_t>(sequence);
    const int64_t position = entry[2] + token - entry[0];
    const int64_t page = pages[entry[3] + position / kPagePositions];
    const int64_t from = (token * kv_heads + head) * dim + d;
    const int64_t to = ((page * 2 * kv_heads + head) * kPagePositions + position % kPagePositions) * dim + d;
    using Moved = Pack<T, N>;
    *reinterpret_cast<Moved*>(cache + to) = *reinterpret_cast<const Moved*>(key + from);
    *reinterpret_cast<Moved*>(cache + to + kv_heads * kPagePositions * dim) =
        *reinterpret_cast<const Moved*>(value + from);
  }
};

// One output element from the shares of the positions: each counts e^(its maximum - the largest).
template <class T>
struct CombineShares {
  const float* partial_values;
  const float* partial_sums;
  const int32_t* row_sequences;
  T* output;
  int64_t rows;  // tokens * q_heads
  int64_t q_heads, dim;
  int32_t splits;
  TP_HD void operator()(int64_t i) const {
    const int64_t row = i / dim, d = i % dim;
    if (row_sequences[row / q_heads] < 0) return;
    float most = -INFINITY;
    for (int32_t s = 0; s < splits; ++s) most = Larger()(most, partial_sums[2 * (s * rows + row)]);
    const float shift = most == -INFINITY ? 0.0f : most;
    float total = 0, sum = 0;
    for (int32_t s = 0; s < splits; ++s) {
      const int64_t at = s * rows + row;
      const float weight = expf(partial_sums[2 * at] - shift);
      total += weight * partial_sums[2 * at + 1];
      sum += weight * partial_values[at * dim + d];
    }
    output[i] = Narrow<T>(sum / total);
  }
};

template <class T>
bool CanLoadWide(const AttentionArguments& a, int64_t dim) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return dim * static_cast<int64_t>(sizeof(T)) % 16 == 0 && aligned(a.key.data) && aligned(a.value.data) &&
         (a.cache == nullptr || aligned(a.cache->base));
}

template <class T, int N>
absl::Status Write(cudaStream_t stream, const AttentionArguments& a, const Sizes& sizes,
                   const DeviceSequences& sequences) {
  const int64_t tokens = std::min(sizes.tokens, sequences.token_count);
  return ForEach("attention's cache", stream, tokens * sizes.kv_heads * (sizes.dim / N),
                 WriteCache<T, N>{As<T>(a.key), As<T>(a.value), static_cast<T*>(a.cache->base), sequences.table,
                                  sequences.rows, sequences.pages, sizes.kv_heads, sizes.dim});
}

template <class T, int kKeys>
absl::Status Attend(cudaStream_t stream, const AttentionArguments& a, const DeviceSequences& sequences,
                    const AttentionShape& shape, bool wide, float* scratch) {
  using Block = AttentionBlock<T, kKeys>;
  Block block{};
  block.shape = shape;
  block.query = As<T>(a.query);
  block.output = As<T>(a.output);
  block.table = sequences.table;
  block.row_sequences = sequences.rows;
  if (a.cache != nullptr) {
    block.keys = static_cast<const T*>(a.cache->base);
    block.values = block.keys + shape.kv_heads * kPagePositions * shape.dim;
    block.pages = sequences.pages;
  } else {
    block.keys = As<T>(a.key);
    block.values = As<T>(a.value);
  }
  block.partial_values = scratch;
  block.partial_sums = scratch == nullptr ? nullptr : scratch + PartialRows(shape) * shape.dim;
  block.scale = a.scale;
  block.causal = a.causal;
  block.wide_loads = wide;
  return ForBlocks("attention", stream, shape.blocks(), block, Block::SharedBytes(shape));
}

template <class T>
absl::Status Run(cudaStream_t stream, const AttentionArguments& a, const Sizes& sizes, const DeviceSequences& sequences,
                 void* scratch) {
  const bool wide = CanLoadWide<T>(a, sizes.dim);
  if (a.cache != nullptr) {
    constexpr int kMoved = 16 / static_cast<int>(sizeof(T));
    const absl::Status written =
        wide ? Write<T, kMoved>(stream, a, sizes, sequences) : Write<T, 1>(stream, a, sizes, sequences);
    if (!written.ok()) return written;
  }
  const AttentionShape shape = ShapeOf(a, sequences);
  if (shape.tiles == 0) return absl::OkStatus();
  auto* partial = shape.splits > 1 ? static_cast<float*>(scratch) : nullptr;
  const absl::Status attended = shape.slices > 1 ? Attend<T, 1>(stream, a, sequences, shape, wide, partial)
                                                 : Attend<T, 4>(stream, a, sequences, shape, wide, partial);
  if (!attended.ok() || shape.splits == 1) return attended;
  const int64_t rows = shape.tokens * shape.q_heads;
  return ForEach("attention's shares", stream, rows * sizes.dim,
                 CombineShares<T>{partial, partial + PartialRows(shape) * sizes.dim, sequences.rows, As<T>(a.output),
                                  rows, sizes.q_heads, sizes.dim, shape.splits});
}

}  // namespace

int64_t AttentionScratchBytes(const AttentionArguments& arguments, const DeviceSequences& sequences) {
  const AttentionShape shape = ShapeOf(arguments, sequences);
  return PartialRows(shape) * (shape.dim + 2) * 4;
}

absl::Status Attention(cudaStream_t stream, const AttentionArguments& arguments, const DeviceSequences& sequences,
                       void* scratch) {
  TP_ASSIGN_OR_RETURN(const Sizes sizes, Check(arguments));
  if (sizes.dim == 0) return absl::OkStatus();
  return VisitFloats("attention", arguments.query.dtype,
                     [&](auto t) { return Run<decltype(t)>(stream, arguments, sizes, sequences, scratch); });
}

}  // namespace tp::worker::cuda
