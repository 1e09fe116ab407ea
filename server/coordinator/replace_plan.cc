#include "server/coordinator/replace_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/load_plan.h"

namespace tp::server {
namespace {

constexpr int64_t kBatchBytes = int64_t{64} << 20;

bool Draws(const WeightSource& source) {
  return source.kind == WeightSource::Kind::kInitializer ||
         std::any_of(source.parts.begin(), source.parts.end(), Draws);
}

int64_t Largest(const TakenState& state) {
  return state.from_bytes.empty() ? 0 : *std::max_element(state.from_bytes.begin(), state.from_bytes.end());
}

}  // namespace

absl::StatusOr<std::vector<TakenState>> PlanTakeover(const PlacedModel& served, const PlacedModel& replacement,
                                                     const std::vector<LoadState>& states) {
  std::map<std::string, LoadState> held;
  for (LoadState& state : StatesToLoad(served.compiled)) held[state.path] = std::move(state);
  const Mesh& from_mesh = served.compiled.mesh;
  const Mesh& to_mesh = replacement.compiled.mesh;
  const MeshPlace to_place{to_mesh, replacement.workers};
  const bool same_ranks = from_mesh == to_mesh && served.workers == replacement.workers;
  const bool same_seed = served.submission.seed == replacement.submission.seed;
  std::vector<TakenState> taken;
  for (size_t i = 0; i < states.size(); ++i) {
    const LoadState& to = states[i];
    const auto it = held.find(to.path);
    if (it == held.end() || to.source.kind == WeightSource::Kind::kAlias) continue;
    const LoadState& from = it->second;
    if (from.dtype != to.dtype || from.shape != to.shape || !(from.source == to.source)) continue;
    if (Draws(to.source) && !same_seed) continue;
    if (HasPartial(from.placements) || HasPartial(to.placements)) continue;
    const TensorType type{to.dtype, to.shape};
    TakenState state;
    state.index = i;
    state.from = from;
    state.from_bytes = BlockBytes(from_mesh, type, from.placements);
    state.to_bytes = BlockBytes(to_mesh, type, to.placements);
    if (!same_ranks || from.placements != to.placements) {
      absl::StatusOr<MovePlan> plan =
          PlanMove(type, {from_mesh, served.workers}, from.placements, &to_place, to.placements);
      if (!plan.ok()) return Annotate(plan.status(), to.path);
      state.hop = std::move(plan->hop);
    }
    taken.push_back(std::move(state));
  }
  return taken;
}

size_t BatchEnd(const std::vector<TakenState>& taken, size_t begin) {
  size_t end = begin;
  for (int64_t bytes = 0; end < taken.size(); ++end) {
    bytes += Largest(taken[end]);
    if (end > begin && bytes > kBatchBytes) break;
  }
  return end;
}

MoveBytes BytesToMove(const std::vector<TakenState>& taken, int served_ranks, int replacement_ranks) {
  MoveBytes most{std::vector<int64_t>(static_cast<size_t>(served_ranks), 0),
                 std::vector<int64_t>(static_cast<size_t>(replacement_ranks), 0)};
  for (size_t begin = 0; begin < taken.size();) {
    const size_t end = BatchEnd(taken, begin);
    for (size_t rank = 0; rank < most.served.size(); ++rank) {
      int64_t copies = 0;  // of packed weights, until they have moved
      for (size_t i = begin; i < end; ++i) {
        if (taken[i].hop.has_value() && taken[i].from.packed) copies += taken[i].from_bytes[rank];
      }
      most.served[rank] = std::max(most.served[rank], copies);
    }
    begin = end;
  }
  for (const TakenState& state : taken) {  // plain and packed at once
    if (!state.from.packed) continue;
    for (size_t rank = 0; rank < most.replacement.size(); ++rank) {
      most.replacement[rank] = std::max(most.replacement[rank], state.to_bytes[rank]);
    }
  }
  return most;
}

}  // namespace tp::server
