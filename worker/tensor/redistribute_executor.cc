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
  Block BlockAt(int rank, const Placements& placements) const {
    return BlockOf(global, placements, context.mesh, context.mesh.CoordinateOf(rank));
  }
};

absl::Status NeedScratch(const Call& call, int64_t bytes) {
  if (bytes <= call.scratch.bytes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(std::string(RedistributeOpName(call.step.op)), " needs ", bytes,
                                          " bytes of scratch memory, got ", call.scratch.bytes));
}

char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

// The ranks of the group that exchange data with this one: equal copies in `from` (an axis of R, neighbours of a GS)
// make sets that serve themselves. Ascending in group order, this rank included; the same list on all its members.
std::vector<int> SupplierGroup(const Call& call) {
  const Mesh& mesh = call.context.mesh;
  std::vector<int> ranks;
  for (const int rank : call.group) {
    const Coordinate peer = mesh.CoordinateOf(rank);
    bool supplies = true;
    for (const int axis : call.step.axes) {
      const Placement& from = call.step.from[axis];
      if (from.kind == PlacementKind::kGroupShard) {
        const int neighbours = mesh.axis_size(axis) / from.groups;
        supplies = supplies && peer[axis] % neighbours == call.context.coordinate[axis] % neighbours;
      } else if (!from.IsSharding()) {
        supplies = supplies && peer[axis] == call.context.coordinate[axis];
      }
    }
    if (supplies) ranks.push_back(rank);
  }
  return ranks;
}

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

absl::Status Fill(const Call& call) {
  TP_RETURN_IF_ERROR(call.context.device.FillZero(call.context.stream, call.result.data, call.result_bytes()));
  return CopyLocal(call);
}

absl::Status AllReduce(const Call& call) {
  TP_RETURN_IF_ERROR(CopyWhole(call));
  return call.context.communicator.AllReduce(call.context.stream, call.group, call.result.data,
                                             ElementCount(call.result.shape), call.source.dtype,
                                             call.step.from[call.step.axes[0]].op, call.context.deadline);
}

// The own term is packed as the blocks that the members keep, in group order.
absl::Status ReduceScatter(const Call& call) {
  std::vector<SharedPart> parts;
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const int rank : call.group) {
    parts.push_back(SharedPartOf(call.from, call.BlockAt(rank, call.step.to)));
    counts.push_back(parts.back().elements);
    total += counts.back();
  }
  TP_RETURN_IF_ERROR(NeedScratch(call, total * call.item()));
  int64_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    TP_RETURN_IF_ERROR(PackShared(call.context.device, call.context.stream, parts[i], call.source,
                                  At(call.scratch.data, at * call.item())));
    at += counts[i];
  }
  return call.context.communicator.ReduceScatter(call.context.stream, call.group, call.scratch.data, counts,
                                                 call.result.data, call.source.dtype,
                                                 call.step.from[call.step.axes[0]].op, call.context.deadline);
}

// The members' blocks fill the result exactly, so they are received into it; where their order in memory is not the
// result's, the others' move aside into the scratch memory and are unpacked from there.
absl::Status AllGather(const Call& call) {
  const std::vector<int> ranks = SupplierGroup(call);
  std::vector<Block> blocks;
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (const int rank : ranks) {
    blocks.push_back(call.BlockAt(rank, call.step.from));
    counts.push_back(ElementCount(blocks.back().shape));
    total += counts.back();
  }
  const int64_t elements = ElementCount(call.result.shape);
  if (total != elements) {
    return absl::InternalError(absl::StrCat("all_gather of ", total, " elements into ", elements));
  }
  TP_RETURN_IF_ERROR(call.context.communicator.AllGather(call.context.stream, ranks, call.source.data, call.result.data,
                                                         counts, call.source.dtype, call.context.deadline));
  if (total == 0) return absl::OkStatus();
  // Whether block i as it lies now is where the result wants it.
  std::vector<SharedPart> parts;
  bool in_place = true;
  int64_t at = 0;
  for (const Block& block : blocks) {
    parts.push_back(SharedPartOf(block, call.to));
    int64_t offset = 0, inner = 1, run = 1;
    bool dense = true;  // the block is one run of the result's memory
    for (size_t d = block.shape.size(); d-- > 0;) {
      if (parts.back().elements == 0) break;
      dense = dense && parts.back().dims[d].size() == 1 && (run == inner || block.shape[d] == 1);
      offset += parts.back().dims[d][0].in_b * inner;
      run *= block.shape[d];
      inner *= call.to.shape[d];
    }
    in_place = in_place && (parts.back().elements == 0 || (dense && offset == at));
    at += parts.back().elements;
  }
  if (in_place) return absl::OkStatus();
  TP_RETURN_IF_ERROR(NeedScratch(call, (total - ElementCount(call.from.shape)) * call.item()));
  int64_t from = 0, to = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t bytes = counts[i] * call.item();
    if (ranks[i] != call.context.communicator.rank() && bytes > 0) {
      TP_RETURN_IF_ERROR(call.context.device.CopyOnDevice(call.context.stream, At(call.result.data, from),
                                                          At(call.scratch.data, to), bytes));
      to += bytes;
    }
    from += bytes;
  }
  to = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == call.context.communicator.rank()) continue;
    TP_RETURN_IF_ERROR(
        UnpackShared(call.context.device, call.context.stream, parts[i], At(call.scratch.data, to), call.result));
    to += counts[i] * call.item();
  }
  return CopyLocal(call);
}

// all_to_all and permute: each member gets of this rank's block what it lacks and this rank supplies.
absl::Status AllToAll(const Call& call) {
  const std::vector<int> ranks = SupplierGroup(call);
  const int self = call.context.communicator.rank();
  std::vector<SharedPart> sends, receives;
  std::vector<int64_t> send_counts, receive_counts;
  int64_t sent = 0, received = 0;
  for (const int rank : ranks) {
    sends.push_back(SharedPartOf(call.from, call.BlockAt(rank, call.step.to)));
    receives.push_back(SharedPartOf(call.BlockAt(rank, call.step.from), call.to));
    send_counts.push_back(rank == self ? 0 : sends.back().elements);
    receive_counts.push_back(rank == self ? 0 : receives.back().elements);
    sent += send_counts.back();
    received += receive_counts.back();
  }
  TP_RETURN_IF_ERROR(NeedScratch(call, (sent + received) * call.item()));
  char* const in = static_cast<char*>(call.scratch.data);
  char* const out = in + sent * call.item();
  int64_t at = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == self) continue;
    TP_RETURN_IF_ERROR(
        PackShared(call.context.device, call.context.stream, sends[i], call.source, in + at * call.item()));
    at += send_counts[i];
  }
  TP_RETURN_IF_ERROR(call.context.communicator.AllToAll(call.context.stream, ranks, in, send_counts, out,
                                                        receive_counts, call.source.dtype, call.context.deadline));
  at = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == self) continue;
    TP_RETURN_IF_ERROR(
        UnpackShared(call.context.device, call.context.stream, receives[i], out + at * call.item(), call.result));
    at += receive_counts[i];
  }
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
