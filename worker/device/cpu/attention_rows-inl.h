// The row code of the attention kernel: blocks of 16 keys, softmax in F32 with a running maximum (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018), so that memory does not grow with the length.
#if defined(TP_WORKER_DEVICE_CPU_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TP_WORKER_DEVICE_CPU_ATTENTION_ROWS_INL_H_
#undef TP_WORKER_DEVICE_CPU_ATTENTION_ROWS_INL_H_
#else
#define TP_WORKER_DEVICE_CPU_ATTENTION_ROWS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "worker/device/cpu/attention_rows.h"
#include "worker/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

// dim elements as F32 times `factor`, zeros up to `padded`.
template <typename T>
HWY_INLINE void LoadPadded(const T* from, int64_t dim, int64_t padded, float factor, float* to) {
  MapRow(from, to, dim, [factor](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, factor)); });
  for (int64_t i = dim; i < padded; ++i) to[i] = 0;
}

// `n` rows of F32 with `*stride` elements between them: in place where possible, else copied to `copy`.
HWY_INLINE const float* FloatRows(const float* from, int64_t n, int64_t dim, int64_t padded, float* copy,
                                  int64_t* stride) {
  if (dim == padded) return from;
  for (int64_t j = 0; j < n; ++j) LoadPadded(from + j * *stride, dim, padded, 1.0f, copy + j * padded);
  *stride = padded;
  return copy;
}
HWY_INLINE const float* FloatRows(const uint16_t* from, int64_t n, int64_t dim, int64_t padded, float* copy,
                                  int64_t* stride) {
  for (int64_t j = 0; j < n; ++j) LoadPadded(from + j * *stride, dim, padded, 1.0f, copy + j * padded);
  *stride = padded;
  return copy;
}

// scores[r][j] = q[r] . k[j] for few rows: one product after the other.
HWY_INLINE void ScoresByRow(const float* q, int64_t rows, const float* k, int64_t stride, int64_t n, int64_t padded,
                            float* scores) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t r = 0; r < rows; ++r) {
      FloatVec sum = hn::Zero(d);
      for (int64_t i = 0; i < padded; i += lanes) {
        sum = hn::MulAdd(hn::LoadU(d, q + r * padded + i), hn::LoadU(d, k + j * stride + i), sum);
      }
      scores[r * kPagePositions + j] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

// The same for many rows: the keys are transposed, so that a vector holds the scores of several keys.
HWY_INLINE void ScoresByKeys(const float* q, int64_t rows, const float* k, int64_t stride, int64_t n, int64_t padded,
                             float* transposed, float* scores) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < padded; ++i) {
    for (int64_t j = 0; j < n; ++j) transposed[i * kPagePositions + j] = k[j * stride + i];
    for (int64_t j = n; j < kPagePositions; ++j) transposed[i * kPagePositions + j] = 0;
  }
  const auto run = [&](int64_t r, auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    for (int64_t j = 0; j < kPagePositions; j += lanes) {
      FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      const float* row = q + r * padded;
      for (int64_t i = 0; i < padded; ++i) {
        const FloatVec key = hn::LoadU(d, transposed + i * kPagePositions + j);
        sum0 = hn::MulAdd(hn::Set(d, row[i]), key, sum0);
        if constexpr (kRows == 4) {
          sum1 = hn::MulAdd(hn::Set(d, row[padded + i]), key, sum1);
          sum2 = hn::MulAdd(hn::Set(d, row[2 * padded + i]), key, sum2);
          sum3 = hn::MulAdd(hn::Set(d, row[3 * padded + i]), key, sum3);
        }
      }
      hn::StoreU(sum0, d, scores + r * kPagePositions + j);
      if constexpr (kRows == 4) {
        hn::StoreU(sum1, d, scores + (r + 1) * kPagePositions + j);
        hn::StoreU(sum2, d, scores + (r + 2) * kPagePositions + j);
        hn::StoreU(sum3, d, scores + (r + 3) * kPagePositions + j);
      }
    }
  };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) run(r, std::integral_constant<int, 4>());
  for (; r < rows; ++r) run(r, std::integral_constant<int, 1>());
}

// Takes a block's `seen` scores (at least one) into the running maximum and sum of a row and into `sums`, the weighted
// values.
HWY_INLINE void TakeBlock(float* scores, int64_t seen, const float* v, int64_t stride, int64_t padded, float* maximum,
                          float* total, float* sums) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float most = *maximum;
  for (int64_t j = 0; j < seen; ++j) most = std::max(most, scores[j]);
  for (int64_t j = seen; j < kPagePositions; ++j) scores[j] = -std::numeric_limits<float>::infinity();
  const FloatVec shift = hn::Set(d, most);
  FloatVec weights = hn::Zero(d);
  for (int64_t j = 0; j < kPagePositions; j += lanes) {
    const FloatVec e = Exponential(d, hn::Sub(hn::LoadU(d, scores + j), shift));
    hn::StoreU(e, d, scores + j);
    weights = hn::Add(weights, e);
  }
  const FloatVec keep = Exponential(d, hn::Set(d, *maximum - most));
  *total = *total * hn::GetLane(keep) + hn::GetLane(hn::SumOfLanes(d, weights));
  *maximum = most;
  for (int64_t i = 0; i < padded; i += lanes) {
    FloatVec sum = hn::Mul(hn::LoadU(d, sums + i), keep);
    for (int64_t j = 0; j < seen; ++j) {
      sum = hn::MulAdd(hn::Set(d, scores[j]), hn::LoadU(d, v + j * stride + i), sum);
    }
    hn::StoreU(sum, d, sums + i);
  }
}

template <typename T>
void AttendRows(const AttentionRows<T>& work, float* scratch) {
  const int64_t padded = (work.dim + 15) / 16 * 16;
  float* q = scratch;
  float* sums = q + kBlockRows * padded;
  float* key_copy = sums + kBlockRows * padded;
  float* value_copy = key_copy + kPagePositions * padded;
  float* transposed = value_copy + kPagePositions * padded;
  float maximum[kBlockRows], total[kBlockRows];
  HWY_ALIGN float scores[kBlockRows * kPagePositions];
  const int64_t rows = work.row_end - work.row_begin;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = work.row_begin + r;
    const T* from = work.query + row / work.group * work.query_stride + row % work.group * work.dim;
    LoadPadded(from, work.dim, padded, work.scale, q + r * padded);
    std::fill(sums + r * padded, sums + (r + 1) * padded, 0.0f);
    maximum[r] = -std::numeric_limits<float>::infinity();
    total[r] = 0;
  }
  const int64_t length = work.past + work.count;
  const int64_t last = work.causal ? work.past + (work.row_end - 1) / work.group + 1 : length;
  for (int64_t first = 0; first < last; first += kPagePositions) {
    const int64_t n = std::min(kPagePositions, length - first);
    const int64_t start =
        work.pages != nullptr ? work.pages[first / kPagePositions] * work.page_stride : first * work.position_stride;
    int64_t key_stride = work.position_stride;
    int64_t value_stride = work.position_stride;
    const float* k = FloatRows(work.key + start, n, work.dim, padded, key_copy, &key_stride);
    const float* v = FloatRows(work.value + start, n, work.dim, padded, value_copy, &value_stride);
    if (rows < 4) {
      ScoresByRow(q, rows, k, key_stride, n, padded, scores);
    } else {
      ScoresByKeys(q, rows, k, key_stride, n, padded, transposed, scores);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t sees = work.causal ? work.past + (work.row_begin + r) / work.group + 1 : length;
      const int64_t seen = std::min(n, sees - first);
      if (seen <= 0) continue;
      TakeBlock(scores + r * kPagePositions, seen, v, value_stride, padded, &maximum[r], &total[r], sums + r * padded);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = work.row_begin + r;
    T* to = work.output + row / work.group * work.query_stride + row % work.group * work.dim;
    const float divisor = total[r];
    MapRow(static_cast<const float*>(sums + r * padded), to, work.dim,
           [divisor](auto d, auto x) HWY_ATTR { return hn::Div(x, hn::Set(d, divisor)); });
  }
}

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TP_WORKER_DEVICE_CPU_ATTENTION_ROWS_INL_H_
