#include "common/layout/placement.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace tp {
namespace {

// True for y equal parts, which are written as y ones.
bool PartsAreEqual(const std::vector<int64_t>& parts) {
  for (const int64_t part : parts) {
    if (part != 1) return false;
  }
  return !parts.empty();
}

std::string PartsText(const std::vector<int64_t>& parts, const char* separator) {
  if (PartsAreEqual(parts)) return absl::StrCat(parts.size());
  return absl::StrCat("[", absl::StrJoin(parts, separator), "]");
}

}  // namespace

std::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  TP_CHECK(false);
}

Placement Placement::Shard(int dim) {
  Placement placement;
  placement.kind = PlacementKind::kShard;
  placement.dim = dim;
  return placement;
}

Placement Placement::Partial(ReduceOp op) {
  Placement placement;
  placement.kind = PlacementKind::kPartial;
  placement.op = op;
  return placement;
}

Placement Placement::StridedShard(int dim, int split_factor) {
  Placement placement;
  placement.kind = PlacementKind::kStridedShard;
  placement.dim = dim;
  placement.split_factor = split_factor;
  return placement;
}

Placement Placement::InterleavedShard(int dim, std::vector<int64_t> parts) {
  Placement placement;
  placement.kind = PlacementKind::kInterleavedShard;
  placement.dim = dim;
  placement.parts = std::move(parts);
  return placement;
}

Placement Placement::GroupShard(int dim, int groups) {
  Placement placement;
  placement.kind = PlacementKind::kGroupShard;
  placement.dim = dim;
  placement.groups = groups;
  return placement;
}

std::string PlacementText(const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::kReplicate:
      return "R";
    case PlacementKind::kShard:
      return absl::StrCat("S(", placement.dim, ")");
    case PlacementKind::kPartial:
      return absl::StrCat("P(", std::string(ReduceOpName(placement.op)), ")");
    case PlacementKind::kStridedShard:
      return absl::StrCat("SS(", placement.dim, ",", placement.split_factor, ")");
    case PlacementKind::kInterleavedShard:
      return absl::StrCat("IS(", placement.dim, ",", PartsText(placement.parts, ","), ")");
    case PlacementKind::kGroupShard:
      return absl::StrCat("GS(", placement.dim, ",", placement.groups, ")");
  }
  TP_CHECK(false);
}

std::string PlacementLongText(const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::kReplicate:
      return "Replicate()";
    case PlacementKind::kShard:
      return absl::StrCat("Shard(dim=", placement.dim, ")");
    case PlacementKind::kPartial:
      return absl::StrCat("Partial(", std::string(ReduceOpName(placement.op)), ")");
    case PlacementKind::kStridedShard:
      return absl::StrCat("StridedShard(dim=", placement.dim, ", split_factor=", placement.split_factor, ")");
    case PlacementKind::kInterleavedShard:
      return absl::StrCat("InterleavedShard(dim=", placement.dim, ", parts=", PartsText(placement.parts, ", "), ")");
    case PlacementKind::kGroupShard:
      return absl::StrCat("GroupShard(dim=", placement.dim, ", groups=", placement.groups, ")");
  }
  TP_CHECK(false);
}

std::string PlacementsText(const Mesh& mesh, const Placements& placements) {
  TP_CHECK(placements.size() == mesh.axes().size());
  std::string text;
  for (size_t i = 0; i < placements.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", mesh.axes()[i].name, "=", PlacementText(placements[i]));
  }
  return text;
}

}  // namespace tp
