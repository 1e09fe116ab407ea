// Checks of a collective call's arguments that all backends share; INVALID_ARGUMENT naming the argument. Example:
//   TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tp::worker {

// One count for each of `members`, none below 0.
absl::Status CheckCounts(absl::string_view name, absl::Span<const int64_t> counts, size_t members);
// Different ranks of [0, size), `rank` among them; its index.
absl::StatusOr<int> CheckGroup(absl::Span<const int> group, int rank, int size);
// The index of `wanted` in the group.
absl::StatusOr<int> IndexInGroup(absl::Span<const int> group, int wanted);
// What a rank sends to itself it receives.
absl::Status CheckOwnBlock(int rank, int64_t sends, int64_t receives);
// The ends of a send_receive.
absl::Status CheckSendReceive(int rank, int size, int to, int64_t send_count, int from, int64_t receive_count);

}  // namespace tp::worker
