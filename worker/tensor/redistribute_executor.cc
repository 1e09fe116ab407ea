#include "worker/tensor/redistribute_executor.h"

#include <algorithm>
#include <string>

#include "common/base/status.h"
#include "worker/tensor/block.h"

namespace tp::worker {
namespace {

// What one call works on.
struct Call {
  const RedistributeContext& context;
  const RedistributeStep& step;
  absl::Span<const int64_t> global;
  const ConstTensorView& source;
  const TensorView& result;
  Scratch scratch;
  std::vector<int> group;
  Block from, to;  // of this rank

  int64_t item() const { return ItemSize(source.dtype); }
  int64_t result_bytes() const { return ElementCount(result.shape) * item(); }
  int64_t rounds() const {
    return StepRounds(context.mesh, source.dtype, global, step, context.coordinate, context.round_bytes);
  }
  Block BlockAt(int rank, const Placements& placements) const {
    return BlockOf(global, placements, context.mesh, context.mesh.CoordinateOf(rank));
  }
};

char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }
const char* At(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }

absl::Status CopyLocal(const Call& call) {
  return CopyShared(call.context.device, call.context.stream, SharedPartOf(call.from, call.to), call.source,
                    call.result);
}

absl::Status CopyWhole(const Call& call) {
  if (call.source.shape != call.result.shape) return absl::InternalError("a copy between blocks of two shapes");
  if (call.result_bytes() == 0) return absl::OkStatus();
  return call.context.device.CopyOnDevice(call.context.stream, call.source.data, call.result.data, call.result_bytes());
}

// R -> P(sum): value / N; integers and BOOL stay whole on coordinate 0 and are zero elsewhere.
absl::Status Divide(const Call& call) {
  Device& device = call.context.device;
  if (IsFloating(call.source.dtype)) {
    return device.Scale(call.context.stream, call.source, 1.0 / static_cast<double>(call.group.size()), call.result);
  }
  for (const int axis : call.step.axes) {
    if (call.context.coordinate[axis] != 0) {
      return device.FillZero(call.context.stream, call.result.data, call.result_bytes());
    }
  }
  return CopyWhole(call);
}

// Zeros and the own block; of the neighbours of a GroupShard, which hold one chunk, the first alone contributes it.
absl::Status Fill(const Call& call) {
  const RedistributeContext& context = call.context;
  TP_RETURN_IF_ERROR(context.device.FillZero(context.stream, call.result.data, call.result_bytes()));
  for (const int axis : call.step.axes) {
    const Placement& from = call.step.from[axis];
    if (from.kind != PlacementKind::kGroupShard) continue;
    if (context.coordinate[axis] % (context.mesh.axis_size(axis) / from.groups) != 0) return absl::OkStatus();
  }
  return CopyLocal(call);
}

absl::Status AllReduce(const Call& call) {
  TP_RETURN_IF_ERROR(CopyWhole(call));
  return call.context.communicator.AllReduce(call.context.stream, call.group, call.result.data,
                                             ElementCount(call.result.shape), call.source.dtype,
                                             call.step.from[call.step.axes[0]].op, call.context.deadline);
}

// The own term is packed as the blocks that the members keep, in group order, unless it lies so already.
absl::Status ReduceScatter(const Call& call) {
  const RedistributeContext& context = call.context;
  const ReduceOp op = call.step.from[call.step.axes[0]].op;
  std::vector<SharedPart> parts;
  std::vector<int64_t> counts;
  for (const int rank : call.group) {
    parts.push_back(SharedPartOf(call.from, call.BlockAt(rank, call.step.to)));
    counts.push_back(parts.back().elements);
  }
  if (StepIsInPlace(context.mesh, call.global, call.step, context.coordinate)) {
    return context.communicator.ReduceScatter(context.stream, call.group, call.source.data, counts, call.result.data,
                                              call.source.dtype, op, context.deadline);
  }
  const int64_t rounds = call.rounds();
  int64_t most = 0;
  for (const int64_t count : counts) most += (count + rounds - 1) / rounds * call.item();
  TP_RETURN_IF_ERROR(NeedScratch("reduce_scatter", call.scratch, most));
  const int64_t mine = ElementCount(call.to.shape);
  for (int64_t round = 0; round < rounds; ++round) {
    int64_t at = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t begin = RoundBegin(parts[i].elements, round, rounds);
      counts[i] = RoundBegin(parts[i].elements, round + 1, rounds) - begin;
      TP_RETURN_IF_ERROR(PackShared(context.device, context.stream, parts[i], begin, begin + counts[i], call.source,
                                    At(call.scratch.data, at * call.item())));
      at += counts[i];
    }
    TP_RETURN_IF_ERROR(context.communicator.ReduceScatter(
        context.stream, call.group, call.scratch.data, counts,
        At(call.result.data, RoundBegin(mine, round, rounds) * call.item()), call.source.dtype, op, context.deadline));
  }
  return absl::OkStatus();
}

// The members' blocks fill the result exactly. Where they are its consecutive runs they are received into it; else
// they come to the scratch memory and are unpacked from there.
absl::Status AllGather(const Call& call) {
  const RedistributeContext& context = call.context;
  const std::vector<int> ranks = SupplierRanks(context.mesh, call.step, context.coordinate);
  std::vector<SharedPart> parts;
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const int rank : ranks) {
    parts.push_back(SharedPartOf(call.BlockAt(rank, call.step.from), call.to));
    counts.push_back(parts.back().elements);
    total += counts.back();
  }
  const int64_t elements = ElementCount(call.result.shape);
  if (total != elements) {
    return absl::InternalError(absl::StrCat("all_gather of ", total, " elements into ", elements));
  }
  if (StepIsInPlace(context.mesh, call.global, call.step, context.coordinate)) {
    return context.communicator.AllGather(context.stream, ranks, call.source.data, call.result.data, counts,
                                          call.source.dtype, context.deadline);
  }
  const int64_t rounds = call.rounds();
  int64_t most = 0;
  for (const int64_t count : counts) most += (count + rounds - 1) / rounds * call.item();
  TP_RETURN_IF_ERROR(NeedScratch("all_gather", call.scratch, most));
  const int64_t mine = ElementCount(call.from.shape);
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < parts.size(); ++i) {
      counts[i] = RoundBegin(parts[i].elements, round + 1, rounds) - RoundBegin(parts[i].elements, round, rounds);
    }
    TP_RETURN_IF_ERROR(context.communicator.AllGather(
        context.stream, ranks, At(call.source.data, RoundBegin(mine, round, rounds) * call.item()), call.scratch.data,
        counts, call.source.dtype, context.deadline));
    int64_t at = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (ranks[i] != context.communicator.rank()) {
        const int64_t begin = RoundBegin(parts[i].elements, round, rounds);
        TP_RETURN_IF_ERROR(UnpackShared(context.device, context.stream, parts[i], begin, begin + counts[i],
                                        At(call.scratch.data, at * call.item()), call.result));
      }
      at += counts[i];
    }
  }
  return CopyLocal(call);
}

// all_to_all and permute: each member gets of this rank's block what it lacks and this rank supplies.
absl::Status AllToAll(const Call& call) {
  const RedistributeContext& context = call.context;
  const std::vector<int> ranks = SupplierRanks(context.mesh, call.step, context.coordinate);
  std::vector<PeerParts> peers(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == context.communicator.rank()) continue;
    peers[i].send = SharedPartOf(call.from, call.BlockAt(ranks[i], call.step.to));
    peers[i].receive = SharedPartOf(call.BlockAt(ranks[i], call.step.from), call.to);
  }
  TP_RETURN_IF_ERROR(ExchangeParts(context.device, context.stream, context.communicator, ranks, peers, call.rounds(),
                                   call.source, call.result, call.scratch, context.deadline));
  return CopyLocal(call);
}

absl::Status Execute(const Call& call) {
  switch (call.step.op) {
    case RedistributeOp::kNone:
      return CopyWhole(call);
    case RedistributeOp::kSlice:
      return CopyLocal(call);
    case RedistributeOp::kDivide:
      return Divide(call);
    case RedistributeOp::kFill:
      return Fill(call);
    case RedistributeOp::kAllGather:
      return AllGather(call);
    case RedistributeOp::kAllToAll:
    case RedistributeOp::kPermute:
      return AllToAll(call);
    case RedistributeOp::kAllReduce:
      return AllReduce(call);
    case RedistributeOp::kReduceScatter:
      return ReduceScatter(call);
  }
  return absl::InternalError("unknown redistribute op");
}

}  // namespace

absl::StatusOr<int64_t> ExecuteRedistributeStep(const RedistributeContext& context, const RedistributeStep& step,
                                                absl::Span<const int64_t> global, const ConstTensorView& source,
                                                const TensorView& result, Scratch scratch) {
  const int rank = context.mesh.RankAt(context.coordinate);
  Call call{context,
            step,
            global,
            source,
            result,
            scratch,
            context.mesh.GroupAlong(absl::MakeConstSpan(step.axes), rank),
            BlockOf(global, step.from, context.mesh, context.coordinate),
            BlockOf(global, step.to, context.mesh, context.coordinate)};
  if (call.from.shape != source.shape || call.to.shape != result.shape || source.dtype != result.dtype) {
    return absl::InternalError(absl::StrCat("redistribute of ", ShapeText(global), ": blocks ", ShapeText(source.shape),
                                            " -> ", ShapeText(result.shape), ", expected ", ShapeText(call.from.shape),
                                            " -> ", ShapeText(call.to.shape)));
  }
  if (step.axes.empty() && step.op != RedistributeOp::kNone) return absl::InternalError("a step without axes");
  TP_RETURN_IF_ERROR(Execute(call));
  return StepBytes(context.mesh, source.dtype, global, step);
}

}  // namespace tp::worker
