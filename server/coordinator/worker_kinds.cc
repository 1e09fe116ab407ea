#include "server/coordinator/worker_kinds.h"

#include <algorithm>

namespace tp::server {

std::string LibraryOf(const std::string& collectives) { return collectives.substr(0, collectives.find(' ')); }

std::string MostCommonKind(const std::map<std::string, WorkerState>& workers) {
  std::map<std::string, int> counts;
  for (const auto& [id, worker] : workers) {
    if (worker.healthy && !worker.draining) ++counts[worker.description.collectives];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : most->first;
}

DType DefaultComputeDType(const std::map<std::string, WorkerState>& workers) {
  return LibraryOf(MostCommonKind(workers)) == "nccl" ? DType::kBF16 : DType::kF32;
}

}  // namespace tp::server
