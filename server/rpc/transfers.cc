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

std::vector<std::shared_ptr<LossListener>> Transfers::Listeners() {
  std::vector<std::shared_ptr<LossListener>> alive;
  for (auto it = listeners_.begin(); it != listeners_.end();) {
    if (std::shared_ptr<LossListener> listener = it->lock()) {
      alive.push_back(std::move(listener));
      ++it;
    } else {
      it = listeners_.erase(it);
    }
  }
  return alive;
}

void Transfers::Cut(const absl::Status& status) {
  for (const auto& listener : Listeners()) listener->OnCut(status);
}

void Transfers::LoseWorker(const std::string& worker) {
  for (auto it = offers_.begin(); it != offers_.end();) {
    it = it->second.worker == worker ? offers_.erase(it) : std::next(it);
  }
  for (const auto& listener : Listeners()) listener->OnWorkerLost(worker);
  uploads_.LoseWorker(worker);
  downloads_.LoseWorker(worker);
}

}  // namespace tp::server
