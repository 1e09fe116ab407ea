#include "common/program/rank_classes.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/layout/spec.h"

namespace tp {
namespace {

// One way to cut one dim: its size and the placements on the axes that cut it.
class Cuts {
 public:
  explicit Cuts(const Mesh& mesh) : mesh_(mesh) {}
  void Add(const Shape& global, const Placements& placements) {
    for (size_t dim = 0; dim < global.size(); ++dim) {
      Placements own(placements.size());
      bool cut = false;
      for (size_t axis = 0; axis < placements.size(); ++axis) {
        if (!placements[axis].Cuts(static_cast<int>(dim))) continue;
        own[axis] = placements[axis];
        own[axis].dim = 0;
        cut = true;
      }
      if (!cut) continue;
      const std::string key = absl::StrCat(global[dim], " ", PlacementsText(mesh_, own));
      if (seen_.insert(key).second) cuts_.emplace_back(global[dim], std::move(own));
    }
  }
  // Local sizes of all cuts at a coordinate.
  std::vector<int64_t> SizesAt(const Coordinate& coordinate) const {
    std::vector<int64_t> sizes;
    for (const auto& [size, placements] : cuts_) sizes.push_back(LocalShape({size}, placements, mesh_, coordinate)[0]);
    return sizes;
  }

 private:
  const Mesh& mesh_;
  std::vector<std::pair<int64_t, Placements>> cuts_;
  std::set<std::string> seen_;
};

// Numbers for keys, in the order in which they come.
template <typename Key>
class Numbers {
 public:
  int Of(Key key) { return numbers_.emplace(std::move(key), static_cast<int>(numbers_.size())).first->second; }

 private:
  std::map<Key, int> numbers_;
};

struct SizedStep {
  RedistributeStep step;
  DType dtype = DType::kF32;
  Shape shape;
};

}  // namespace

absl::StatusOr<std::vector<int>> RankClasses(const CompiledModel& model, const Bindings& bindings) {
  const Mesh& mesh = model.mesh;
  Cuts cuts(mesh);
  for (const PlacedState& placed : model.states) cuts.Add(placed.state.shape, placed.placements);
  for (const ProgramValue& value : model.program.values) {
    TP_ASSIGN_OR_RETURN(const Shape shape, EvaluateShape(value.spec.shape, bindings));
    cuts.Add(shape, value.spec.placements);
  }
  const ForwardProgram& cached = model.step_program.has_value() ? *model.step_program : model.program;
  for (const CacheSpec& cache : cached.caches) cuts.Add({cache.kv_heads}, cache.heads_placements);

  // A step's scratch is decided by the blocks of the rank and of its group; of a permute, by where they lie too.
  std::set<std::vector<int>> groups;
  std::vector<SizedStep> permutes;
  for (const Instruction& instruction : model.program.instructions) {
    if (!instruction.step.has_value()) continue;
    groups.insert(instruction.step->axes);
    if (instruction.step->op != RedistributeOp::kPermute) continue;
    const DTensorSpec& spec = model.program.values[instruction.inputs[0]].spec;
    TP_ASSIGN_OR_RETURN(const Shape shape, EvaluateShape(spec.shape, bindings));
    permutes.push_back({*instruction.step, spec.dtype, shape});
  }

  const int ranks = mesh.rank_count();
  std::vector<int> own(static_cast<size_t>(ranks));
  Numbers<std::vector<int64_t>> by_sizes;
  for (int rank = 0; rank < ranks; ++rank) {
    const Coordinate coordinate = mesh.CoordinateOf(rank);
    std::vector<int64_t> key = cuts.SizesAt(coordinate);
    for (const SizedStep& sized : permutes) {
      key.push_back(StepScratchBytes(mesh, sized.dtype, sized.shape, sized.step, coordinate));
    }
    own[rank] = by_sizes.Of(std::move(key));
  }
  std::vector<int> classes = own;
  for (const std::vector<int>& axes : groups) {
    Numbers<std::vector<int>> by_members;
    Numbers<std::pair<int, int>> joined;
    std::vector<int> members_of(static_cast<size_t>(ranks), -1);
    for (int rank = 0; rank < ranks; ++rank) {
      if (members_of[rank] >= 0) continue;
      const std::vector<int> group = mesh.GroupAlong(absl::MakeConstSpan(axes), rank);
      std::vector<int> key;
      for (int member : group) key.push_back(own[member]);
      const int number = by_members.Of(std::move(key));
      for (int member : group) members_of[member] = number;
    }
    for (int rank = 0; rank < ranks; ++rank) classes[rank] = joined.Of({classes[rank], members_of[rank]});
  }
  std::vector<int> first;
  for (int rank = 0; rank < ranks; ++rank) {
    if (classes[rank] == static_cast<int>(first.size())) first.push_back(rank);
    classes[rank] = first[classes[rank]];
  }
  return classes;
}

}  // namespace tp
