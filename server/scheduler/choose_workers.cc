#include "server/scheduler/choose_workers.h"

#include <algorithm>
#include <tuple>

#include "common/base/hosts.h"

namespace tp::server {

std::vector<std::string> ChooseWorkers(std::vector<WorkerCandidate> candidates, int count) {
  if (static_cast<int>(candidates.size()) < count) return {};
  const auto local = std::stable_partition(candidates.begin(), candidates.end(),
                                           [](const WorkerCandidate& c) { return !IsLoopbackHost(c.host); });
  if (count > 1 && local - candidates.begin() >= count) {
    candidates.erase(local, candidates.end());
  } else if (count > 1 && candidates.end() - local >= count) {
    candidates.erase(candidates.begin(), local);
  }
  std::sort(candidates.begin(), candidates.end(), [](const WorkerCandidate& a, const WorkerCandidate& b) {
    return std::tie(a.ranks, a.host, a.id) < std::tie(b.ranks, b.host, b.id);
  });
  candidates.resize(count);
  std::sort(candidates.begin(), candidates.end(), [](const WorkerCandidate& a, const WorkerCandidate& b) {
    return std::tie(a.host, a.id) < std::tie(b.host, b.id);
  });
  std::vector<std::string> ids;
  for (WorkerCandidate& candidate : candidates) ids.push_back(std::move(candidate.id));
  return ids;
}

}  // namespace tp::server
