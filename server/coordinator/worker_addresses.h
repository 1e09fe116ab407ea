// The addresses that workers advertise for their collectives: which can't be reached from other hosts, and texts that
// name them. Example:
//   TP_RETURN_IF_ERROR(CheckAdvertised(worker));                  // as it joins
//   TP_RETURN_IF_ERROR(CheckOneNetwork({workers of a mesh}));     // before they connect
// Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/coordinator/state.h"

namespace tp::server {

// FAILED_PRECONDITION where a worker of another host advertises loopback. One that advertises nothing is not checked.
absl::Status CheckAdvertised(const WorkerDescription& worker);

// FAILED_PRECONDITION naming two workers of which one advertises loopback and the other does not: they can't reach each
// other.
absl::Status CheckOneNetwork(const std::vector<const WorkerDescription*>& workers);

// "rank 0 is worker w0, which advertises 10.0.0.2; rank 1 ..": those of the ranks whose address is in `text`, at most
// four; "" for none. Both by rank.
std::string NamesOfAddresses(const std::string& text, const std::vector<std::string>& workers,
                             const std::vector<std::string>& hosts);

}  // namespace tp::server
