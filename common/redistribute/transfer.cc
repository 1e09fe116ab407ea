#include "common/redistribute/transfer.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {
namespace {

using Block = std::vector<std::vector<Interval>>;  // global indices of each dim

absl::Status CheckSide(DType dtype, absl::Span<const int64_t> shape, const TransferSide& side) {
  if (side.workers.size() != static_cast<size_t>(side.mesh.rank_count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("one worker for each rank: expected ", side.mesh.rank_count(), ", got ", side.workers.size()));
  }
  TP_ASSIGN_OR_RETURN(const Placements normalized,
                      NormalizePlacements(side.placements, static_cast<int>(shape.size()), dtype, side.mesh));
  if (normalized != side.placements) return absl::InvalidArgumentError("dims are not normalised");
  for (size_t axis = 0; axis < normalized.size(); ++axis) {
    // One rank holds the only term, which is the value.
    if (!normalized[axis].IsPartial() || side.mesh.axis_size(static_cast<int>(axis)) == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("placement ", PlacementText(normalized[axis]), " on mesh axis ",
                                                   side.mesh.axes()[axis].name, " can't move to another mesh"));
  }
  return ValidateForShape(shape, side.placements, side.mesh);
}

// The coordinates of the first of the ranks with the same block.
Coordinate OwnerOf(const TransferSide& side, int rank) {
  Coordinate at = side.mesh.CoordinateOf(rank);
  for (size_t axis = 0; axis < at.size(); ++axis) {
    const Placement& placement = side.placements[axis];
    if (!placement.IsSharding()) {
      at[axis] = 0;
    } else if (placement.kind == PlacementKind::kGroupShard) {
      const int neighbours = side.mesh.axis_size(static_cast<int>(axis)) / placement.groups;
      at[axis] = at[axis] / neighbours * neighbours;
    }
  }
  return at;
}

Block BlockAt(absl::Span<const int64_t> shape, const TransferSide& side, const Coordinate& at) {
  Block block;
  for (size_t d = 0; d < shape.size(); ++d) {
    block.push_back(OwnedIntervals(shape[d], static_cast<int>(d), side.placements, side.mesh, at));
  }
  return block;
}

int64_t CommonElements(const Block& a, const Block& b) {
  int64_t elements = 1;
  for (size_t d = 0; d < a.size() && elements > 0; ++d) {
    int64_t length = 0;
    for (size_t i = 0, j = 0; i < a[d].size() && j < b[d].size();) {
      length += std::max<int64_t>(0, std::min(a[d][i].end, b[d][j].end) - std::max(a[d][i].begin, b[d][j].begin));
      if (a[d][i].end < b[d][j].end) {
        ++i;
      } else {
        ++j;
      }
    }
    elements *= length;
  }
  return elements;
}

struct Copies {
  Block block = {};
  std::vector<int> ranks = {};  // that hold it, ascending
};

}  // namespace

absl::StatusOr<TransferPlan> PlanTransfer(DType dtype, absl::Span<const int64_t> shape, const TransferSide& source,
                                          const TransferSide& target) {
  TP_RETURN_IF_ERROR(CheckedBytes(shape, dtype).status());
  TP_RETURN_IF_ERROR(Annotate(CheckSide(dtype, shape, source), "source"));
  TP_RETURN_IF_ERROR(Annotate(CheckSide(dtype, shape, target), "target"));
  std::map<int, Copies> by_owner;
  for (int rank = 0; rank < source.mesh.rank_count(); ++rank) {
    const Coordinate owner = OwnerOf(source, rank);
    Copies& copies = by_owner[source.mesh.RankAt(owner)];
    if (copies.ranks.empty()) copies.block = BlockAt(shape, source, owner);
    copies.ranks.push_back(rank);
  }
  TransferPlan plan;
  std::vector<int64_t> sent(static_cast<size_t>(source.mesh.rank_count()), 0);
  for (int rank = 0; rank < target.mesh.rank_count(); ++rank) {
    const std::string& worker = target.workers[static_cast<size_t>(rank)];
    const Block wanted = BlockAt(shape, target, target.mesh.CoordinateOf(rank));
    int64_t received = 0;
    const size_t first = plan.transfers.size();
    for (const auto& [owner, copies] : by_owner) {
      const int64_t bytes = CommonElements(copies.block, wanted) * ItemSize(dtype);
      if (bytes == 0) continue;
      // (not on this worker, bytes sent so far, rank): the least is taken.
      std::tuple<bool, int64_t, int> best{true, INT64_MAX, source.mesh.rank_count()};
      for (const int holder : copies.ranks) {
        const bool away = source.workers[static_cast<size_t>(holder)] != worker;
        best = std::min(best, {away, away ? sent[static_cast<size_t>(holder)] : 0, holder});
      }
      const auto& [away, so_far, holder] = best;
      plan.transfers.push_back({holder, rank, bytes, !away});
      if (!away) continue;
      sent[static_cast<size_t>(holder)] += bytes;
      received += bytes;
    }
    std::sort(plan.transfers.begin() + static_cast<ptrdiff_t>(first), plan.transfers.end(),
              [](const TransferPart& a, const TransferPart& b) { return a.source < b.source; });
    plan.total_bytes += received;
    plan.busiest_bytes = std::max(plan.busiest_bytes, received);
  }
  return plan;
}

}  // namespace tp
