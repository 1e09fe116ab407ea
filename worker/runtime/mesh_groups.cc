#include "worker/runtime/mesh_groups.h"

#include <set>

namespace tp::worker {

std::vector<std::vector<std::vector<int>>> GroupsOf(const ForwardProgram& program) {
  std::set<std::vector<int>> sets;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.step.has_value() && !instruction.step->axes.empty()) sets.insert(instruction.step->axes);
  }
  std::vector<std::vector<std::vector<int>>> partitions;
  for (const std::vector<int>& axes : sets) {
    std::vector<std::vector<int>>& partition = partitions.emplace_back();
    for (int rank = 0; rank < program.mesh.rank_count(); ++rank) {
      std::vector<int> group = program.mesh.GroupAlong(absl::MakeConstSpan(axes), rank);
      if (group.front() == rank) partition.push_back(std::move(group));
    }
  }
  return partitions;
}

}  // namespace tp::worker
