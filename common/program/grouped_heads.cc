#include "common/program/grouped_heads.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/model/validate.h"

namespace tp {
namespace {

// Functions that keep the heads of their input apart, so that a cut before them is a cut after them.
bool KeepsHeads(const std::string& function) {
  static const auto* names =
      new std::set<std::string>{"reshape", "transpose", "permute", "rotary",  "cast",       "silu",       "relu",
                                "gelu",    "tanh",      "sigmoid", "neg",     "add",        "sub",        "mul",
                                "div",     "rms_norm",  "maximum", "minimum", "layer_norm", "masked_fill"};
  return names->contains(function);
}

struct Producer {
  const FlatNode* node = nullptr;
  int output = 0;
};

std::vector<Producer> ProducersOf(const FlatModel& model) {
  std::vector<Producer> producers(model.values.size());
  for (const FlatNode& node : model.nodes) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] >= 0) producers[node.outputs[i]] = {&node, static_cast<int>(i)};
    }
  }
  return producers;
}

// Paths of the Linears with weight S(0) on `axis` whose products reach `start`.
void CollectLinears(const std::vector<Producer>& producers, const ResolvedPlan& plan, int axis, int start,
                    std::set<std::string>* linears) {
  std::vector<int> open{start};
  std::set<int> seen;
  while (!open.empty()) {
    const int value = open.back();
    open.pop_back();
    if (value < 0 || producers[value].node == nullptr || !seen.insert(value).second) continue;
    const FlatNode& node = *producers[value].node;
    if (node.kind != FlatNode::Kind::kFunction) {
      open.push_back(node.inputs[producers[value].output]);
    } else if (node.function == "linear") {
      auto weight = plan.states.find(JoinPath(node.module_path, "weight"));
      if (weight != plan.states.end() && weight->second[axis] == Placement::Shard(0)) {
        linears->insert(node.module_path);
      }
    } else if (KeepsHeads(node.function)) {
      for (int input : node.inputs) open.push_back(input);
    }
  }
}

bool CanCut(int64_t query_heads, int64_t key_heads, int64_t degree) {
  return query_heads % degree == 0 && (key_heads % degree == 0 || degree % key_heads == 0);
}

std::string LegalDegrees(int64_t query_heads, int64_t key_heads) {
  std::vector<std::string> legal;
  for (int64_t degree = 1; degree <= query_heads; ++degree) {
    if (CanCut(query_heads, key_heads, degree)) legal.push_back(absl::StrCat(degree));
  }
  return absl::StrJoin(legal, ", ");
}

}  // namespace

std::string FieldOfModule(const FlatModule& module) {
  return module.path.empty() ? "the root module" : Cut(module.path, 160);
}

void CheckHeads(const FlatModel& model, ResolvedPlan* plan, Problems* problems) {
  const std::vector<Producer> producers = ProducersOf(model);
  std::string listed;  // the degrees are the same in every layer: told once
  for (const FlatNode& node : model.nodes) {
    if (node.kind != FlatNode::Kind::kFunction || node.function != "attention") continue;
    const int64_t query_heads = model.values[node.inputs[0]].type.shape[2].constant();
    const int64_t key_heads = model.values[node.inputs[1]].type.shape[2].constant();
    for (int axis = 0; axis < plan->mesh.axis_count(); ++axis) {
      const int degree = plan->mesh.axis_size(axis);
      if (degree == 1) continue;
      std::set<std::string> query_linears, key_linears;
      CollectLinears(producers, *plan, axis, node.inputs[0], &query_linears);
      CollectLinears(producers, *plan, axis, node.inputs[1], &key_linears);
      CollectLinears(producers, *plan, axis, node.inputs[2], &key_linears);
      if (query_linears.empty()) continue;
      if (!CanCut(query_heads, key_heads, degree)) {
        const std::string text =
            absl::StrCat(query_heads, " query heads and ", key_heads, " key-value heads can't be cut over ", degree,
                         " ranks; legal degrees: ", LegalDegrees(query_heads, key_heads));
        if (text != listed) {
          problems->Invalid(absl::StrCat(node.module_path.empty() ? "the root module" : node.module_path, ": ", text));
        }
        listed = text;
      } else if (key_heads < degree) {
        for (const std::string& path : key_linears) {
          plan->grouped.emplace(path, GroupedHeads{axis, static_cast<int>(key_heads)});
        }
      }
      break;  // heads are cut over one axis
    }
  }
  for (const auto& [path, grouped] : plan->grouped) {
    for (const char* name : {"weight", "bias"}) {
      auto state = plan->states.find(JoinPath(path, name));
      if (state == plan->states.end()) continue;
      Placement& placement = state->second[grouped.axis];
      if (placement == Placement::Shard(0)) placement = Placement::GroupShard(0, grouped.heads);
    }
  }
}

}  // namespace tp
