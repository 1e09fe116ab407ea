#include "server/coordinator/worker_addresses.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/hosts.h"

namespace tp::server {
namespace {

// `host` stands in `text` as an address of its own: "10.0.0.1" is not in "10.0.0.12" or "110.0.0.1".
bool Names(const std::string& text, const std::string& host) {
  const auto part = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.'; };
  for (size_t at = text.find(host); !host.empty() && at != std::string::npos; at = text.find(host, at + 1)) {
    const size_t end = at + host.size();
    if ((at == 0 || !part(text[at - 1])) && (end == text.size() || !part(text[end]))) return true;
  }
  return false;
}

}  // namespace

absl::Status CheckAdvertised(const WorkerDescription& worker) {
  if (worker.same_host || !IsLoopbackHost(worker.host)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker '", worker.id, "' joins from ", worker.peer, " but advertises ", worker.host,
      " for its collectives, where no other host reaches it; give it --collective-host with an address of an interface "
      "that other workers reach"));
}

absl::Status CheckOneNetwork(const std::vector<const WorkerDescription*>& workers) {
  const WorkerDescription *loopback = nullptr, *other = nullptr;
  for (const WorkerDescription* worker : workers) {
    if (worker->host.empty()) continue;
    const WorkerDescription*& first = IsLoopbackHost(worker->host) ? loopback : other;
    if (first == nullptr) first = worker;
  }
  if (loopback == nullptr || other == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("workers '", loopback->id, "' at ", loopback->host, " and '", other->id, "' at ", other->host,
                   " can't reach each other in one mesh; give '", loopback->id,
                   "' --collective-host with an address of an interface that other workers reach"));
}

std::string NamesOfAddresses(const std::string& text, const std::vector<std::string>& workers,
                             const std::vector<std::string>& hosts) {
  std::string names;
  int count = 0;
  for (size_t rank = 0; rank < workers.size() && rank < hosts.size() && count < 4; ++rank) {
    if (!Names(text, hosts[rank])) continue;
    ++count;
    absl::StrAppend(&names, names.empty() ? "" : "; ", "rank ", rank, " is worker ", workers[rank],
                    ", which advertises ", hosts[rank]);
  }
  return names;
}

}  // namespace tp::server
