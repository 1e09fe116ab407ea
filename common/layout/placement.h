// How one mesh axis holds a tensor. Example: `*ParsePlacement("S(0)") == Placement::Shard(0)`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mesh/mesh.h"

namespace tp {

enum class ReduceOp { kSum, kAvg, kMin, kMax, kProduct };
std::string_view ReduceOpName(ReduceOp op);  // "sum", "avg", "min", "max", "product"

enum class PlacementKind { kReplicate, kShard, kPartial, kStridedShard, kInterleavedShard, kGroupShard };

// A value; the fields that a kind does not use keep their defaults, so == compares them all.
struct Placement {
  PlacementKind kind = PlacementKind::kReplicate;
  int dim = 0;                   // kinds that shard; may be negative until normalised
  ReduceOp op = ReduceOp::kSum;  // kPartial
  int split_factor = 0;          // kStridedShard: chunks of the dim
  std::vector<int64_t> parts;    // kInterleavedShard: the ratio; y equal parts are y ones
  int groups = 0;                // kGroupShard

  static Placement Replicate() { return {}; }
  static Placement Shard(int dim);
  static Placement Partial(ReduceOp op = ReduceOp::kSum);
  static Placement StridedShard(int dim, int split_factor);
  static Placement InterleavedShard(int dim, std::vector<int64_t> parts);
  static Placement GroupShard(int dim, int groups);

  bool IsReplicate() const { return kind == PlacementKind::kReplicate; }
  bool IsPartial() const { return kind == PlacementKind::kPartial; }
  // Cuts a tensor dim (S, SS, IS, GS).
  bool IsSharding() const { return !IsReplicate() && !IsPartial(); }
  // Cuts tensor dim `d` (a normalised dim).
  bool Cuts(int d) const { return IsSharding() && dim == d; }
  bool operator==(const Placement&) const = default;
};

using Placements = std::vector<Placement>;  // one for each mesh axis

// "R", "S(0)", "P(sum)", "SS(0,2)", "IS(0,2)" or "IS(0,[8,2,2])", "GS(0,4)".
std::string PlacementText(const Placement& placement);
// "Replicate()", "Shard(dim=0)", "Partial(sum)", "StridedShard(dim=0, split_factor=2)", ... (SEMANTICS 6).
std::string PlacementLongText(const Placement& placement);
// Reads PlacementText's form back. INVALID_ARGUMENT with the text and the known forms.
absl::StatusOr<Placement> ParsePlacement(std::string_view text);
// "tp=S(0)" or "dp=R,tp=S(1)"; "" for a mesh without axes.
std::string PlacementsText(const Mesh& mesh, const Placements& placements);
// "dp=R,tp=S(1)" as pairs in the order given, for where the mesh is not known; "" gives none. INVALID_ARGUMENT for
// other text and for an axis that is placed twice.
absl::StatusOr<std::vector<std::pair<std::string, Placement>>> ParseNamedPlacements(std::string_view text);
// Reads that form; axes that are not named get `absent`. INVALID_ARGUMENT "axes not in mesh: {x}".
absl::StatusOr<Placements> ParsePlacements(const Mesh& mesh, std::string_view text,
                                           const Placement& absent = Placement::Replicate());

}  // namespace tp
