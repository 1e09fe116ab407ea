#include "worker/weights/byte_runs.h"

#include <algorithm>

namespace tp::worker {
namespace {

int64_t SizeOf(const std::vector<Interval>& intervals) {
  int64_t size = 0;
  for (const Interval& interval : intervals) size += interval.end - interval.begin;
  return size;
}

}  // namespace

std::vector<ByteRun> ByteRunsOf(absl::Span<const int64_t> shape, int64_t item_size, int64_t begin,
                                absl::Span<const std::vector<Interval>> block) {
  int64_t elements = 1;
  for (const auto& dim : block) elements *= SizeOf(dim);
  if (elements == 0) return {};
  // Inner dims that are held whole are one run.
  size_t outer = shape.size();
  int64_t inner = item_size;
  while (outer > 0 && block[outer - 1].size() == 1 && SizeOf(block[outer - 1]) == shape[outer - 1]) {
    inner *= shape[--outer];
  }
  if (outer == 0) return {{begin, inner, 0}};
  std::vector<int64_t> strides(outer, inner);  // bytes
  for (size_t d = outer - 1; d > 0; --d) strides[d - 1] = strides[d] * shape[d];

  std::vector<ByteRun> runs;
  // Position of each dim but the last: an interval and an index in it.
  std::vector<size_t> interval(outer, 0);
  std::vector<int64_t> index(outer, 0);
  auto skip_empty = [&](size_t d) {
    while (interval[d] < block[d].size() && block[d][interval[d]].begin == block[d][interval[d]].end) ++interval[d];
    if (interval[d] < block[d].size()) index[d] = block[d][interval[d]].begin;
    return interval[d] < block[d].size();
  };
  for (size_t d = 0; d + 1 < outer; ++d) skip_empty(d);
  int64_t to = 0;
  while (true) {
    int64_t offset = begin;
    for (size_t d = 0; d + 1 < outer; ++d) offset += index[d] * strides[d];
    for (const Interval& last : block[outer - 1]) {
      const int64_t size = (last.end - last.begin) * inner;
      if (size == 0) continue;
      runs.push_back({offset + last.begin * inner, size, to});
      to += size;
    }
    size_t d = outer - 1;
    for (; d > 0; --d) {
      if (++index[d - 1] < block[d - 1][interval[d - 1]].end) break;
      ++interval[d - 1];
      if (skip_empty(d - 1)) break;
      interval[d - 1] = 0;
      skip_empty(d - 1);
    }
    if (d == 0) return runs;
  }
}

std::vector<Read> ReadsOf(absl::Span<const ByteRun> runs) {
  std::vector<Read> reads;
  for (size_t i = 0; i < runs.size();) {
    if (runs[i].size >= kLongRun) {
      for (int64_t done = 0; done < runs[i].size; done += kMaxRead) {
        reads.push_back({runs[i].offset + done, std::min(kMaxRead, runs[i].size - done), i, 1});
      }
      ++i;
      continue;
    }
    const int64_t first = runs[i].offset;
    size_t last = i;
    while (last + 1 < runs.size() && runs[last + 1].size < kLongRun &&
           runs[last + 1].offset - (runs[last].offset + runs[last].size) <= kLongRun &&
           runs[last + 1].offset + runs[last + 1].size - first <= kMaxRead) {
      ++last;
    }
    reads.push_back({first, runs[last].offset + runs[last].size - first, i, last - i + 1});
    i = last + 1;
  }
  return reads;
}

BoxRuns::BoxRuns(absl::Span<const int64_t> sizes, absl::Span<const int64_t> local, absl::Span<const int64_t> array,
                 absl::Span<const int64_t> offset, absl::Span<const int64_t> outer, int64_t item_size)
    : run_bytes_(item_size) {
  int64_t array_step = item_size, outer_step = item_size;
  bool whole = true;  // what lies inside of this dim is one run in both arrays
  for (size_t d = sizes.size(); d-- > 0;) {
    first_.in_array += local[d] * array_step;
    first_.in_outer += offset[d] * outer_step;
    if (whole) {
      run_bytes_ *= sizes[d];
      whole = sizes[d] == array[d] && sizes[d] == outer[d];
    } else {
      counts_.insert(counts_.begin(), sizes[d]);
      array_steps_.insert(array_steps_.begin(), array_step);
      outer_steps_.insert(outer_steps_.begin(), outer_step);
      count_ *= sizes[d];
    }
    array_step *= array[d];
    outer_step *= outer[d];
  }
  if (run_bytes_ == 0) count_ = 0;
}

BoxRuns::Place BoxRuns::At(int64_t run) const {
  Place place = first_;
  for (size_t d = counts_.size(); d-- > 0;) {
    const int64_t index = run % counts_[d];
    run /= counts_[d];
    place.in_array += index * array_steps_[d];
    place.in_outer += index * outer_steps_[d];
  }
  return place;
}

}  // namespace tp::worker
