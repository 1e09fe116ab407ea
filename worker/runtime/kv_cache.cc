#include "worker/runtime/kv_cache.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {

PagePool::PagePool(int pages) : pages_(pages) {
  for (int32_t page = 0; page < pages; ++page) free_.insert(free_.end(), page);
}

absl::StatusOr<int32_t> PagePool::Take() {
  if (free_.empty())
    return absl::ResourceExhaustedError(absl::StrCat("cache_pages: all ", pages_, " pages are in use"));
  const int32_t page = *free_.begin();
  free_.erase(free_.begin());
  return page;
}

absl::Status SequenceTable::Join(const JoinSequence& join) {
  auto [it, added] = sequences_.try_emplace(join.sequence_id);
  if (!added) return absl::AlreadyExistsError(absl::StrCat("sequence ", join.sequence_id, " is running"));
  it->second.sampling = join.sampling;
  it->second.max_new_tokens = join.max_new_tokens;
  it->second.stop_ids = join.stop_ids;
  return absl::OkStatus();
}

void SequenceTable::Leave(uint64_t id) {
  auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  for (int32_t page : it->second.pages) pool_.Give(page);
  sequences_.erase(it);
}

Sequence* SequenceTable::Find(uint64_t id) {
  auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

absl::Status SequenceTable::Reserve(Sequence& sequence, int64_t count) {
  const int64_t needed = (sequence.past + count + kPageSize - 1) / kPageSize;
  while (static_cast<int64_t>(sequence.pages.size()) < needed) {
    TP_ASSIGN_OR_RETURN(const int32_t page, pool_.Take());
    sequence.pages.push_back(page);
  }
  return absl::OkStatus();
}

}  // namespace tp::worker
