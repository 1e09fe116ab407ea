// What one block of the attention kernel does: the query rows of a few neighbouring tokens and of (some of) the heads
// of one kv head, over one share of the positions; tiles of keys and values in shared memory, softmax in F32 with a
// running maximum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). Where positions are
// shared by several blocks (Dao et al., "Flash-Decoding", 2023) it leaves maximum, sum and weighted values for the
// combining kernel. Not used outside kernels_attention.cc.
//
// A row is a (token, head) pair; rows and head_dim are padded to multiples of 4, a thread works on 4 rows at once: in
// the scores with kKeys keys, in the weighted sum with 4 elements of the values. With few rows the weighted sum is
// spread over `slices` of the tile's positions, which are added up at the end.
#pragma once

#include <cmath>

#include "worker/device/cuda/numbers.h"

namespace tp::worker::cuda {

constexpr int64_t kPagePositions = 16;  // positions of a page of the cache

// N neighbouring elements that move as one.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

TP_HD float WidenFast(float x) { return x; }
TP_HD float WidenFast(BF16 x) { return Widen(x); }
TP_HD float WidenFast(F16 x) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  return Widen(x);
#endif
}

// Sizes of the work, the same for all blocks.
struct AttentionShape {
  int32_t q_heads = 0, kv_heads = 0, group = 0, dim = 0;
  int32_t heads = 0, head_parts = 0;  // heads of a kv head that a block takes, blocks that share them
  int32_t tile_tokens = 0;            // tokens of a block
  int32_t tile_keys = 0;              // positions in shared memory at once
  int32_t slices = 0;
  int32_t splits = 0;  // blocks that share the positions
  int64_t share = 0;   // positions of one of them; the last takes the rest
  int64_t tokens = 0, tiles = 0;

  TP_HD int32_t rows() const { return (tile_tokens * heads + 3) / 4 * 4; }
  TP_HD int32_t row_floats() const { return (dim + 3) / 4 * 4 + 4; }  // 4 more: rows start in other banks
  TP_HD int64_t blocks() const { return tiles * kv_heads * head_parts * splits; }
};

template <class T, int kKeys>
struct AttentionBlock {
  AttentionShape shape;
  const T* query;
  T* output;
  // Of page 0, or without pages (nullptr) the call's own.
  const T* keys;
  const T* values;
  const int64_t* table;
  const int32_t* row_sequences;
  const int32_t* pages;
  float* partial_values;  // [splits][tokens * q_heads][dim]
  float* partial_sums;    // [splits][tokens * q_heads][2]: maximum, sum
  float scale;
  bool causal, wide_loads;

  // The tokens [begin, end) of one sequence.
  struct Run {
    int64_t begin, end;
    int64_t first, past, length;  // first token of the sequence, positions before and after this call
    const int32_t* pages;
  };
  struct Tiles {
    T* key;
    T* value;       // [tile_keys][row_floats]
    float* query;   // [rows][row_floats]
    float* sum;     // [slices][rows][row_floats]
    float* weight;  // [tile_keys][rows + 4]: scores, then weights
    float* part;    // [kParts][rows], twice: maxima, sums
    float* maximum;
    float* total;
    float* keep;
  };
  static constexpr int32_t kParts = 8;

  static int64_t SharedBytes(const AttentionShape& s) {
    const auto round = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
    const int64_t rows = s.rows(), width = s.row_floats();
    return 2 * round(s.tile_keys * width * static_cast<int64_t>(sizeof(T))) + round(rows * width * 4) +
           round(s.slices * rows * width * 4) + round(s.tile_keys * (rows + 4) * 4) + round(2 * kParts * rows * 4) +
           3 * round(rows * 4);
  }

  // Element 0 of a position's key (or value) of kv head `head`.
  TP_HD const T* At(const T* from, const Run& run, int32_t head, int64_t position) const {
    if (pages == nullptr) return from + ((run.first + position) * shape.kv_heads + head) * shape.dim;
    const int64_t page = run.pages[position / kPagePositions];
    return from + ((page * 2 * shape.kv_heads + head) * kPagePositions + position % kPagePositions) * shape.dim;
  }

  template <class B>
  TP_DEVICE void operator()(B& block, int64_t index) const {
    const AttentionShape& s = shape;
    const int32_t rows = s.rows(), width = s.row_floats();
    Tiles t;
    t.key = block.template Shared<T>(static_cast<int64_t>(s.tile_keys) * width);
    t.value = block.template Shared<T>(static_cast<int64_t>(s.tile_keys) * width);
    t.query = block.template Shared<float>(static_cast<int64_t>(rows) * width);
    t.sum = block.template Shared<float>(static_cast<int64_t>(s.slices) * rows * width);
    t.weight = block.template Shared<float>(static_cast<int64_t>(s.tile_keys) * (rows + 4));
    t.part = block.template Shared<float>(2 * kParts * rows);
    t.maximum = block.template Shared<float>(rows);
    t.total = block.template Shared<float>(rows);
    t.keep = block.template Shared<float>(rows);
    const int32_t split = static_cast<int32_t>(index % s.splits);
    index /= s.splits;
    const int32_t head_part = static_cast<int32_t>(index % s.head_parts);
    index /= s.head_parts;
    const int32_t kv_head = static_cast<int32_t>(index % s.kv_heads);
    const int64_t tile = s.tiles - 1 - index / s.kv_heads;  // the longest first
    const int64_t tokens_end = Smaller()(s.tokens, (tile + 1) * s.tile_tokens);
    for (int64_t token = tile * s.tile_tokens; token < tokens_end;) {
      const int32_t sequence = row_sequences[token];
      if (sequence < 0) {
        ++token;
        continue;
      }
      const int64_t* entry = table + 4 * static_cast<int64_t>(sequence);
      const Run run{token,
                    Smaller()(tokens_end, entry[0] + entry[1]),
                    entry[0],
                    entry[2],
                    entry[2] + entry[1],
                    pages == nullptr ? nullptr : pages + entry[3]};
      Attend(block, t, run, kv_head, head_part * s.heads, split);
      token = run.end > token ? run.end : token + 1;
    }
  }

  // Positions that the token at `offset` from the run's begin sees.
  TP_HD int64_t Sees(const Run& run, int64_t offset) const {
    return causal ? run.past + (run.begin - run.first) + offset + 1 : run.length;
  }

  template <class B>
  TP_DEVICE void Attend(B& block, const Tiles& t, const Run& run, int32_t kv_head, int32_t head_begin,
                        int32_t split) const {
    const AttentionShape& s = shape;
    const int32_t rows = s.rows(), width = s.row_floats(), dim = s.dim, heads = s.heads;
    const int32_t run_tokens = static_cast<int32_t>(run.end - run.begin);
    const int32_t slice_floats = rows * width;
    // Row r of the block in query and output, or -1.
    const auto row_at = [&](int32_t r) -> int64_t {
      const int32_t token = r / heads, head = head_begin + r % heads;
      if (token >= run_tokens || head >= s.group) return -1;
      return (run.begin + token) * s.q_heads + kv_head * s.group + head;
    };
    block.Each(slice_floats, [&](int64_t i) {
      const int32_t r = static_cast<int32_t>(i) / width, d = static_cast<int32_t>(i) % width;
      const int64_t row = d < dim ? row_at(r) : -1;
      t.query[i] = row < 0 ? 0.0f : WidenFast(query[row * dim + d]) * scale;
      for (int32_t slice = 0; slice < s.slices; ++slice) t.sum[slice * slice_floats + i] = 0.0f;
      if (d != 0) return;
      t.maximum[r] = -INFINITY;
      t.total[r] = 0.0f;
    });
    const int64_t last = Sees(run, run_tokens - 1);
    const int64_t begin = split * s.share;
    const int64_t end = split + 1 == s.splits ? last : Smaller()(last, begin + s.share);
    for (int64_t first = begin; first < end; first += s.tile_keys) {
      const int32_t count = static_cast<int32_t>(Smaller()(static_cast<int64_t>(s.tile_keys), end - first));
      Load(block, t, run, kv_head, first, count);
      Scores(block, t, run, first, count);
      Weights(block, t);
      Accumulate(block, t, count);
    }
    block.Each(static_cast<int64_t>(rows) * dim, [&](int64_t i) {
      const int32_t r = static_cast<int32_t>(i) / dim, d = static_cast<int32_t>(i) % dim;
      const int64_t row = row_at(r);
      if (row < 0) return;
      float sum = 0;
      for (int32_t slice = 0; slice < s.slices; ++slice) sum += t.sum[slice * slice_floats + r * width + d];
      if (s.splits == 1) {
        output[row * dim + d] = Narrow<T>(sum / t.total[r]);
        return;
      }
      const int64_t at = split * s.tokens * s.q_heads + row;
      partial_values[at * dim + d] = sum;
      if (d != 0) return;
      partial_sums[2 * at] = t.maximum[r];
      partial_sums[2 * at + 1] = t.total[r];
    });
  }

  // Keys and values of positions [first, first + count); what lies past head_dim is 0.
  template <class B>
  TP_DEVICE void Load(B& block, const Tiles& t, const Run& run, int32_t head, int64_t first, int32_t count) const {
    const int32_t width = shape.row_floats(), dim = shape.dim;
    if (wide_loads) {
      constexpr int32_t kMoved = 16 / static_cast<int32_t>(sizeof(T));
      using Wide = Pack<T, kMoved>;
      const int32_t packs = dim / kMoved, half = (count + 1) / 2;
      block.Each(static_cast<int64_t>(half) * packs, [&](int64_t i) {  // four loads under way at once
        const int32_t j = static_cast<int32_t>(i) / packs, d = static_cast<int32_t>(i) % packs * kMoved;
        const int32_t other = j + half < count ? j + half : j;
        const Wide k0 = *reinterpret_cast<const Wide*>(At(keys, run, head, first + j) + d);
        const Wide k1 = *reinterpret_cast<const Wide*>(At(keys, run, head, first + other) + d);
        const Wide v0 = *reinterpret_cast<const Wide*>(At(values, run, head, first + j) + d);
        const Wide v1 = *reinterpret_cast<const Wide*>(At(values, run, head, first + other) + d);
        Put(k0, t.key + j * width + d);
        Put(k1, t.key + other * width + d);
        Put(v0, t.value + j * width + d);
        Put(v1, t.value + other * width + d);
      });
      return;
    }
    block.Each(static_cast<int64_t>(count) * width, [&](int64_t i) {
      const int32_t j = static_cast<int32_t>(i) / width, d = static_cast<int32_t>(i) % width;
      t.key[i] = d < dim ? At(keys, run, head, first + j)[d] : T{};
      t.value[i] = d < dim ? At(values, run, head, first + j)[d] : T{};
    });
  }
  template <int N>
  TP_HD static void Put(const Pack<T, N>& from, T* to) {
    for (int32_t part = 0; part < N; part += 4) {
      Pack<T, 4> four;
      for (int32_t e = 0; e < 4; ++e) four.at[e] = from.at[part + e];
      *reinterpret_cast<Pack<T, 4>*>(to + part) = four;
    }
  }

  // weight[j][r] = query[r] . key[j], -infinity where row r does not see position first + j.
  template <class B>
  TP_DEVICE void Scores(B& block, const Tiles& t, const Run& run, int64_t first, int32_t count) const {
    const AttentionShape& s = shape;
    const int32_t rows = s.rows(), width = s.row_floats();
    const int32_t columns = s.tile_keys / kKeys;  // a thread's keys lie `columns` apart
    block.Each(static_cast<int64_t>(rows / 4) * columns, [&](int64_t i) {
      const int32_t r = static_cast<int32_t>(i) / columns * 4, column = static_cast<int32_t>(i) % columns;
      float sums[kKeys][4];
#pragma unroll
      for (int32_t c = 0; c < kKeys; ++c) sums[c][0] = sums[c][1] = sums[c][2] = sums[c][3] = 0.0f;
      for (int32_t d = 0; d < width - 4; d += 4) {
        Pack<float, 4> q[4];
#pragma unroll
        for (int32_t e = 0; e < 4; ++e) {
          q[e] = *reinterpret_cast<const Pack<float, 4>*>(t.query + (r + e) * width + d);
        }
#pragma unroll
        for (int32_t c = 0; c < kKeys; ++c) {
          const Pack<T, 4> k = *reinterpret_cast<const Pack<T, 4>*>(t.key + (column + c * columns) * width + d);
#pragma unroll
          for (int32_t x = 0; x < 4; ++x) {
            const float key = WidenFast(k.at[x]);
#pragma unroll
            for (int32_t e = 0; e < 4; ++e) sums[c][e] += q[e].at[x] * key;
          }
        }
      }
#pragma unroll
      for (int32_t c = 0; c < kKeys; ++c) {
        const int32_t j = column + c * columns;
        Pack<float, 4> scores;
#pragma unroll
        for (int32_t e = 0; e < 4; ++e) {
          const bool seen = j < count && first + j < Sees(run, (r + e) / s.heads);
          scores.at[e] = seen ? sums[c][e] : -INFINITY;
        }
        *reinterpret_cast<Pack<float, 4>*>(t.weight + j * (rows + 4) + r) = scores;
      }
    });
  }

  // Scores become weights e^(score - maximum); maximum, total and what older sums keep are brought up to date.
  template <class B>
  TP_DEVICE void Weights(B& block, const Tiles& t) const {
    const int32_t rows = shape.rows(), stride = rows + 4, each = shape.tile_keys / kParts;
    float* maxima = t.part;
    float* totals = t.part + kParts * rows;
    block.Each(kParts * rows, [&](int64_t i) {
      const int32_t r = static_cast<int32_t>(i) % rows, part = static_cast<int32_t>(i) / rows;
      float most = -INFINITY;
      for (int32_t j = part * each; j < (part + 1) * each; ++j) most = Larger()(most, t.weight[j * stride + r]);
      maxima[i] = most;
    });
    const auto maximum_of = [&](int32_t r) {
      float most = t.maximum[r];
      for (int32_t part = 0; part < kParts; ++part) most = Larger()(most, maxima[part * rows + r]);
      return most;
    };
    block.Each(kParts * rows, [&](int64_t i) {
      const int32_t r = static_cast<int32_t>(i) % rows, part = static_cast<int32_t>(i) / rows;
      const float shift = Shift(maximum_of(r));
      float total = 0;
      for (int32_t j = part * each; j < (part + 1) * each; ++j) {
        const float weight = expf(t.weight[j * stride + r] - shift);
        t.weight[j * stride + r] = weight;
        total += weight;
      }
      totals[i] = total;
    });
    block.Each(rows, [&](int64_t i) {
      const int32_t r = static_cast<int32_t>(i);
      const float most = maximum_of(r);
      const float keep = expf(t.maximum[r] - Shift(most));
      float total = t.total[r] * keep;
      for (int32_t part = 0; part < kParts; ++part) total += totals[part * rows + r];
      t.keep[r] = keep;
      t.total[r] = total;
      t.maximum[r] = most;
    });
  }
  // Nothing seen yet: -infinity minus itself would be NaN.
  TP_HD static float Shift(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

  // sum[r] = sum[r] * keep[r] + the weighted values of the tile. A weight of 0 still meets the value: positions that a
  // row does not see must hold numbers, as those of later tokens of the call do.
  template <class B>
  TP_DEVICE void Accumulate(B& block, const Tiles& t, int32_t count) const {
    const AttentionShape& s = shape;
    const int32_t rows = s.rows(), width = s.row_floats(), stride = rows + 4, columns = width / 4 - 1;
    block.Each(static_cast<int64_t>(s.slices) * (rows / 4) * columns, [&](int64_t i) {
      const int32_t d = static_cast<int32_t>(i) % columns * 4;
      const int32_t rest = static_cast<int32_t>(i) / columns;
      const int32_t r = rest % (rows / 4) * 4, slice = rest / (rows / 4);
      float* to = t.sum + (slice * rows + r) * width + d;
      Pack<float, 4> sums[4];
#pragma unroll
      for (int32_t e = 0; e < 4; ++e) {
        sums[e] = *reinterpret_cast<const Pack<float, 4>*>(to + e * width);
        const float keep = t.keep[r + e];
#pragma unroll
        for (int32_t x = 0; x < 4; ++x) sums[e].at[x] *= keep;
      }
#pragma unroll 4
      for (int32_t j = slice; j < count; j += s.slices) {
        const Pack<float, 4> weight = *reinterpret_cast<const Pack<float, 4>*>(t.weight + j * stride + r);
        const Pack<T, 4> value = *reinterpret_cast<const Pack<T, 4>*>(t.value + j * width + d);
#pragma unroll
        for (int32_t x = 0; x < 4; ++x) {
          const float v = WidenFast(value.at[x]);
#pragma unroll
          for (int32_t e = 0; e < 4; ++e) sums[e].at[x] += weight.at[e] * v;
        }
      }
#pragma unroll
      for (int32_t e = 0; e < 4; ++e) *reinterpret_cast<Pack<float, 4>*>(to + e * width) = sums[e];
    });
  }
};

}  // namespace tp::worker::cuda
