#include "common/program/grouped_heads.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"

namespace tp {
namespace {

// Functions that keep the heads of their input apart, so that a cut before them is a cut after them.
bool KeepsHeads(const std::string& function) {
  static const auto* names = new std::set<std::string>{"reshape", "transpose", "rotary", "cast", "silu",    "relu",
                                                       "gelu",    "add",       "sub",    "mul",  "rms_norm"};
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

// Paths of the Colwise Linears whose products reach `value`.
void CollectLinears(const std::vector<Producer>& producers, const Submission& submission, const ResolvedPlan& plan,
                    int start, std::set<std::string>* linears) {
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
      const Style* style = WeightStyleOf(submission, plan, node.module_path);
      if (style != nullptr && std::holds_alternative<ColwiseParallel>(*style)) linears->insert(node.module_path);
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
  return JoinNames(legal);
}

}  // namespace

std::string FieldOfModule(const FlatModule& module) { return module.path.empty() ? "the root module" : module.path; }

void CheckHeads(const Submission& submission, const FlatModel& model, ResolvedPlan* plan, Problems* problems) {
  const std::vector<Producer> producers = ProducersOf(model);
  std::string listed;  // the degrees are the same in every layer: told once
  for (const FlatNode& node : model.nodes) {
    if (node.kind != FlatNode::Kind::kFunction || node.function != "attention") continue;
    const int64_t query_heads = model.values[node.inputs[0]].type.shape[2].constant();
    const int64_t key_heads = model.values[node.inputs[1]].type.shape[2].constant();
    std::set<std::string> query_linears, key_linears;
    CollectLinears(producers, submission, *plan, node.inputs[0], &query_linears);
    CollectLinears(producers, submission, *plan, node.inputs[1], &key_linears);
    CollectLinears(producers, submission, *plan, node.inputs[2], &key_linears);
    if (query_linears.empty()) continue;
    if (!CanCut(query_heads, key_heads, plan->degree)) {
      const std::string text =
          absl::StrCat(query_heads, " query heads and ", key_heads, " key-value heads can be cut over ",
                       LegalDegrees(query_heads, key_heads), " ranks, not over ", plan->degree);
      if (text != listed) {
        problems->Invalid(absl::StrCat(node.module_path.empty() ? "the root module" : node.module_path, ": ", text));
      }
      listed = text;
      continue;
    }
    if (key_heads >= plan->degree) continue;
    for (const std::string& path : key_linears) plan->grouped.emplace(path, static_cast<int>(key_heads));
  }
}

}  // namespace tp
