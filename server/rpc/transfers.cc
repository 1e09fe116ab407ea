#include "server/rpc/transfers.h"

#include <utility>

namespace tp::server {

void Transfers::Offer(uint64_t id, const std::string& worker, std::shared_ptr<const std::string> bytes) {
  offers_[id] = {worker, std::move(bytes)};
}

absl::StatusOr<std::shared_ptr<const std::string>> Transfers::Find(uint64_t id, const std::string& worker) const {
  auto it = offers_.find(id);
  if (it == offers_.end() || it->second.worker != worker) {
    return absl::NotFoundError(absl::StrCat("transfer ", id, " is not offered to worker ", worker));
  }
  return it->second.bytes;
}

void Transfers::Cancel(uint64_t id) {
  offers_.erase(id);
  uploads_.Cancel(id);
  downloads_.Cancel(id);
}

void Transfers::LoseWorker(const std::string& worker) {
  for (auto it = offers_.begin(); it != offers_.end();) {
    it = it->second.worker == worker ? offers_.erase(it) : std::next(it);
  }
  std::vector<std::shared_ptr<LossListener>> told;
  for (auto it = listeners_.begin(); it != listeners_.end();) {
    told.push_back(it->lock());
    it = told.back() == nullptr ? listeners_.erase(it) : std::next(it);
  }
  for (const auto& listener : told) {
    if (listener != nullptr) listener->OnWorkerLost(worker);
  }
  uploads_.LoseWorker(worker);
  downloads_.LoseWorker(worker);
}

}  // namespace tp::server
