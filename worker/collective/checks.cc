#include "worker/collective/checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace tp::worker {

absl::Status CheckCounts(absl::string_view name, absl::Span<const int64_t> counts, size_t members) {
  if (counts.size() != members) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", counts.size(), " for a group of ", members));
  }
  for (int64_t count : counts) {
    if (count < 0) return absl::InvalidArgumentError(absl::StrCat(name, ": [", absl::StrJoin(counts, ", "), "]"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> CheckGroup(absl::Span<const int> group, int rank, int size) {
  for (const int member : group) {
    if (member < 0 || member >= size || std::count(group.begin(), group.end(), member) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("group [", absl::StrJoin(group, ", "), "] of a communicator of ", size, " ranks"));
    }
  }
  return IndexInGroup(group, rank);
}

absl::StatusOr<int> IndexInGroup(absl::Span<const int> group, int wanted) {
  const auto it = std::find(group.begin(), group.end(), wanted);
  if (it == group.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", wanted, " is not in the group [", absl::StrJoin(group, ", "), "]"));
  }
  return static_cast<int>(it - group.begin());
}

absl::Status CheckOwnBlock(int rank, int64_t sends, int64_t receives) {
  if (sends == receives) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank, " sends ", sends, " elements to itself and receives ", receives));
}

absl::Status CheckSendReceive(int rank, int size, int to, int64_t send_count, int from, int64_t receive_count) {
  TP_RETURN_IF_ERROR(CheckCounts("send_count, receive_count", {send_count, receive_count}, 2));
  if (to < -1 || to >= size || from < -1 || from >= size) {
    return absl::InvalidArgumentError(absl::StrCat("send to ", to, ", receive from ", from, " of ", size, " ranks"));
  }
  if ((to == rank) != (from == rank) || (to == rank && send_count != receive_count)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " sends ", send_count, " elements to ", to,
                                                   " and receives ", receive_count, " from ", from));
  }
  return absl::OkStatus();
}

}  // namespace tp::worker
