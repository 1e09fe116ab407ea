// The byte ranges of a file that hold a block of a row-major tensor. Example: columns [0, 2) of F32 [3, 4] at byte 100:
// runs {100, 8, 0}, {116, 8, 8}, {132, 8, 16}; they are short and close, so they make one read of [100, 140).
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/layout/spec.h"

namespace tp::worker {

struct ByteRun {
  int64_t offset = 0;  // in the file
  int64_t size = 0;
  int64_t to = 0;  // in the dense block
  bool operator==(const ByteRun&) const = default;
};
// In ascending order of both offsets. `block` has ascending intervals for each dim of `shape`.
std::vector<ByteRun> ByteRunsOf(absl::Span<const int64_t> shape, int64_t item_size, int64_t begin,
                                absl::Span<const std::vector<Interval>> block);

// A run of this size or more is read on its own; shorter ones whose gaps are at most as large are read as one span.
inline constexpr int64_t kLongRun = 4 << 10;
// The most that one read asks for.
inline constexpr int64_t kMaxRead = 4 << 20;

struct Read {
  int64_t offset = 0, size = 0;
  size_t first_run = 0, run_count = 0;
};
// Reads that cover the runs in order; a run longer than kMaxRead is read in pieces, whose Read names it alone.
std::vector<Read> ReadsOf(absl::Span<const ByteRun> runs);

// The consecutive runs of bytes that a box has in a dense row-major array and in a larger one that the array is a part
// of; all runs have one size. Example: the box [0, 3) x [2, 4) of an F32 [3, 4] that is columns 0 to 3 of a [3, 9]:
// three runs of 8 bytes, at 8, 24, 40 in the array and at 8, 44, 80 in the larger one.
class BoxRuns {
 public:
  // `local`: where the box lies in the array of shape `array`; `offset`: where in the one of shape `outer`.
  BoxRuns(absl::Span<const int64_t> sizes, absl::Span<const int64_t> local, absl::Span<const int64_t> array,
          absl::Span<const int64_t> offset, absl::Span<const int64_t> outer, int64_t item_size);
  int64_t count() const { return count_; }
  int64_t run_bytes() const { return run_bytes_; }
  struct Place {
    int64_t in_array = 0, in_outer = 0;  // bytes
  };
  // 0 <= run < count(), in row-major order of the box.
  Place At(int64_t run) const;

 private:
  Shape counts_, array_steps_, outer_steps_;  // of the dims that runs differ in, in bytes
  Place first_;
  int64_t count_ = 1, run_bytes_ = 0;
};

}  // namespace tp::worker
