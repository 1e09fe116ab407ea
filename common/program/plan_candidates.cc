#include "common/program/plan_candidates.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/program/match.h"

namespace tp {
namespace {

// What makes two modules alike: kind, sizes, graph and children, but not their own name.
std::string Signature(const Module& module) {
  std::string text = absl::StrCat(module.config.index(), module.sharding.has_value() ? "!" : "");
  if (const auto* linear = std::get_if<LinearConfig>(&module.config)) {
    absl::StrAppend(&text, "(", linear->in_features, ",", linear->out_features, ",", linear->bias, ")");
  } else if (const auto* embedding = std::get_if<EmbeddingConfig>(&module.config)) {
    absl::StrAppend(&text, "(", embedding->num_embeddings, ",", embedding->embedding_dim, ")");
  } else if (const auto* composite = std::get_if<CompositeConfig>(&module.config)) {
    for (const GraphNode& node : composite->nodes) {
      absl::StrAppend(&text, ";", node.child, node.function);
      for (const Argument& argument : node.arguments) absl::StrAppend(&text, ",", argument.name, "=", argument.value);
    }
  }
  for (const Module& child : module.children) absl::StrAppend(&text, "[", child.name, ":", Signature(child), "]");
  return text;
}

bool IsContainer(const Module& module) {
  return std::holds_alternative<SequentialConfig>(module.config) ||
         std::holds_alternative<ModuleListConfig>(module.config) ||
         std::holds_alternative<ModuleDictConfig>(module.config);
}

// The children of a container that are all alike are one `*`; a leaf that is such a child itself keeps its name, since
// its neighbours are what it works together with.
class Patterns {
 public:
  explicit Patterns(const FlatModel& model) {
    for (const FlatModule& module : model.modules) {
      if (module.module == nullptr || !IsContainer(*module.module) || module.module->children.size() < 2) continue;
      std::set<std::string> kinds;
      for (const Module& child : module.module->children) kinds.insert(Signature(child));
      if (kinds.size() == 1 && !module.module->children[0].children.empty()) alike_.insert(module.path);
    }
  }
  std::string Of(const std::string& path) const {
    if (path.empty()) return path;
    std::vector<std::string> tokens = absl::StrSplit(path, '.'), pattern;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string parent = absl::StrJoin(tokens.begin(), tokens.begin() + i, ".");
      pattern.push_back(i + 1 < tokens.size() && alike_.contains(parent) ? "*" : tokens[i]);
    }
    return absl::StrJoin(pattern, ".");
  }

 private:
  std::set<std::string> alike_;
};

// Paths of modules that a declarative sharding places: their own, or that of a module above that names a state of them.
std::set<std::string> ShardedModules(const FlatModel& model) {
  std::set<std::string> sharded;
  for (const FlatModule& module : model.modules) {
    if (module.module == nullptr || !module.module->sharding.has_value()) continue;
    sharded.insert(module.path);
    for (const auto& [state, placements] : module.module->sharding->state_shardings) {
      const size_t dot = state.rfind('.');
      if (dot == std::string::npos) continue;
      sharded.insert(absl::StrCat(module.path, module.path.empty() ? "" : ".", state.substr(0, dot)));
    }
  }
  return sharded;
}

// Whether a value is cut over ranks where every Linear before it is cut.
enum class Cut { kState, kWhole, kCut };

// Functions after which the features are whole again, whatever they were.
bool MakesWhole(const std::string& function, size_t rank) {
  if (function == "softmax" || function == "log_softmax") return rank < 4;  // of scores the heads are cut
  for (const char* name : {"rms_norm", "layer_norm", "embedding", "sum", "mean", "max", "min", "argmax", "topk",
                           "max_with_index", "min_with_index", "arange", "pick"}) {
    if (function == name) return true;
  }
  return false;
}

size_t RankOf(const FlatModel& model, int value) { return model.values[value].type.shape.size(); }

Cut Joined(const FlatNode& node, const std::vector<Cut>& cuts) {
  bool cut = false, whole = false;
  for (int input : node.inputs) {
    if (input < 0) continue;
    cut |= cuts[input] == Cut::kCut;
    whole |= cuts[input] == Cut::kWhole;
  }
  return cut && !whole ? Cut::kCut : whole || cut ? Cut::kWhole : Cut::kState;
}

// Follows a value back through module boundaries.
std::vector<int> Origins(const FlatModel& model) {
  std::vector<int> origin(model.values.size());
  for (size_t i = 0; i < origin.size(); ++i) origin[i] = static_cast<int>(i);
  for (const FlatNode& node : model.nodes) {
    if (node.kind == FlatNode::Kind::kFunction) continue;
    for (size_t i = 0; i < node.outputs.size() && i < node.inputs.size(); ++i) {
      if (node.inputs[i] >= 0 && node.outputs[i] >= 0) origin[node.outputs[i]] = origin[node.inputs[i]];
    }
  }
  return origin;
}

std::vector<std::vector<Style>> LinearOptions(bool rowwise_first, bool sequence) {
  RowwiseParallel rowwise;
  ColwiseParallel gathered;
  gathered.output_layouts = Placement::Replicate();
  if (sequence) {
    rowwise.output_layouts = Placement::Shard(1);
    gathered.output_layouts = Placement::Shard(1);
  }
  if (rowwise_first) return {{rowwise}, {ColwiseParallel{}}, {gathered}};
  return {{ColwiseParallel{}}, {rowwise}, {gathered}};
}

std::vector<std::vector<Style>> EmbeddingOptions(bool sequence) {
  RowwiseParallel rowwise;
  ColwiseParallel gathered;
  gathered.output_layouts = Placement::Replicate();
  if (!sequence) return {{}, {rowwise}, {gathered}, {ColwiseParallel{}}};
  rowwise.output_layouts = Placement::Shard(1);
  gathered.output_layouts = Placement::Shard(1);
  PrepareModuleOutput cut;
  cut.output_layouts = {Placement::Replicate()};
  cut.desired_output_layouts = {Placement::Shard(1)};
  return {{cut}, {rowwise}, {gathered}, {}};
}

}  // namespace

std::vector<PlanCandidate> PlanCandidates(const FlatModel& model, bool sequence_parallel) {
  const Patterns patterns(model);
  const std::set<std::string> sharded = ShardedModules(model);
  const std::vector<int> origin = Origins(model);
  std::vector<PlanCandidate> candidates;
  std::map<std::string, size_t> known;  // pattern -> candidate
  std::vector<Cut> cuts(model.values.size(), Cut::kWhole);
  for (const auto& [path, value] : model.state_values) cuts[value] = Cut::kState;
  for (const FlatNode& node : model.nodes) {
    if (node.kind != FlatNode::Kind::kFunction) {
      for (size_t i = 0; i < node.outputs.size() && i < node.inputs.size(); ++i) {
        if (node.inputs[i] >= 0 && node.outputs[i] >= 0) cuts[node.outputs[i]] = cuts[node.inputs[i]];
      }
      continue;
    }
    const FlatModule* module = ModuleAt(model, node.module_path);
    const ModuleConfig* config = module == nullptr || module->module == nullptr ? nullptr : &module->module->config;
    Cut made = node.outputs.empty() || MakesWhole(node.function, RankOf(model, node.outputs[0])) ? Cut::kWhole
                                                                                                 : Joined(node, cuts);
    const bool linear = config != nullptr && std::holds_alternative<LinearConfig>(*config);
    const bool embedding = config != nullptr && std::holds_alternative<EmbeddingConfig>(*config);
    const bool norm =
        config != nullptr && (node.function == "rms_norm" || node.function == "layer_norm") &&
        (std::holds_alternative<RMSNormConfig>(*config) || std::holds_alternative<LayerNormConfig>(*config));
    if (linear && node.function != "linear") {
      made = Joined(node, cuts);  // what else a Linear does to its product, as a cast
    } else if ((linear || embedding || norm) && !sharded.contains(node.module_path)) {
      const size_t rank = RankOf(model, node.outputs[0]);
      const bool sequence = sequence_parallel && rank >= 3;
      auto [place, added] = known.emplace(patterns.Of(node.module_path), candidates.size());
      if (added) {
        PlanCandidate candidate{.pattern = place->first, .is_linear = linear, .is_embedding = embedding};
        candidate.source = origin[node.inputs[0]];
        if (linear) candidate.options = LinearOptions(cuts[node.inputs[0]] == Cut::kCut, sequence);
        if (embedding) candidate.options = EmbeddingOptions(sequence);
        // A norm of features; one of heads, or over the sequence itself, is left alone.
        const auto* dims = norm ? std::get_if<LayerNormConfig>(config) : nullptr;
        if (norm && sequence && cuts[node.inputs[0]] == Cut::kWhole && rank == 3 &&
            (dims == nullptr || dims->normalized_shape.size() == 1)) {
          candidate.options = {{SequenceParallel{}}, {}};
        }
        candidates.push_back(std::move(candidate));
      }
      const auto& options = candidates[place->second].options;
      if (linear) made = std::holds_alternative<ColwiseParallel>(options[0][0]) ? Cut::kCut : Cut::kWhole;
    }
    for (int output : node.outputs) {
      if (output >= 0) cuts[output] = made;
    }
  }
  std::erase_if(candidates, [](const PlanCandidate& candidate) { return candidate.options.empty(); });
  return candidates;
}

std::vector<PlanEntry> GatheringModules(const FlatModel& model, const std::vector<std::string>& colwise_patterns) {
  const Patterns patterns(model);
  auto is_colwise = [&](const std::string& path) {
    return std::any_of(colwise_patterns.begin(), colwise_patterns.end(),
                       [&](const std::string& pattern) { return PatternMatches(pattern, path); });
  };
  // Values that are read by something other than a ColwiseParallel Linear, directly or through a module's boundary.
  std::vector<bool> other(model.values.size(), false), read(model.values.size(), false);
  for (const auto& [name, value] : model.outputs) other[value] = true;
  std::set<std::string> with_norm;
  for (auto node = model.nodes.rbegin(); node != model.nodes.rend(); ++node) {
    const bool boundary = node->kind != FlatNode::Kind::kFunction;
    if (node->function == "rms_norm" || node->function == "layer_norm") {
      std::string path = node->module_path;
      while (!path.empty()) {
        with_norm.insert(path);
        const size_t dot = path.rfind('.');
        path.resize(dot == std::string::npos ? 0 : dot);
      }
    }
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const int input = node->inputs[i];
      if (input < 0) continue;
      if (boundary && i < node->outputs.size() && node->outputs[i] >= 0) {
        if (node->kind == FlatNode::Kind::kModuleInput && is_colwise(node->module_path)) {
          read[input] = true;
        } else {
          read[input] = read[input] || read[node->outputs[i]];
          other[input] = other[input] || other[node->outputs[i]];
        }
      } else {
        other[input] = true;
      }
    }
  }
  std::vector<PlanEntry> entries;
  std::set<std::string> seen, inside;
  for (const FlatNode& node : model.nodes) {
    if (node.kind != FlatNode::Kind::kModuleInput || node.module_path.empty()) continue;
    if (is_colwise(node.module_path) || with_norm.contains(node.module_path)) continue;
    const bool below = std::any_of(inside.begin(), inside.end(), [&](const std::string& path) {
      return node.module_path.size() > path.size() && node.module_path.compare(0, path.size() + 1, path + ".") == 0;
    });
    if (below) continue;
    PrepareModuleInput prepare;
    bool gathers = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int inner = node.outputs[i];
      const bool whole = inner >= 0 && read[inner] && !other[inner];
      gathers |= whole;
      prepare.input_layouts.push_back(whole ? Layout(Placement::Shard(1)) : Layout());
      prepare.desired_input_layouts.push_back(whole ? Layout(Placement::Replicate()) : Layout());
    }
    if (!gathers) continue;
    inside.insert(node.module_path);
    const std::string pattern = patterns.Of(node.module_path);
    if (seen.insert(pattern).second) entries.push_back({pattern, prepare});
  }
  return entries;
}

}  // namespace tp
