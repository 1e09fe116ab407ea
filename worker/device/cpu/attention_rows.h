// What one call of the attention kernel's row code works on. Not used outside kernels_attention.cc.
#pragma once

#include <cstdint>

namespace tp::worker::kernels {

constexpr int64_t kPagePositions = 16;  // positions of a page of the cache; also the block of keys seen at once
constexpr int64_t kBlockRows = 16;      // query rows of one unit of work

// The query rows [row_begin, row_end) of one sequence and one kv head: row r is token r / group of the sequence and
// query head r % group of the kv head's `group` heads. All strides are in elements. T is float or uint16_t (BF16).
template <typename T>
struct AttentionRows {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t group = 1;
  int64_t dim = 0;
  const T* query = nullptr;  // first token of the sequence, first query head of the kv head
  T* output = nullptr;       // likewise
  int64_t query_stride = 0;  // from token to token
  float scale = 1;
  bool causal = true;
  int64_t past = 0;
  int64_t count = 0;
  // Without pages: the first token's key and value of the kv head. With pages: those of the kv head in page 0.
  const T* key = nullptr;
  const T* value = nullptr;
  int64_t position_stride = 0;
  const int32_t* pages = nullptr;
  int64_t page_stride = 0;
};

// F32 elements of scratch that the row code needs for one thread.
inline int64_t AttentionScratch(int64_t dim) {
  const int64_t padded = (dim + 15) / 16 * 16;
  return (2 * kBlockRows + 3 * kPagePositions) * padded;
}

}  // namespace tp::worker::kernels
