// Walks a definition's module tree (flatten.cc) and its graphs (flatten_graph.cc) for FlattenModel. Internal to
// common/model.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/problems.h"
#include "common/model/flat_builder.h"
#include "common/model/flatten.h"
#include "common/model/graph_scope.h"

namespace tp {

// What a call makes.
struct Made {
  std::vector<int> values;
  std::vector<std::string> names;  // one for each
  OutputStructure structure = OutputStructure::kSingle;

  static Made Single(int value) { return {{value}, {"output"}, OutputStructure::kSingle}; }
};

// Walks the module tree and its graphs; `flat_` grows. What is wrong is told and leaves its values unknown: calls that
// take an unknown value are checked as far as that goes without it, and make unknown values themselves.
class Flattener {
 public:
  Flattener(const ModelDef& model, DType compute_dtype)
      : model_(model), compute_dtype_(compute_dtype), builder_(&flat_, SymbolsOf(model)) {}

  absl::StatusOr<FlatModel> Run();

 private:
  // Sizes that the inputs name.
  static std::set<std::string> SymbolsOf(const ModelDef& model);
  // nullopt: unknown.
  using MaybeMade = std::optional<Made>;

  void Tell(const std::string& field, const absl::Status& status);
  void Tell(const std::string& field, const std::string& text) { Tell(field, absl::InvalidArgumentError(text)); }
  void AddModules(const Module& module, const std::string& path);
  // Adds a call of `module`; `inputs` has one entry for each argument; `positional`: how many of them the call passes
  // by position.
  MaybeMade Call(const Module& module, const std::string& path, const std::vector<Bound>& inputs, int positional);
  MaybeMade Forward(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  MaybeMade ForwardLeaf(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  MaybeMade ForwardChain(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  MaybeMade ForwardGraph(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  MaybeMade CallNode(const Module& module, const std::string& path, const GraphNode& node, const GraphScope& scope,
                     const std::string& field);
  MaybeMade CallFunction(const CompositeConfig& graph, const std::string& path, const GraphNode& node,
                         const GraphScope& scope, const std::string& field);
  // What a call that can't be bound says of values that are not there.
  void TellUnknownValues(const GraphNode& node, const CompositeConfig& graph, const GraphScope& scope,
                         const std::string& field);
  MaybeMade GraphOutputs(const CompositeConfig& graph, const std::string& field, const GraphScope& scope);

  const ModelDef& model_;
  const DType compute_dtype_;
  FlatModel flat_;
  FlatBuilder builder_;
  std::map<std::string, size_t> module_index_;  // path -> index in flat_.modules
  std::set<std::string> stateless_;             // paths of modules whose states are wrong
  bool inputs_wrong_ = false;                   // the model's inputs are
  bool stopped_ = false;                        // enough was told
  Problems problems_;
};

}  // namespace tp
