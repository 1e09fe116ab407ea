// Bytes and scratch memory of steps.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/redistribute/geometry.h"
#include "common/redistribute/plan.h"
#include "common/redistribute/search.h"

namespace tp {
namespace {

constexpr int64_t kScratchAlignment = 64;

int64_t Padded(int64_t bytes) { return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment; }

int64_t GroupSize(const Mesh& mesh, const RedistributeStep& step) {
  int64_t size = 1;
  for (const int axis : step.axes) size *= mesh.axis_size(axis);
  return size;
}

// Goes through scratch memory in rounds.
bool UsesRounds(RedistributeOp op) {
  return op == RedistributeOp::kAllGather || op == RedistributeOp::kAllToAll || op == RedistributeOp::kPermute ||
         op == RedistributeOp::kReduceScatter;
}

// A block: the global indices of each dim.
using Cut = std::vector<std::vector<Interval>>;

Cut CutOf(absl::Span<const int64_t> shape, const Placements& placements, const Mesh& mesh,
          absl::Span<const int> coordinate) {
  Cut cut;
  for (size_t d = 0; d < shape.size(); ++d) {
    cut.push_back(OwnedIntervals(shape[d], static_cast<int>(d), placements, mesh, coordinate));
  }
  return cut;
}

int64_t Length(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const Interval& interval : intervals) length += interval.end - interval.begin;
  return length;
}

// Where `part`, a subset of `whole` that is not empty, begins in the array of `whole`; -1 where it is not one run
// there.
int64_t RunStart(const std::vector<Interval>& part, const std::vector<Interval>& whole) {
  int64_t start = -1, next = -1, before = 0;
  size_t i = 0;
  for (const Interval& interval : part) {
    while (i < whole.size() && whole[i].end <= interval.begin) {
      before += whole[i].end - whole[i].begin;
      ++i;
    }
    if (i == whole.size() || interval.begin < whole[i].begin) return -1;
    const int64_t at = before + interval.begin - whole[i].begin;
    if (start >= 0 && at != next) return -1;
    if (start < 0) start = at;
    next = at + interval.end - interval.begin;
  }
  return start;
}

// Whether `part` is the run of the dense array of `whole` that starts at element *at; moves *at behind it.
bool IsNextRun(const Cut& part, const Cut& whole, int64_t* at) {
  int64_t elements = 1, offset = 0, inner = 1;
  for (const std::vector<Interval>& dim : part) elements *= Length(dim);
  if (elements == 0) return true;
  bool full = true;  // the dims so far are whole, so that a range of this dim is one run
  for (size_t d = part.size(); d-- > 0;) {
    const int64_t start = RunStart(part[d], whole[d]), size = Length(part[d]), all = Length(whole[d]);
    if (start < 0 || (!full && size != 1)) return false;
    offset += start * inner;
    inner *= all;
    full = full && size == all;
  }
  if (offset != *at) return false;
  *at += elements;
  return true;
}

int64_t Saturated(__int128 value) { return static_cast<int64_t>(std::min<__int128>(value, INT64_MAX)); }

}  // namespace

int64_t StepBytes(const Mesh& mesh, Geometry& geometry, const RedistributeStep& step) {
  const __int128 n = GroupSize(mesh, step);
  switch (step.op) {
    case RedistributeOp::kNone:
    case RedistributeOp::kSlice:
    case RedistributeOp::kDivide:
    case RedistributeOp::kFill:
      return 0;
    case RedistributeOp::kAllGather:
    case RedistributeOp::kAllToAll:
    case RedistributeOp::kPermute:
      return geometry.MaxMissingBytes(step.from, step.to);
    case RedistributeOp::kAllReduce:
      return Saturated(2 * (n - 1) * geometry.MaxLocalBytes(step.from) / n);
    case RedistributeOp::kReduceScatter:
      return Saturated((n - 1) * geometry.MaxLocalBytes(step.to));
  }
  TP_CHECK(false);
}

int64_t StepBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step) {
  Geometry geometry(mesh, dtype, shape);
  return StepBytes(mesh, geometry, step);
}

int64_t PlanBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributePlan& plan) {
  Geometry geometry(mesh, dtype, shape);
  __int128 bytes = 0;
  for (const RedistributeStep& step : plan.steps) bytes += StepBytes(mesh, geometry, step);
  return Saturated(bytes);
}

bool SuppliesBlock(const Mesh& mesh, const RedistributeStep& step, absl::Span<const int> sender,
                   absl::Span<const int> receiver) {
  for (size_t i = 0; i < step.from.size(); ++i) {
    const int axis = static_cast<int>(i);
    if (std::find(step.axes.begin(), step.axes.end(), axis) == step.axes.end()) {
      if (sender[i] != receiver[i]) return false;
    } else if (!step.from[i].IsSharding()) {
      if (sender[i] != receiver[i]) return false;  // equal copies: each rank keeps to its own
    } else if (step.from[i].kind == PlacementKind::kGroupShard) {
      const int neighbours = mesh.axis_size(axis) / step.from[i].groups;
      if (sender[i] % neighbours != receiver[i] % neighbours) return false;
    }
  }
  return true;
}

bool StepIsInPlace(const Mesh& mesh, absl::Span<const int64_t> shape, const RedistributeStep& step,
                   absl::Span<const int> coordinate) {
  const bool gather = step.op == RedistributeOp::kAllGather;
  if (!gather && step.op != RedistributeOp::kReduceScatter) return false;
  const Cut whole = CutOf(shape, gather ? step.to : step.from, mesh, coordinate);
  int64_t at = 0;
  for (const int rank :
       gather ? SupplierRanks(mesh, step, coordinate) : mesh.GroupAlong(step.axes, mesh.RankAt(coordinate))) {
    if (!IsNextRun(CutOf(shape, gather ? step.from : step.to, mesh, mesh.CoordinateOf(rank)), whole, &at)) return false;
  }
  return true;
}

std::vector<int> SupplierRanks(const Mesh& mesh, const RedistributeStep& step, absl::Span<const int> coordinate) {
  std::vector<int> ranks;
  for (const int rank : mesh.GroupAlong(step.axes, mesh.RankAt(coordinate))) {
    if (SuppliesBlock(mesh, step, mesh.CoordinateOf(rank), coordinate)) ranks.push_back(rank);
  }
  return ranks;
}

int64_t StepRounds(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step,
                   absl::Span<const int> coordinate, int64_t round_bytes) {
  TP_CHECK(round_bytes > 0);
  if (!UsesRounds(step.op)) return 1;
  // No rank packs more than this: small steps pay for no count.
  __int128 most = 2 * GroupSize(mesh, step) * ItemSize(dtype);
  for (const int64_t size : shape) most = std::min<__int128>(most * size, INT64_MAX);
  if (most <= round_bytes || StepIsInPlace(mesh, shape, step, coordinate)) return 1;
  Geometry geometry(mesh, dtype, shape);
  int64_t busiest = 0;
  if (step.op == RedistributeOp::kAllGather) {
    for (const int rank : SupplierRanks(mesh, step, coordinate)) {
      busiest += geometry.LocalBytes(step.from, mesh.CoordinateOf(rank));
    }
  } else if (step.op == RedistributeOp::kReduceScatter) {
    for (const int rank : mesh.GroupAlong(step.axes, mesh.RankAt(coordinate))) {
      busiest += geometry.LocalBytes(step.to, mesh.CoordinateOf(rank));
    }
  } else {
    const std::vector<int> ranks = SupplierRanks(mesh, step, coordinate);
    for (const int rank : ranks) {
      const Coordinate at = mesh.CoordinateOf(rank);
      int64_t bytes = 0;
      for (const int other : ranks) {
        if (other == rank) continue;
        const Coordinate peer = mesh.CoordinateOf(other);
        bytes += geometry.OverlapBytes(step.from, at, step.to, peer);
        bytes += geometry.OverlapBytes(step.from, peer, step.to, at);
      }
      busiest = std::max(busiest, bytes);
    }
  }
  return std::max<int64_t>(1, (busiest - 1) / round_bytes + 1);
}

int64_t StepScratchBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step,
                         absl::Span<const int> coordinate, int64_t round_bytes) {
  if (!UsesRounds(step.op) || StepIsInPlace(mesh, shape, step, coordinate)) return 0;
  const int64_t rounds = StepRounds(mesh, dtype, shape, step, coordinate, round_bytes);
  const int64_t item = ItemSize(dtype);
  Geometry geometry(mesh, dtype, shape);
  // The longest of the rounds' pieces of one block.
  const auto piece = [&](int64_t bytes) { return (bytes / item + rounds - 1) / rounds * item; };
  int64_t sent = 0, received = 0;
  const int self = mesh.RankAt(coordinate);
  switch (step.op) {
    case RedistributeOp::kAllGather:
      for (const int rank : SupplierRanks(mesh, step, coordinate)) {
        received += piece(geometry.LocalBytes(step.from, mesh.CoordinateOf(rank)));
      }
      break;
    case RedistributeOp::kReduceScatter:
      for (const int rank : mesh.GroupAlong(step.axes, self)) {
        sent += piece(geometry.LocalBytes(step.to, mesh.CoordinateOf(rank)));
      }
      break;
    default:
      for (const int rank : SupplierRanks(mesh, step, coordinate)) {
        if (rank == self) continue;
        const Coordinate peer = mesh.CoordinateOf(rank);
        sent += piece(geometry.OverlapBytes(step.from, coordinate, step.to, peer));
        received += piece(geometry.OverlapBytes(step.from, peer, step.to, coordinate));
      }
  }
  return Padded(sent) + Padded(received);
}

std::string StepAxesText(const Mesh& mesh, const RedistributeStep& step) {
  return absl::StrJoin(step.axes, ",", [&mesh](std::string* out, int axis) {
    out->append(mesh.axes()[static_cast<size_t>(axis)].name);
  });
}

}  // namespace tp
