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

}  // namespace tp::worker
