#include "worker/tensor/transfer.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

Block BlockAt(const Transfer& transfer, const TransferEnd& side, int rank) {
  return BlockOf(transfer.global, side.placements, side.mesh, side.mesh.CoordinateOf(rank));
}

// The mesh's rank on this side that the communicator's rank `rank` holds; -1 for none.
int RankOn(const TransferEnd& side, int rank) {
  const auto it = std::find(side.ranks.begin(), side.ranks.end(), rank);
  return it == side.ranks.end() ? -1 : static_cast<int>(it - side.ranks.begin());
}

bool IsLocal(const Transfer& transfer, const std::pair<int, int>& pair) {
  return transfer.from.ranks[pair.first] == transfer.to.ranks[pair.second];
}

// As many for each rank of the communicator: the busiest one counts.
int64_t Rounds(const Transfer& transfer, int64_t round_bytes) {
  std::map<int, Block> sources, targets;
  std::map<int, int64_t> bytes;  // by the communicator's rank
  for (const auto& pair : transfer.suppliers) {
    if (IsLocal(transfer, pair)) continue;
    const auto source = sources.try_emplace(pair.first);
    if (source.second) source.first->second = BlockAt(transfer, transfer.from, pair.first);
    const auto target = targets.try_emplace(pair.second);
    if (target.second) target.first->second = BlockAt(transfer, transfer.to, pair.second);
    const int64_t shared = SharedPartOf(source.first->second, target.first->second).elements * ItemSize(transfer.dtype);
    bytes[transfer.from.ranks[pair.first]] += shared;
    bytes[transfer.to.ranks[pair.second]] += shared;
  }
  int64_t busiest = 1;
  for (const auto& [rank, moved] : bytes) busiest = std::max(busiest, moved);
  return (busiest - 1) / round_bytes + 1;
}

// The parts that `rank` exchanges, by peer, and the one that it copies.
struct Parts {
  std::vector<PeerParts> peers;
  SharedPart local;
};
Parts PartsOf(const Transfer& transfer, int rank, int size) {
  Parts parts;
  parts.peers.resize(static_cast<size_t>(size));
  const int source = RankOn(transfer.from, rank), target = RankOn(transfer.to, rank);
  const Block from = source < 0 ? Block{} : BlockAt(transfer, transfer.from, source);
  const Block to = target < 0 ? Block{} : BlockAt(transfer, transfer.to, target);
  for (const auto& pair : transfer.suppliers) {
    if (IsLocal(transfer, pair)) {
      if (pair.first == source) parts.local = SharedPartOf(from, to);
    } else if (pair.first == source) {
      parts.peers[transfer.to.ranks[pair.second]].send =
          SharedPartOf(from, BlockAt(transfer, transfer.to, pair.second));
    } else if (pair.second == target) {
      parts.peers[transfer.from.ranks[pair.first]].receive =
          SharedPartOf(BlockAt(transfer, transfer.from, pair.first), to);
    }
  }
  return parts;
}

absl::Status CheckSide(absl::string_view name, const TransferEnd& side, int size) {
  if (static_cast<int>(side.ranks.size()) != side.mesh.rank_count()) {
    return absl::InternalError(
        absl::StrCat("transfer: ", side.ranks.size(), " ranks for the ", name, " mesh of ", side.mesh.rank_count()));
  }
  for (size_t i = 0; i < side.ranks.size(); ++i) {
    if (side.ranks[i] < 0 || side.ranks[i] >= size ||
        std::count(side.ranks.begin(), side.ranks.end(), side.ranks[i]) != 1) {
      return absl::InternalError(absl::StrCat("transfer: rank ", i, " of the ", name, " mesh is rank ", side.ranks[i],
                                              " of a communicator of ", size));
    }
  }
  for (const Placement& placement : side.placements) {
    if (placement.IsPartial()) return absl::InternalError(absl::StrCat("transfer: the ", name, " layout is Partial"));
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(absl::string_view name, const Transfer& transfer, const TransferEnd& side, int rank,
                        const ConstTensorView* view) {
  const int mine = RankOn(side, rank);
  if (mine < 0 && view == nullptr) return absl::OkStatus();
  if (mine < 0 || view == nullptr || view->dtype != transfer.dtype ||
      view->shape != BlockAt(transfer, side, mine).shape) {
    return absl::InternalError(
        absl::StrCat("transfer: the ", name, " block of rank ", rank, " does not fit its layout"));
  }
  return absl::OkStatus();
}

absl::Status Check(const Transfer& transfer, int rank, int size, const ConstTensorView* source,
                   const TensorView* target) {
  TP_RETURN_IF_ERROR(CheckSide("source", transfer.from, size));
  TP_RETURN_IF_ERROR(CheckSide("target", transfer.to, size));
  TP_RETURN_IF_ERROR(CheckBlock("source", transfer, transfer.from, rank, source));
  ConstTensorView wanted;
  if (target != nullptr) wanted = *target;
  TP_RETURN_IF_ERROR(CheckBlock("target", transfer, transfer.to, rank, target == nullptr ? nullptr : &wanted));
  for (const auto& [from, to] : transfer.suppliers) {
    if (from < 0 || from >= transfer.from.mesh.rank_count() || to < 0 || to >= transfer.to.mesh.rank_count()) {
      return absl::InternalError(absl::StrCat("transfer: a supplier (", from, ", ", to, ") that is not there"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TransferScratchBytes(const Transfer& transfer, int rank, int64_t round_bytes) {
  const int64_t rounds = Rounds(transfer, round_bytes), item = ItemSize(transfer.dtype);
  const int size = 1 + std::max(*std::max_element(transfer.from.ranks.begin(), transfer.from.ranks.end()),
                                *std::max_element(transfer.to.ranks.begin(), transfer.to.ranks.end()));
  const Parts parts = PartsOf(transfer, rank, size);
  int64_t sent = 0, received = 0;
  for (const PeerParts& peer : parts.peers) {
    sent += (peer.send.elements + rounds - 1) / rounds * item;
    received += (peer.receive.elements + rounds - 1) / rounds * item;
  }
  return (sent + 63) / 64 * 64 + received;
}

absl::StatusOr<int64_t> ExecuteTransfer(const TransferContext& context, const Transfer& transfer,
                                        const ConstTensorView* source, const TensorView* target, Scratch scratch) {
  Communicator& communicator = context.communicator;
  const int rank = communicator.rank(), size = communicator.size();
  TP_RETURN_IF_ERROR(Check(transfer, rank, size, source, target));
  const Parts parts = PartsOf(transfer, rank, size);
  int64_t received = 0;
  for (const PeerParts& peer : parts.peers) received += peer.receive.elements;
  if (target != nullptr && received + parts.local.elements != ElementCount(target->shape)) {
    return absl::InternalError(absl::StrCat("transfer: the suppliers of rank ", rank, " hold ",
                                            received + parts.local.elements, " elements of its ",
                                            ElementCount(target->shape)));
  }
  std::vector<int> group(static_cast<size_t>(size));
  std::iota(group.begin(), group.end(), 0);
  const ConstTensorView from = source == nullptr ? ConstTensorView(transfer.dtype, nullptr, {}) : *source;
  const TensorView to = target == nullptr ? TensorView{transfer.dtype, nullptr, {}} : *target;
  TP_RETURN_IF_ERROR(ExchangeParts(context.device, context.stream, communicator, group, parts.peers,
                                   Rounds(transfer, context.round_bytes), from, to, scratch, context.deadline));
  if (parts.local.elements > 0) {
    TP_RETURN_IF_ERROR(CopyShared(context.device, context.stream, parts.local, from, to));
  }
  return received * ItemSize(transfer.dtype);
}

}  // namespace tp::worker
