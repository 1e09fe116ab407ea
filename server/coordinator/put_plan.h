// Which rank of a put gets its bytes from the client, and which from another rank. Pure. Example: a tensor R on tp=4
// put with source rank 1: rank 1 receives, the others get a broadcast.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/events.h"

namespace tp::server {

struct PutPlan {
  Shape shape;                             // global
  Placements placements;                   // normalised
  std::vector<int64_t> bytes;              // of each rank's block
  std::vector<NewTensor::Origin> origins;  // by rank; blocks without elements are made, not sent
  std::vector<int> locals;                 // by rank: index in the request's list, -1 = none
  std::vector<int> copy_of;                // by rank: first rank of its equal copies
  bool broadcast = false;                  // some block comes from another rank
};

// INVALID_ARGUMENT with the field for placements, shapes and lists of local blocks that are refused (SEMANTICS 2 and
// 3), P of a global tensor, and a source rank that a mesh axis has not.
absl::StatusOr<PutPlan> PlanPut(const PutTensorRequested& request, const Mesh& mesh);

}  // namespace tp::server
