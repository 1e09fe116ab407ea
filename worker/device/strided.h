// Walks over row-major outputs whose operands are strided views: broadcasting and transposing. Neighbouring dims that
// are contiguous in every operand are joined first. Example, [4, 1, 8] + [8]: sizes {4, 8}, strides {8, 1} and {0, 1}.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor/shape.h"

namespace tp::worker {

// `Operands` views over one index space; sizes.size() >= 1. Immutable after Create.
template <size_t Operands>
struct StridedLoop {
  Shape sizes;
  std::array<Shape, Operands> strides;  // in elements

  static StridedLoop Create(absl::Span<const int64_t> sizes, const std::array<Shape, Operands>& strides) {
    StridedLoop loop;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1) continue;
      bool joins = !loop.sizes.empty();
      for (size_t o = 0; o < Operands && joins; ++o) joins = loop.strides[o].back() == strides[o][d] * sizes[d];
      if (joins) {
        loop.sizes.back() *= sizes[d];
        for (size_t o = 0; o < Operands; ++o) loop.strides[o].back() = strides[o][d];
      } else {
        loop.sizes.push_back(sizes[d]);
        for (size_t o = 0; o < Operands; ++o) loop.strides[o].push_back(strides[o][d]);
      }
    }
    if (loop.sizes.empty()) {
      loop.sizes.push_back(1);
      for (Shape& s : loop.strides) s.push_back(1);
    }
    return loop;
  }
  int64_t inner() const { return sizes.back(); }
  int64_t inner_stride(size_t operand) const { return strides[operand].back(); }
  int64_t outer() const { return ElementCount(absl::MakeConstSpan(sizes).first(sizes.size() - 1)); }

  // row(r, offsets of the operands) for the outer rows [begin, end).
  template <typename Row>
  void ForRows(int64_t begin, int64_t end, const Row& row) const {
    if (begin >= end) return;
    const size_t rank = sizes.size() - 1;
    Shape index(rank, 0);
    std::array<int64_t, Operands> offsets{};
    int64_t rest = begin;
    for (size_t d = rank; d-- > 0;) {
      index[d] = rest % sizes[d];
      rest /= sizes[d];
      for (size_t o = 0; o < Operands; ++o) offsets[o] += index[d] * strides[o][d];
    }
    for (int64_t r = begin; r < end; ++r) {
      row(r, offsets);
      for (size_t d = rank; d-- > 0;) {
        for (size_t o = 0; o < Operands; ++o) offsets[o] += strides[o][d];
        if (++index[d] < sizes[d]) break;
        index[d] = 0;
        for (size_t o = 0; o < Operands; ++o) offsets[o] -= sizes[d] * strides[o][d];
      }
    }
  }
};

}  // namespace tp::worker
