#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/attention_rows.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu/kernels_attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "worker/device/cpu/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

void AttendF32(const AttentionRows<float>& work, float* scratch) { AttendRows(work, scratch); }
void AttendBF16(const AttentionRows<uint16_t>& work, float* scratch) { AttendRows(work, scratch); }

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp::worker::kernels {
HWY_EXPORT(AttendF32);
HWY_EXPORT(AttendBF16);

namespace {

constexpr int64_t kSerialWork = int64_t{1} << 17;  // multiplications; below, one thread is faster

void Attend(const AttentionRows<float>& work, float* scratch) { HWY_DYNAMIC_DISPATCH(AttendF32)(work, scratch); }
void Attend(const AttentionRows<uint16_t>& work, float* scratch) { HWY_DYNAMIC_DISPATCH(AttendBF16)(work, scratch); }

struct Sizes {
  int64_t tokens = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t dim = 0;
};

absl::StatusOr<Sizes> Check(const AttentionArguments& a) {
  TP_RETURN_IF_ERROR(CheckSame("attention's query and output", a.query, a.output));
  TP_RETURN_IF_ERROR(CheckSame("attention's key and value", a.key, a.value));
  if (a.query.dtype != DType::kF32 && a.query.dtype != DType::kBF16) return Unimplemented("attention", a.query.dtype);
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
  for (const SequenceSpan& s : a.sequences) {
    if (s.first_token < 0 || s.count < 0 || s.past < 0 || s.first_token + s.count > sizes.tokens) {
      return absl::InvalidArgumentError(absl::StrCat("attention: a sequence of ", s.count, " tokens from ",
                                                     s.first_token, " in ", sizes.tokens, " tokens"));
    }
    if (a.cache == nullptr) {
      if (s.past != 0) return absl::InvalidArgumentError("attention: past positions without a cache");
      continue;
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
  }
  return sizes;
}

// Keys and values of this call into their pages.
template <typename T>
void WriteCache(const AttentionArguments& a, const Sizes& sizes) {
  const int64_t head = kPagePositions * sizes.dim;
  const size_t bytes = static_cast<size_t>(sizes.dim) * sizeof(T);
  for (const SequenceSpan& s : a.sequences) {
    for (int64_t t = 0; t < s.count; ++t) {
      const int64_t position = s.past + t;
      const int64_t page = s.pages[static_cast<size_t>(position / kPagePositions)];
      for (int64_t h = 0; h < sizes.kv_heads; ++h) {
        const int64_t from = ((s.first_token + t) * sizes.kv_heads + h) * sizes.dim;
        T* key = static_cast<T*>(a.cache->base) + (page * 2 * sizes.kv_heads + h) * head +
                 position % kPagePositions * sizes.dim;
        std::memcpy(key, static_cast<const T*>(a.key.data) + from, bytes);
        std::memcpy(key + sizes.kv_heads * head, static_cast<const T*>(a.value.data) + from, bytes);
      }
    }
  }
}

// One unit of work for each (sequence, kv head, block of query rows).
template <typename T>
std::vector<AttentionRows<T>> Units(const AttentionArguments& a, const Sizes& sizes) {
  std::vector<AttentionRows<T>> units;
  for (const SequenceSpan& s : a.sequences) {
    for (int64_t h = 0; h < sizes.kv_heads; ++h) {
      AttentionRows<T> unit;
      unit.group = sizes.q_heads / sizes.kv_heads;
      unit.dim = sizes.dim;
      unit.query_stride = sizes.q_heads * sizes.dim;
      const int64_t query = s.first_token * unit.query_stride + h * unit.group * sizes.dim;
      unit.query = static_cast<const T*>(a.query.data) + query;
      unit.output = static_cast<T*>(a.output.data) + query;
      unit.scale = a.scale;
      unit.causal = a.causal;
      unit.past = s.past;
      unit.count = s.count;
      if (a.cache != nullptr) {
        const int64_t head = kPagePositions * sizes.dim;
        unit.pages = s.pages.data();
        unit.page_stride = 2 * sizes.kv_heads * head;
        unit.key = static_cast<const T*>(a.cache->base) + h * head;
        unit.value = unit.key + sizes.kv_heads * head;
        unit.position_stride = sizes.dim;
      } else {
        const int64_t first = (s.first_token * sizes.kv_heads + h) * sizes.dim;
        unit.key = static_cast<const T*>(a.key.data) + first;
        unit.value = static_cast<const T*>(a.value.data) + first;
        unit.position_stride = sizes.kv_heads * sizes.dim;
      }
      for (int64_t row = 0; row < s.count * unit.group; row += kBlockRows) {
        unit.row_begin = row;
        unit.row_end = std::min(row + kBlockRows, s.count * unit.group);
        units.push_back(unit);
      }
    }
  }
  return units;
}

template <typename T>
void Run(int threads, const AttentionArguments& a, const Sizes& sizes) {
  if (a.cache != nullptr) WriteCache<T>(a, sizes);
  if (sizes.q_heads == 0) return;
  const std::vector<AttentionRows<T>> units = Units<T>(a, sizes);
  int64_t work = 0;
  for (const SequenceSpan& s : a.sequences) work += s.count * (s.past + s.count) * sizes.q_heads * sizes.dim;
  ParallelFor(work < kSerialWork ? 1 : threads, static_cast<int64_t>(units.size()), 1, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<float> scratch;
    const size_t needed = static_cast<size_t>(AttentionScratch(sizes.dim));
    if (scratch.size() < needed) scratch.resize(needed);
    for (int64_t u = begin; u < end; ++u) Attend(units[static_cast<size_t>(u)], scratch.data());
  });
}

}  // namespace

absl::Status Attention(int threads, const AttentionArguments& arguments) {
  TP_ASSIGN_OR_RETURN(const Sizes sizes, Check(arguments));
  if (sizes.dim == 0) return absl::OkStatus();
  if (arguments.query.dtype == DType::kF32) {
    Run<float>(threads, arguments, sizes);
  } else {
    Run<uint16_t>(threads, arguments, sizes);
  }
  return absl::OkStatus();
}

}  // namespace tp::worker::kernels
#endif  // HWY_ONCE
