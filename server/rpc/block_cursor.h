// Cuts the bytes of a global tensor, which come in row-major order, into those of one rank's block: a block's elements
// keep their order, so what is taken is the local block, row-major. Example: rows of 4 F32, S(1) on tp=2, rank 1:
//   BlockCursor cursor({3, 4}, 4, {Placement::Shard(1)}, mesh, {1});
//   cursor.Take(bytes_of_row_0, &out);   // appends columns 2 and 3
// Pure; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/layout/spec.h"

namespace tp::server {

class BlockCursor {
 public:
  // `placements` are validated and without P.
  BlockCursor(const Shape& global, int64_t item_size, const Placements& placements, const Mesh& mesh,
              absl::Span<const int> coordinate);
  // `bytes` are the next ones of the global tensor, at most up to its end; appends those of the block. Takes time in
  // proportion to the runs of the block in them.
  void Take(std::string_view bytes, std::string* out);

 private:
  // Moves to the next run, or past the end.
  void Next();
  void SetRun();
  int64_t position_ = 0;                 // global offset of the next bytes
  int64_t run_begin_ = 0, run_end_ = 0;  // global offsets of the current run
  bool ended_ = false;
  // Dims up to the last that is cut; what follows is whole.
  std::vector<std::vector<Interval>> owned_;
  std::vector<int64_t> strides_;  // bytes
  std::vector<size_t> interval_;  // current one of each dim
  std::vector<int64_t> index_;    // current global index of each dim but the last, whose intervals are the runs
};

}  // namespace tp::server
