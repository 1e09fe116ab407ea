#include "server/coordinator/memory_ledger.h"

#include "absl/strings/str_cat.h"

namespace tp::server {

absl::StatusOr<uint64_t> MemoryLedger::Reserve(const std::string& what, const std::vector<MemoryNeed>& needs) {
  std::map<std::string, int64_t> added;
  for (const MemoryNeed& need : needs) {
    int64_t& sum = added[need.worker];
    int64_t total = 0;
    const bool overflow =
        __builtin_add_overflow(sum, need.bytes, &sum) || __builtin_add_overflow(sum, Held(need.worker), &total);
    if (overflow || (need.limit > 0 && total > need.limit)) {
      return absl::ResourceExhaustedError(absl::StrCat("worker '", need.worker, "' (rank ", need.rank, "): ", what,
                                                       " needs ", sum, " bytes beside ", Held(need.worker),
                                                       " in use, its memory limit is ", need.limit));
    }
  }
  const uint64_t key = ++last_;
  for (const auto& [worker, bytes] : added) {
    entries_[key].emplace_back(worker, bytes);
    held_[worker] += bytes;
  }
  return key;
}

void MemoryLedger::Release(uint64_t key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  for (const auto& [worker, bytes] : it->second) held_[worker] -= bytes;
  entries_.erase(it);
}

void MemoryLedger::LoseWorker(const std::string& worker) {
  for (auto& [key, entry] : entries_) {
    for (auto& [id, bytes] : entry) {
      if (id == worker) bytes = 0;
    }
  }
  held_.erase(worker);
}

int64_t MemoryLedger::Held(const std::string& worker) const {
  const auto it = held_.find(worker);
  return it == held_.end() ? 0 : it->second;
}

}  // namespace tp::server
