// The headers that the ranks of a mesh exchange around the steps of a command, so that no payload moves before all
// agree and no result leaves before all succeeded. Example:
//   Agreement agreement(communicator, {.epoch = 3, .sequence = order, .fingerprint = f}, pace);
//   AgreedStatus opened = agreement.Exchange(0, /*closing=*/false, local_status);
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/runtime/pace.h"

namespace tp::worker {

struct AgreedStatus {
  absl::Status status;     // OK: all ranks agree and none failed
  int failed_rank = -1;    // the first that failed, where one did
  bool transport = false;  // the exchange itself failed: the communicator can't be used any more
};

// Owned by the executor thread.
class Agreement {
 public:
  // `group`: the ranks that take part, ascending, this one among them; empty = all.
  Agreement(Communicator& communicator, StepHeader header, Pace& pace, std::vector<int> group = {})
      : communicator_(communicator), header_(header), pace_(pace), group_(std::move(group)) {
    if (!group_.empty()) return;
    group_.resize(static_cast<size_t>(communicator.size()));
    std::iota(group_.begin(), group_.end(), 0);
  }

  // All ranks of the group call it at the same points. The status is this rank's own where it failed itself, so that
  // its text is the cause; that code, naming the first failed rank, on the others. Blocks until all headers are here or
  // the deadline.
  AgreedStatus Exchange(uint32_t step, bool closing, const absl::Status& mine) {
    header_.step = step;
    header_.flags = closing ? 1 : 0;
    header_.status = static_cast<int32_t>(mine.code());
    absl::StatusOr<std::vector<StepHeader>> headers =
        communicator_.ExchangeHeaders(group_, header_, opened_ ? pace_.Deadline() : pace_.OpeningDeadline());
    opened_ = true;
    pace_.Advance();
    // What this rank knows already is nearer to the cause than the peer that is gone.
    if (!headers.ok()) return {mine.ok() ? headers.status() : mine, mine.ok() ? -1 : communicator_.rank(), true};
    AgreedStatus agreed{AgreeOn(group_, *headers), -1, false};
    if (agreed.status.ok()) return agreed;
    for (size_t i = 0; i < headers->size() && agreed.failed_rank < 0; ++i) {
      if ((*headers)[i].status != 0) agreed.failed_rank = group_[i];
    }
    if (!mine.ok()) agreed.status = mine;
    return agreed;
  }

 private:
  Communicator& communicator_;
  StepHeader header_;
  Pace& pace_;
  bool opened_ = false;
  std::vector<int> group_;
};

}  // namespace tp::worker
