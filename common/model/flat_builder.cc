#include "common/model/flat_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

constexpr size_t kMostNodes = 1 << 17;  // shared modules can multiply: a small definition must not fill the memory

// One number for each spatial dim, as kernels and rules read them.
void CompleteSpatial(const char* name, size_t count, int64_t fallback, Attributes* attributes) {
  auto& values = std::get<std::vector<int64_t>>((*attributes)[name]);
  if (values.empty()) values = {fallback};
  if (values.size() == 1) values.assign(count, values[0]);
}

// The same elements in another shape: all of these are `reshape` in programs.
bool IsReshape(const std::string& function) {
  return function == "view" || function == "flatten" || function == "squeeze" || function == "unsqueeze";
}

}  // namespace

int FlatBuilder::NewValue(std::string name, TensorType type) {
  flat_->values.push_back({std::move(name), std::move(type)});
  return static_cast<int>(flat_->values.size()) - 1;
}

bool FlatBuilder::IsFull() const { return flat_->nodes.size() >= kMostNodes; }

absl::Status FlatBuilder::AddNode(FlatNode node) {
  if (IsFull()) return Wrong(absl::StrCat("more than ", kMostNodes, " nodes"));
  flat_->nodes.push_back(std::move(node));
  return absl::OkStatus();
}

absl::Status FlatBuilder::CheckSymbols(const Attributes& attributes) const {
  for (const auto& [name, attribute] : attributes) {
    if (!std::holds_alternative<SymShape>(attribute)) continue;
    for (const Dim& dim : std::get<SymShape>(attribute)) {
      for (const std::string& symbol : dim.Symbols()) {
        if (symbols_.contains(symbol)) continue;
        const std::vector<std::string> known(symbols_.begin(), symbols_.end());
        return Wrong(absl::StrCat("attribute '", name, "': no input of the model has the size '", Cut(symbol),
                                  "'; nearest: ", JoinNames(NearestNames(symbol, known))));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> FlatBuilder::Emit(const FunctionCall& call) {
  const FunctionDef& definition = *FindFunction(call.function);
  TP_ASSIGN_OR_RETURN(Attributes attributes, CheckAttributes(definition, call.attributes));
  std::vector<const TensorType*> types;
  for (int input : call.inputs) types.push_back(input < 0 ? nullptr : &TypeOf(input));
  TP_ASSIGN_OR_RETURN(std::vector<TensorType> made, definition.infer(types, attributes));
  std::vector<int> outputs;
  for (size_t i = 0; i < made.size(); ++i) {
    outputs.push_back(NewValue(made.size() == 1 ? call.value_name : absl::StrCat(call.value_name, ".", i), made[i]));
  }
  TP_RETURN_IF_ERROR(AddNode({FlatNode::Kind::kFunction,
                              call.function,
                              call.module_path,
                              call.inputs,
                              outputs,
                              std::move(attributes),
                              0,
                              {}}));
  return outputs;
}

absl::StatusOr<int> FlatBuilder::EmitFor(const FunctionCall& caller, const std::string& function,
                                         std::vector<int> inputs, Attributes attributes) {
  const std::vector<FunctionArgument>& arguments = FindFunction(function)->arguments;
  if (!arguments.back().variadic) inputs.resize(arguments.size(), -1);
  TP_ASSIGN_OR_RETURN(const std::vector<int> outputs,
                      Emit({function, std::move(inputs), std::move(attributes), caller.module_path,
                            absl::StrCat(caller.value_name, ":", function)}));
  return outputs[0];
}

absl::StatusOr<std::vector<int>> FlatBuilder::AddFunction(const FunctionCall& call) {
  const FunctionDef* definition = FindFunction(call.function);
  if (definition == nullptr) {
    return Wrong(absl::StrCat("there is no function '", Cut(call.function),
                              "'; nearest: ", JoinNames(NearestNames(call.function, FunctionNames()))));
  }
  TP_ASSIGN_OR_RETURN(Attributes attributes, CheckAttributes(*definition, call.attributes));
  TP_RETURN_IF_ERROR(CheckSymbols(attributes));
  std::vector<const TensorType*> types;
  for (int input : call.inputs) types.push_back(input < 0 ? nullptr : &TypeOf(input));
  TP_ASSIGN_OR_RETURN(const std::vector<TensorType> made, definition->infer(types, attributes));

  FunctionCall lowered = call;
  if (call.function == "cross_entropy") {
    TP_ASSIGN_OR_RETURN(const int loss, CrossEntropy(call, attributes));
    return std::vector<int>{loss};
  }
  if (IsReshape(call.function)) {
    lowered.function = "reshape";
    lowered.attributes = {{"shape", made[0].shape}};
  } else if (call.function == "chunk") {
    const int64_t dim = std::get<int64_t>(attributes.at("dim"));
    TP_ASSIGN_OR_RETURN(const int normal, NormalizeDim(dim, static_cast<int>(made[0].shape.size())));
    std::vector<int64_t> sizes;
    for (const TensorType& piece : made) sizes.push_back(piece.shape[normal].constant());
    lowered.function = "split";
    lowered.attributes = {{"sizes", std::move(sizes)}, {"dim", dim}};
  } else if (call.function == "stack") {
    TP_ASSIGN_OR_RETURN(const int dim,
                        NormalizeDim(std::get<int64_t>(attributes.at("dim")), static_cast<int>(made[0].shape.size())));
    SymShape shape = made[0].shape;
    shape[dim] = Dim(1);
    for (int& input : lowered.inputs) {
      TP_ASSIGN_OR_RETURN(input, EmitFor(call, "reshape", {input}, {{"shape", shape}}));
    }
    lowered.function = "cat";
    lowered.attributes = {{"dim", int64_t{dim}}};
  } else if (call.function == "bmm") {
    lowered.function = "matmul";
  } else if (call.function == "conv1d" || call.function == "conv2d") {
    const size_t spatial = call.function == "conv1d" ? 1 : 2;
    CompleteSpatial("stride", spatial, 1, &attributes);
    CompleteSpatial("padding", spatial, 0, &attributes);
    CompleteSpatial("dilation", spatial, 1, &attributes);
    lowered.attributes = std::move(attributes);
  } else if (call.function == "expand") {
    lowered.attributes = {{"shape", made[0].shape}};
  }
  return Emit(lowered);
}

// log(sum(exp(x - max))) - (x - max)[target], and 0 where the target is ignored.
absl::StatusOr<int> FlatBuilder::CrossEntropy(const FunctionCall& call, const Attributes& attributes) {
  const int target = call.inputs[1];
  int x = call.inputs[0];
  const int64_t rank = static_cast<int64_t>(TypeOf(x).shape.size());
  const int64_t given = std::get<int64_t>(attributes.at("dim"));
  const int64_t dim = rank == 1 ? 0 : given < 0 ? given + rank : given;
  const int64_t ignored_index = std::get<int64_t>(attributes.at("ignore_index"));
  const std::string& reduction = std::get<std::string>(attributes.at("reduction"));
  const SymShape target_shape = TypeOf(target).shape;
  const Attributes over_classes{{"dims", std::vector<int64_t>{dim}}, {"keepdim", true}};
  auto add = [&](const char* function, std::vector<int> inputs, Attributes given_attributes) {
    return EmitFor(call, function, std::move(inputs), std::move(given_attributes));
  };
  if (TypeOf(x).dtype != DType::kF32) {
    TP_ASSIGN_OR_RETURN(x, add("cast", {x}, {{"dtype", DType::kF32}}));
  }
  TP_ASSIGN_OR_RETURN(const int largest, add("max", {x}, over_classes));
  TP_ASSIGN_OR_RETURN(const int shifted, add("sub", {x, largest}, {}));
  TP_ASSIGN_OR_RETURN(const int exponents, add("exp", {shifted}, {}));
  TP_ASSIGN_OR_RETURN(const int sum, add("sum", {exponents}, over_classes));
  TP_ASSIGN_OR_RETURN(const int log_sum, add("log", {sum}, {}));
  TP_ASSIGN_OR_RETURN(const int picked,
                      add("pick", {shifted, target}, {{"dim", dim}, {"ignore_index", ignored_index}}));
  TP_ASSIGN_OR_RETURN(const int all, add("sub", {log_sum, picked}, {}));
  const SymShape kept = TypeOf(all).shape;
  TP_ASSIGN_OR_RETURN(const int targets, add("reshape", {target}, {{"shape", kept}}));
  const Attributes index{{"scalar", static_cast<double>(ignored_index)}};
  TP_ASSIGN_OR_RETURN(const int ignored, add("eq", {targets}, index));
  TP_ASSIGN_OR_RETURN(const int loss, add("masked_fill", {all, ignored}, {{"value", 0.0}}));
  if (reduction == "none") return add("reshape", {loss}, {{"shape", target_shape}});
  TP_ASSIGN_OR_RETURN(const int total, add("sum", {loss}, {}));
  if (reduction == "sum") return total;
  TP_ASSIGN_OR_RETURN(const int valid, add("ne", {targets}, index));
  TP_ASSIGN_OR_RETURN(const int ones, add("cast", {valid}, {{"dtype", DType::kF32}}));
  TP_ASSIGN_OR_RETURN(const int count, add("sum", {ones}, {}));
  return add("div", {total, count}, {});
}

}  // namespace tp
