#include "common/layout/spec.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace tp {
namespace {

// The positions of 0..n-1 that the rank at `index` of an axis of `size` ranks keeps under one cut.
std::vector<Interval> CutPositions(int64_t n, const Placement& placement, int size, int index) {
  switch (placement.kind) {
    case PlacementKind::kReplicate:
    case PlacementKind::kPartial:
      return {{0, n}};
    case PlacementKind::kShard:
      return {ChunkOf(n, size, index)};
    case PlacementKind::kGroupShard:
      return {ChunkOf(n, placement.groups, index / (size / placement.groups))};
    case PlacementKind::kStridedShard: {
      std::vector<Interval> kept;
      for (int i = 0; i < placement.split_factor; ++i) {
        const Interval chunk = ChunkOf(n, placement.split_factor, i);
        if (chunk.begin == chunk.end) break;
        const Interval piece = ChunkOf(chunk.end - chunk.begin, size, index);
        kept.push_back({chunk.begin + piece.begin, chunk.begin + piece.end});
      }
      return kept;
    }
    case PlacementKind::kInterleavedShard: {
      int64_t sum = 0;
      for (const int64_t part : placement.parts) sum += part;
      TP_CHECK(sum > 0 && n % sum == 0);
      std::vector<Interval> kept;
      int64_t begin = 0;
      for (const int64_t part : placement.parts) {
        const int64_t length = n / sum * part;
        const Interval piece = ChunkOf(length, size, index);
        kept.push_back({begin + piece.begin, begin + piece.end});
        begin += length;
      }
      return kept;
    }
  }
  TP_CHECK(false);
}

int64_t TotalLength(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const Interval& interval : intervals) length += interval.end - interval.begin;
  return length;
}

void Append(std::vector<Interval>& intervals, Interval interval) {
  if (interval.begin >= interval.end) return;
  if (!intervals.empty() && intervals.back().end == interval.begin) {
    intervals.back().end = interval.end;
  } else {
    intervals.push_back(interval);
  }
}

// The elements of `owned` (in local order) at `positions`, which ascend.
std::vector<Interval> Select(const std::vector<Interval>& owned, const std::vector<Interval>& positions) {
  std::vector<Interval> selected;
  size_t next = 0;   // interval of `owned`
  int64_t base = 0;  // local position of its first element
  for (const Interval& want : positions) {
    int64_t at = want.begin;
    while (at < want.end) {
      while (base + owned[next].end - owned[next].begin <= at) {
        base += owned[next].end - owned[next].begin;
        ++next;
      }
      const int64_t end = std::min(want.end, base + owned[next].end - owned[next].begin);
      Append(selected, {owned[next].begin + at - base, owned[next].begin + end - base});
      at = end;
    }
  }
  return selected;
}

absl::Status CheckPartialOp(ReduceOp op, DType dtype) {
  const bool integer_avg = op == ReduceOp::kAvg && !IsFloating(dtype);
  const bool bool_arithmetic = dtype == DType::kBool && (op == ReduceOp::kSum || op == ReduceOp::kProduct);
  if (!integer_avg && !bool_arithmetic) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("P(", std::string(ReduceOpName(op)), ") of dtype ",
                                                 std::string(DTypeName(dtype)), " is not defined"));
}

absl::Status CheckCounts(const Placement& placement, const MeshAxis& axis) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", PlacementText(placement), " on mesh axis ", axis.name, ": ", why));
  };
  if (placement.kind == PlacementKind::kStridedShard && placement.split_factor < 1) {
    return refuse("the split factor must be at least 1");
  }
  if (placement.kind == PlacementKind::kInterleavedShard) {
    if (placement.parts.empty()) return refuse("at least one part is needed");
    int64_t sum = 0;
    for (const int64_t part : placement.parts) {
      if (part < 1) return refuse("every part of the ratio must be at least 1");
      if (__builtin_add_overflow(sum, part, &sum)) return refuse("the sum of the ratio overflows");
    }
  }
  if (placement.kind == PlacementKind::kGroupShard) {
    if (placement.groups < 1) return refuse("the number of groups must be at least 1");
    if (axis.size % placement.groups != 0) {
      return refuse(absl::StrCat("the number of groups must divide the axis of ", axis.size, " ranks"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Interval ChunkOf(int64_t n, int64_t k, int64_t r) {
  const int64_t chunk = n / k + (n % k != 0 ? 1 : 0);
  // Without the overflow of chunk * (r + 1) near 2^62: chunk * r <= n is tested by division.
  const int64_t begin = chunk == 0 || r > n / chunk ? n : chunk * r;
  return {begin, begin + std::min(chunk, n - begin)};
}

absl::StatusOr<Placements> NormalizePlacements(const Placements& placements, int rank, DType dtype, const Mesh& mesh) {
  if (placements.size() != mesh.axes().size()) {
    return absl::InvalidArgumentError(absl::StrCat("placement count must equal mesh rank: got ", placements.size(),
                                                   ", the mesh has ", mesh.axes().size()));
  }
  Placements normalized = placements;
  const Placement* partial = nullptr;
  for (size_t i = 0; i < normalized.size(); ++i) {
    Placement& placement = normalized[i];
    const MeshAxis& axis = mesh.axes()[i];
    if (placement.IsSharding()) {
      const absl::StatusOr<int> dim = NormalizeDim(placement.dim, rank);
      if (!dim.ok()) {
        return Annotate(dim.status(),
                        absl::StrCat("placement ", PlacementText(placement), " on mesh axis ", axis.name));
      }
      placement.dim = *dim;
      TP_RETURN_IF_ERROR(CheckCounts(placement, axis));
    }
    if (placement.IsPartial()) {
      TP_RETURN_IF_ERROR(CheckPartialOp(placement.op, dtype));
      const auto linear = [](ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; };
      if (partial != nullptr && partial->op != placement.op && !(linear(partial->op) && linear(placement.op))) {
        return absl::InvalidArgumentError(absl::StrCat("partial ops ", PlacementText(*partial), " and ",
                                                       PlacementText(placement), " do not mix; only sum and avg do"));
      }
      partial = &placement;
    }
  }
  return normalized;
}

namespace {

// The most intervals into which strided and interleaved cuts may scatter one dim of a block: what planning and moving
// cost grows with them.
constexpr int64_t kMaxPieces = 16384;

absl::Status CheckPieces(absl::Span<const int64_t> global, int d, const Placements& placements) {
  int64_t pieces = 1;
  for (const Placement& placement : placements) {
    if (!placement.Cuts(d)) continue;
    int64_t here = 1;
    if (placement.kind == PlacementKind::kStridedShard) here = std::min<int64_t>(placement.split_factor, global[d]);
    if (placement.kind == PlacementKind::kInterleavedShard) here = static_cast<int64_t>(placement.parts.size());
    if (__builtin_mul_overflow(pieces, std::max<int64_t>(here, 1), &pieces) || pieces > kMaxPieces) {
      return absl::ResourceExhaustedError(absl::StrCat("placement ", PlacementText(placement), " cuts dim ", d, " of ",
                                                       ShapeText(global), " into more than ", kMaxPieces,
                                                       " pieces on a rank"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateForShape(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh) {
  if (placements.size() != mesh.axes().size()) {
    return absl::InvalidArgumentError(absl::StrCat("placement count must equal mesh rank: got ", placements.size(),
                                                   ", the mesh has ", mesh.axes().size()));
  }
  for (size_t i = 0; i < placements.size(); ++i) {
    if (!placements[i].IsSharding()) continue;
    if (placements[i].dim < 0 || placements[i].dim >= static_cast<int>(global.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement ", PlacementText(placements[i]), " does not fit shape ", ShapeText(global)));
    }
  }
  for (size_t d = 0; d < global.size(); ++d) TP_RETURN_IF_ERROR(CheckPieces(global, static_cast<int>(d), placements));
  for (size_t d = 0; d < global.size(); ++d) {
    const bool interleaved = std::any_of(placements.begin(), placements.end(), [&](const Placement& placement) {
      return placement.kind == PlacementKind::kInterleavedShard && placement.Cuts(static_cast<int>(d));
    });
    if (!interleaved) continue;  // every other kind cuts any size
    // The lengths of the dim that ranks hold before each cut; a cut depends on the length only.
    std::set<int64_t> lengths = {global[d]};
    for (size_t i = 0; i < placements.size(); ++i) {
      const Placement& placement = placements[i];
      if (!placement.Cuts(static_cast<int>(d))) continue;
      if (placement.kind == PlacementKind::kInterleavedShard) {
        int64_t sum = 0;
        for (const int64_t part : placement.parts) {
          if (__builtin_add_overflow(sum, part, &sum)) {
            return absl::InvalidArgumentError(
                absl::StrCat("placement ", PlacementText(placement), ": the sum of its parts is too large"));
          }
        }
        for (const int64_t length : lengths) {
          if (length % sum == 0) continue;
          return absl::InvalidArgumentError(absl::StrCat("placement ", PlacementText(placement), " on mesh axis ",
                                                         mesh.axes()[i].name, ": size ", length, " of dim ", d, " of ",
                                                         ShapeText(global), " does not divide by ", sum));
        }
      }
      std::set<int64_t> cut;
      for (const int64_t length : lengths) {
        for (int index = 0; index < mesh.axis_size(static_cast<int>(i)); ++index) {
          cut.insert(TotalLength(CutPositions(length, placement, mesh.axis_size(static_cast<int>(i)), index)));
        }
      }
      lengths = std::move(cut);
    }
  }
  return absl::OkStatus();
}

std::vector<Interval> OwnedIntervals(int64_t n, int dim, const Placements& placements, const Mesh& mesh,
                                     absl::Span<const int> coordinate) {
  TP_CHECK(placements.size() == mesh.axes().size() && coordinate.size() == placements.size());
  std::vector<Interval> owned;
  Append(owned, {0, n});
  for (size_t i = 0; i < placements.size(); ++i) {
    if (!placements[i].Cuts(dim)) continue;
    const int size = mesh.axis_size(static_cast<int>(i));
    owned = Select(owned, CutPositions(TotalLength(owned), placements[i], size, coordinate[i]));
  }
  if (owned.empty()) return {{n, n}};
  return owned;
}

Shape LocalShape(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
                 absl::Span<const int> coordinate) {
  Shape local;
  for (size_t d = 0; d < global.size(); ++d) {
    local.push_back(TotalLength(OwnedIntervals(global[d], static_cast<int>(d), placements, mesh, coordinate)));
  }
  return local;
}

Shape LocalOffset(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
                  absl::Span<const int> coordinate) {
  Shape offset;
  for (size_t d = 0; d < global.size(); ++d) {
    offset.push_back(OwnedIntervals(global[d], static_cast<int>(d), placements, mesh, coordinate)[0].begin);
  }
  return offset;
}

bool IsOwner(const Placements& placements, const Mesh& mesh, absl::Span<const int> coordinate) {
  TP_CHECK(placements.size() == mesh.axes().size() && coordinate.size() == placements.size());
  for (size_t i = 0; i < placements.size(); ++i) {
    const Placement& placement = placements[i];
    if (placement.IsReplicate() && coordinate[i] != 0) return false;
    if (placement.kind == PlacementKind::kGroupShard &&
        coordinate[i] % (mesh.axis_size(static_cast<int>(i)) / placement.groups) != 0) {
      return false;
    }
  }
  return true;
}

std::string SpecText(const DTensorSpec& spec, const Mesh& mesh) {
  const std::string placements = PlacementsText(mesh, spec.placements);
  return absl::StrCat(std::string(DTypeName(spec.dtype)), SymShapeText(spec.shape), placements.empty() ? "" : " ",
                      placements);
}

}  // namespace tp
