// Inputs of a forward that come as blocks of ranks: checked as the local blocks of a put, then by rank. Pure. Example:
// rows [3, 4] and [2, 4] of S(0) on tp=2 with the global shape [5, 4] are accepted, [3, 4] twice are refused.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/events.h"

namespace tp::server {

struct PlacedShards {
  DType dtype = DType::kF32;
  Shape shape;                    // global
  Placements placements;          // normalised
  std::vector<std::string> data;  // by rank, row-major; "" for a block without elements
  std::vector<int> copy_of;       // by rank: first rank of its equal copies
};

// INVALID_ARGUMENT with the field: as PlanPut for `locals`, for a block of another number of bytes ("expected N bytes,
// got M"), and for equal copies whose bytes differ, naming both ranks.
absl::StatusOr<PlacedShards> PlaceShards(InputShards shards, const Mesh& mesh);

// Whether no element lies otherwise: equal but on axes of one rank.
bool SameLayout(const Placements& a, const Placements& b, const Mesh& mesh);

}  // namespace tp::server
