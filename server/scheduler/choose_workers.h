// Which workers hold the ranks of a new mesh (SEMANTICS 1). Example: four idle workers of two hosts and a mesh tp=2
// give two of one host.
#pragma once

#include <string>
#include <vector>

namespace tp::server {

struct WorkerCandidate {
  std::string id, host;
  int ranks = 0;  // that it holds already
};
// Ids by rank: those with the fewest ranks first (none before all), then by (host, id); the chosen ones are ordered by
// (host, id), so that the last axis stays inside a host where it can. Fewer than `count` candidates give an empty list.
// Those that loopback reaches and others are not mixed where either are enough, of both the others.
std::vector<std::string> ChooseWorkers(std::vector<WorkerCandidate> candidates, int count);

}  // namespace tp::server
