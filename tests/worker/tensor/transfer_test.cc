#include "worker/tensor/transfer.h"

#include <algorithm>
#include <map>
#include <random>

#include "tests/worker/tensor/rank_threads.h"

namespace tp::worker {
namespace {

std::string BlockKey(const Shape& global, const TransferEnd& side, int rank) {
  std::string key;
  for (size_t d = 0; d < global.size(); ++d) {
    for (const Interval& interval :
         OwnedIntervals(global[d], static_cast<int>(d), side.placements, side.mesh, side.mesh.CoordinateOf(rank))) {
      key += std::to_string(interval.begin) + "-" + std::to_string(interval.end) + ",";
    }
    key += ";";
  }
  return key;
}

// Of equal copies of a source block the target's own worker supplies it, else the first: the simplest legal list.
std::vector<std::pair<int, int>> SimpleSuppliers(const Shape& global, const TransferEnd& from, const TransferEnd& to) {
  std::vector<std::pair<int, int>> suppliers;
  for (int target = 0; target < to.mesh.rank_count(); ++target) {
    std::map<std::string, int> chosen;
    for (int source = 0; source < from.mesh.rank_count(); ++source) {
      int& one = chosen.try_emplace(BlockKey(global, from, source), source).first->second;
      if (from.ranks[source] == to.ranks[target]) one = source;
    }
    for (const auto& [key, source] : chosen) suppliers.emplace_back(source, target);
  }
  return suppliers;
}

// The bytes of the target block that its worker does not hold in the source layout, element by element.
int64_t Lacking(const Transfer& transfer, int source, int target) {
  const auto held = [&](const TransferEnd& side, int rank) {
    SimTensor index = Counting(transfer.global);
    if (rank < 0) return std::vector<double>();
    return LocalBlock(index, side.placements, side.mesh, side.mesh.CoordinateOf(rank)).values;
  };
  const std::vector<double> mine = held(transfer.from, source);
  int64_t lacking = 0;
  for (const double element : held(transfer.to, target)) {
    if (std::find(mine.begin(), mine.end(), element) == mine.end()) lacking += ItemSize(transfer.dtype);
  }
  return lacking;
}

int RankIn(const TransferEnd& side, int rank) {
  const auto it = std::find(side.ranks.begin(), side.ranks.end(), rank);
  return it == side.ranks.end() ? -1 : static_cast<int>(it - side.ranks.begin());
}

// Runs on `size` workers with rounds of each size, and compares with blocks cut from the global tensor.
void Check(int size, const std::vector<Transfer>& transfers) {
  OnEveryRank(size, [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    for (const Transfer& transfer : transfers) {
      const int source = RankIn(transfer.from, rank), target = RankIn(transfer.to, rank);
      const SimTensor global = Counting(transfer.global);
      for (const int64_t round_bytes : {kRoundBytes, int64_t{24}, int64_t{1}}) {
        const TransferContext context{device, stream, communicator, absl::Now() + absl::Seconds(60), round_bytes};
        HostTensor from, to, want;
        if (source >= 0) {
          from = FromSim(
              LocalBlock(global, transfer.from.placements, transfer.from.mesh, transfer.from.mesh.CoordinateOf(source)),
              transfer.dtype);
        }
        if (target >= 0) {
          want = FromSim(
              LocalBlock(global, transfer.to.placements, transfer.to.mesh, transfer.to.mesh.CoordinateOf(target)),
              transfer.dtype);
          to = want;
          to.bytes.assign(to.bytes.size(), '\x5a');
        }
        const ConstTensorView from_view(from.dtype, from.bytes.data(), from.shape);
        const TensorView to_view{to.dtype, to.bytes.data(), to.shape};
        const int64_t scratch_bytes = TransferScratchBytes(transfer, rank, round_bytes);
        std::vector<char> scratch(static_cast<size_t>(scratch_bytes));
        const absl::StatusOr<int64_t> bytes =
            ExecuteTransfer(context, transfer, source < 0 ? nullptr : &from_view, target < 0 ? nullptr : &to_view,
                            {scratch.data(), scratch_bytes});
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        EXPECT_EQ(*bytes, target < 0 ? 0 : Lacking(transfer, source, target));
        if (target >= 0) {
          ASSERT_EQ(to, want) << PlacementsText(transfer.from.mesh, transfer.from.placements) << " -> "
                              << PlacementsText(transfer.to.mesh, transfer.to.placements) << " of "
                              << ShapeText(transfer.global) << " rank " << rank << " rounds of " << round_bytes;
        }
      }
    }
  });
}

TEST(Transfer, ToOtherSharedAndFewerWorkers) {
  const Mesh two = *Mesh::Parse("tp=2"), three = *Mesh::Parse("tp=3");
  const Placements rows{Placement::Shard(0)}, columns{Placement::Shard(1)}, whole{Placement::Replicate()};
  std::vector<Transfer> transfers;
  const auto add = [&](const Shape& shape, DType dtype, const TransferEnd& from, const TransferEnd& to) {
    transfers.push_back({shape, dtype, from, to, SimpleSuppliers(shape, from, to)});
  };
  add({5, 3}, DType::kF32, {two, rows, {0, 1}}, {three, rows, {2, 3, 4}});     // disjoint, one rank in neither
  add({5, 3}, DType::kF64, {two, rows, {0, 1}}, {three, columns, {1, 2, 0}});  // shared, in another order
  add({5, 3}, DType::kU8, {three, columns, {4, 2, 0}}, {two, whole, {4, 1}});
  add({5, 3}, DType::kI64, {two, whole, {3, 4}}, {three, rows, {0, 3, 5}});
  add({0, 3}, DType::kF32, {two, rows, {0, 1}}, {three, whole, {2, 3, 4}});
  add({}, DType::kF16, {two, whole, {0, 1}}, {three, whole, {2, 3, 1}});
  Check(6, transfers);
}

TEST(Transfer, RandomLayoutsBetweenRandomMeshes) {
  const std::vector<Mesh> meshes = {*Mesh::Parse("tp=1"), *Mesh::Parse("tp=3"), *Mesh::Parse("dp=2,tp=2"),
                                    *Mesh::Parse("dp=3,tp=2")};
  std::mt19937 random(77);
  std::vector<Placements> layouts;
  layouts.reserve(600);  // the transfers refer to them
  const auto side = [&](const Shape& shape) {
    const Mesh& mesh = meshes[random() % meshes.size()];
    Placements placements;
    do {
      placements.clear();
      for (const MeshAxis& axis : mesh.axes()) {
        const int dim = static_cast<int>(random() % shape.size());
        const uint32_t kind = random() % 5;
        placements.push_back(kind == 0                          ? Placement::Replicate()
                             : kind == 1                        ? Placement::StridedShard(dim, 2)
                             : kind == 2 && axis.size % 2 == 0  ? Placement::GroupShard(dim, 2)
                             : kind == 3 && shape[dim] % 3 == 0 ? Placement::InterleavedShard(dim, {2, 1})
                                                                : Placement::Shard(dim));
      }
    } while (!ValidateForShape(shape, placements, mesh).ok());
    layouts.push_back(placements);
    std::vector<int> ranks = {0, 1, 2, 3, 4, 5, 6};
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(static_cast<size_t>(mesh.rank_count()));
    return TransferEnd{mesh, layouts.back(), ranks};
  };
  std::vector<Transfer> transfers;
  while (transfers.size() < 100) {
    Shape shape;
    for (uint32_t d = 0, rank = 1 + random() % 3; d < rank; ++d) shape.push_back(random() % 7);
    const TransferEnd from = side(shape), to = side(shape);
    transfers.push_back({shape, DType::kF32, from, to, SimpleSuppliers(shape, from, to)});
  }
  Check(7, transfers);
}

TEST(Transfer, WhatDoesNotFitIsAnInternalErrorBeforeAnyByteMoves) {
  const Mesh two = *Mesh::Parse("tp=2");
  const Placements rows{Placement::Shard(0)}, partial{Placement::Partial()};
  OnEveryRank(2, [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    const TransferContext context{device, stream, communicator, absl::Now() + absl::Seconds(60)};
    std::vector<float> a(2), b(2);
    const ConstTensorView source(DType::kF32, a.data(), {2});
    const TensorView target{DType::kF32, b.data(), {2}};
    const auto refused = [&](const Transfer& transfer, const ConstTensorView* from, const TensorView* to) {
      EXPECT_EQ(ExecuteTransfer(context, transfer, from, to, {}).status().code(), absl::StatusCode::kInternal);
    };
    const TransferEnd side{two, rows, {0, 1}}, terms{two, partial, {0, 1}}, twice{two, rows, {0, 0}};
    refused({{4}, DType::kF32, side, side, {{0, 0}}}, &source, rank == 0 ? nullptr : &target);
    refused({{4}, DType::kF32, side, side, {{1, 0}, {0, 1}}}, &source, &target);  // none holds what is needed
    refused({{4}, DType::kF32, terms, side, {{0, 0}, {1, 1}}}, &source, &target);
    refused({{4}, DType::kF32, twice, side, {{0, 0}, {1, 1}}}, &source, &target);
    refused({{4}, DType::kF32, side, side, {{0, 0}, {1, 2}}}, &source, &target);
    refused({{6}, DType::kF32, side, side, {{0, 0}, {1, 1}}}, &source, &target);
    EXPECT_TRUE(ExecuteTransfer(context, {{4}, DType::kF32, side, side, {{0, 0}, {1, 1}}}, &source, &target, {}).ok());
  });
}

}  // namespace
}  // namespace tp::worker
