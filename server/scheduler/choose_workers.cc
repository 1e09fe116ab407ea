#include "server/scheduler/choose_workers.h"

#include <algorithm>
#include <tuple>

namespace tp::server {

std::vector<std::string> ChooseWorkers(std::vector<WorkerCandidate> candidates, int count) {
  if (static_cast<int>(candidates.size()) < count) return {};
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
