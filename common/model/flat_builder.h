// Adds values and nodes to a FlatModel: functions with their types inferred, those that programs do not have replaced
// by others, and the forward of leaf kinds. Internal to common/model. Example:
//   TP_ASSIGN_OR_RETURN(std::vector<int> outputs, builder.AddFunction({"chunk", {x}, {{"chunks", 2}}, path, "h"}));
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flatten.h"

namespace tp {

struct FunctionCall {
  std::string function;
  std::vector<int> inputs;  // values in the order of the function's arguments, -1 = omitted
  Attributes attributes;
  std::string module_path;
  std::string value_name;  // of the output, for messages
};

class FlatBuilder {
 public:
  // `symbols`: those that attributes may name.
  FlatBuilder(FlatModel* flat, std::set<std::string> symbols) : flat_(flat), symbols_(std::move(symbols)) {}

  int NewValue(std::string name, TensorType type);
  const TensorType& TypeOf(int value) const { return flat_->values[value].type; }
  // INVALID_ARGUMENT where it is full: at the largest number of nodes.
  absl::Status AddNode(FlatNode node);
  bool IsFull() const;

  // One value for each output. INVALID_ARGUMENT for unknown functions and attributes (with the nearest) and for inputs
  // that do not fit; UNIMPLEMENTED for what the table names as such.
  absl::StatusOr<std::vector<int>> AddFunction(const FunctionCall& call);
  // The output of a leaf kind; `inputs` in the order of its arguments.
  absl::StatusOr<int> AddLeaf(const Module& module, const std::string& path, const std::vector<int>& inputs);

 private:
  // A call that is put into programs as it is.
  absl::StatusOr<std::vector<int>> Emit(const FunctionCall& call);
  // The same for functions of one output, on behalf of `caller`.
  absl::StatusOr<int> EmitFor(const FunctionCall& caller, const std::string& function, std::vector<int> inputs,
                              Attributes attributes);
  absl::StatusOr<int> CrossEntropy(const FunctionCall& call, const Attributes& attributes);
  absl::StatusOr<int> Attention(const AttentionConfig& config, const std::string& path, const std::vector<int>& inputs);
  absl::Status CheckSymbols(const Attributes& attributes) const;

  FlatModel* flat_;
  std::set<std::string> symbols_;
};

}  // namespace tp
