// The inside of WalkModel: one walk over the flat model that gives each value its placements and writes the program.
// walk.cc goes through the nodes and the modules' borders, walk_layouts.cc applies what entries say of a value,
// walk_functions.cc places functions. Internal to common/program.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/names.h"
#include "common/program/builder.h"
#include "common/program/request_values.h"
#include "common/program/styles.h"
#include "common/program/walk.h"

namespace tp {

// Where a value of the flat model is now. A pending bias belongs to a product that is still a sum over ranks: it is
// added once, after the reduction.
struct Slot {
  int value = -1;
  int bias = -1;
  int bias_dim = -1;  // of the value: [bias_dim] is the bias's size
  // A problem that was told leaves open where it lies: what follows from that is not told.
  bool unsure = false;
};

// Of a node's module, for messages.
inline std::string WhereOf(const FlatNode& node) {
  return node.module_path.empty() ? "the root module" : Cut(node.module_path, 160);
}

class Walk {
 public:
  Walk(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan, Problems* problems)
      : submission_(submission),
        model_(model),
        plan_(plan),
        problems_(problems),
        slots_(model.values.size()),
        requests_(model) {}

  absl::StatusOr<WalkResult> Run();

 private:
  // The value of a slot with its bias added, reduced first.
  absl::StatusOr<int> Settle(Slot* slot, const std::string& module_path);
  // The value's placements with those that the layout names; INVALID_ARGUMENT where they do not fit its shape.
  absl::StatusOr<Placements> OnAxes(const Layout& layout, int value) const;
  // Adds a problem for each axis on which the value lies otherwise: "<where> says R, the <what> is S(1)".
  // False where it did.
  bool CheckClaim(const Placements& declared, int value, const std::string& where, const std::string& what);
  // Adds a layout that does not fit its value to the problems; the value stays where it is, unsure.
  absl::Status Misfit(const ResolvedEntry& entry, const std::string& module_path, const std::string& field,
                      const absl::Status& status, Slot* slot);
  // What one entry does to one input or output of a module: checks the claim, then moves.
  absl::Status Change(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, Slot* slot);
  // Whole heads instead of equal cuts, on the output of a Linear that makes keys or values of fewer heads than ranks.
  void GroupHeads(const ResolvedEntry& entry, const FlatNode& node, int value, Placements* placements) const;
  // A sharding that leaves a batch axis out makes it R.
  void WarnOfBatch(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, int value,
                   bool request);
  // The sharding with local_map on a module; nullptr where there is none.
  const ShardingConfig* LocalMapOf(const std::string& module_path) const;
  // A function inside a local_map, on the blocks as they are.
  absl::Status CallLocally(const FlatNode& node);
  // The outputs of a local_map named as its out_src says.
  void NameBlocks(const ShardingConfig& sharding, const FlatNode& node);
  void AddProblem(int entry, const FlatNode& node, const absl::Status& status);
  // What a node makes where it can't be placed: whole values, unsure. Tells why, but for what follows from unsure
  // inputs.
  void GiveUp(const FlatNode& node, const absl::Status& status);
  bool HasUnsureInput(const FlatNode& node) const;
  void MarkOutputs(const FlatNode& node);
  void RecordOutputs(const FlatNode& node);

  void AddOperands();
  absl::Status EnterModule(const FlatNode& node);
  absl::Status LeaveModule(const FlatNode& node);
  void CallFunction(const FlatNode& node);
  absl::Status PlaceFunction(const FlatNode& node);
  // The class dim of a cross entropy may be cut by one axis.
  void CheckClasses(const FlatNode& node, int input, const std::string& where);
  // The function as messages name it: "bmm" of a matmul, "max (cross_entropy)" of a part of one.
  std::string WrittenFunction(const FlatNode& node) const;
  absl::StatusOr<int> PositionsFor(int value);
  PlacedModule* Placed(const std::string& path);

  const Submission& submission_;
  const FlatModel& model_;
  const ResolvedPlan& plan_;
  Problems* problems_;
  ForwardProgram program_;
  ProgramBuilder builder_{&program_};
  std::vector<Slot> slots_;
  RequestValues requests_;
  std::vector<PlacedModule> modules_;
  std::map<std::string, size_t> module_index_;
  std::map<std::string, int> calls_;  // of each module, so far
  std::vector<ModuleOutput> module_outputs_;
  std::set<int> states_;  // values that are states
  int positions_ = -1;
  bool in_local_map_ = false;
  std::vector<std::string> warnings_;
};
}  // namespace tp
