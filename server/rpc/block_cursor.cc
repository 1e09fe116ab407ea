#include "server/rpc/block_cursor.h"

#include <algorithm>

namespace tp::server {

BlockCursor::BlockCursor(const Shape& global, int64_t item_size, const Placements& placements, const Mesh& mesh,
                         absl::Span<const int> coordinate) {
  size_t last = 0;  // one past the last dim that is cut
  for (size_t d = 0; d < global.size(); ++d) {
    owned_.push_back(OwnedIntervals(global[d], static_cast<int>(d), placements, mesh, coordinate));
    const std::vector<Interval>& owned = owned_.back();
    ended_ = ended_ || owned.empty() || owned[0].begin == owned[0].end;
    if (owned != std::vector<Interval>{{0, global[d]}}) last = d + 1;
  }
  // A dim that is whole is one run with those after it, so the first one serves where none is cut.
  last = std::max<size_t>(last, std::min<size_t>(global.size(), 1));
  int64_t stride = item_size;
  for (size_t d = global.size(); d > last; --d) stride *= global[d - 1];
  owned_.resize(last);
  strides_.resize(last);
  for (size_t d = last; d > 0; --d) {
    strides_[d - 1] = stride;
    stride *= global[d - 1];
  }
  if (ended_) return;
  interval_.assign(last, 0);
  for (size_t d = 0; d < last; ++d) index_.push_back(owned_[d][0].begin);
  if (last == 0) {  // a scalar
    run_end_ = item_size;
  } else {
    SetRun();
  }
}

void BlockCursor::SetRun() {
  const size_t last = owned_.size() - 1;
  int64_t base = 0;
  for (size_t d = 0; d < last; ++d) base += index_[d] * strides_[d];
  const Interval& run = owned_[last][interval_[last]];
  run_begin_ = base + run.begin * strides_[last];
  run_end_ = base + run.end * strides_[last];
}

void BlockCursor::Next() {
  if (owned_.empty()) {
    ended_ = true;
    return;
  }
  size_t d = owned_.size() - 1;
  if (++interval_[d] < owned_[d].size()) return SetRun();
  interval_[d] = 0;
  while (d > 0) {
    --d;
    if (++index_[d] < owned_[d][interval_[d]].end) return SetRun();
    if (++interval_[d] < owned_[d].size()) {
      index_[d] = owned_[d][interval_[d]].begin;
      return SetRun();
    }
    interval_[d] = 0;
    index_[d] = owned_[d][0].begin;
  }
  ended_ = true;
}

void BlockCursor::Take(std::string_view bytes, std::string* out) {
  const int64_t end = position_ + static_cast<int64_t>(bytes.size());
  while (!ended_ && run_begin_ < end) {
    const int64_t from = std::max(run_begin_, position_);
    const int64_t to = std::min(run_end_, end);
    out->append(bytes.substr(static_cast<size_t>(from - position_), static_cast<size_t>(to - from)));
    if (run_end_ > end) break;  // goes on in the next bytes
    Next();
  }
  position_ = end;
}

}  // namespace tp::server
