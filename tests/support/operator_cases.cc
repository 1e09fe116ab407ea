#include "tests/support/operator_cases.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/support/model_builders.h"

namespace tp::testing {
namespace {

using Ints = std::vector<int64_t>;

// Multiples of 1/8 in [low, high), in no order.
SimTensor Numbers(const Shape& shape, double low = -4, double high = 4, int seed = 0) {
  SimTensor tensor{shape, {}};
  const int64_t steps = static_cast<int64_t>((high - low) * 8);
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    tensor.values.push_back(low + static_cast<double>((i * 37 + seed * 11 + i * i * 5) % steps) / 8);
  }
  return tensor;
}

SimTensor Whole(const Shape& shape, int64_t low, int64_t high, int seed = 0) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    tensor.values.push_back(static_cast<double>(low + (i * 7 + seed * 3 + i * i) % (high - low)));
  }
  return tensor;
}

OperatorInput F32(const Shape& shape, int seed = 0) {
  return {DType::kF32, ToSymShape(shape), Numbers(shape, -4, 4, seed)};
}
OperatorInput Positive(const Shape& shape, int seed = 0) {
  return {DType::kF32, ToSymShape(shape), Numbers(shape, 0.25, 4, seed)};
}
OperatorInput I64(const Shape& shape, int64_t low, int64_t high, int seed = 0) {
  return {DType::kI64, ToSymShape(shape), Whole(shape, low, high, seed)};
}
OperatorInput I32(const Shape& shape, int64_t low, int64_t high) {
  return {DType::kI32, ToSymShape(shape), Whole(shape, low, high)};
}
OperatorInput Bool(const Shape& shape, int seed = 0) {
  return {DType::kBool, ToSymShape(shape), Whole(shape, 0, 2, seed)};
}
// The dim `dim` is the symbol "n" to the compiler.
OperatorInput Free(OperatorInput input, size_t dim = 0) {
  input.shape[dim] = Dim::Symbol("n");
  return input;
}

class Table {
 public:
  void Add(const std::string& function, std::vector<OperatorInput> inputs, Attributes attributes = {},
           int outputs = 1) {
    OperatorCase test{function + ":", function, std::move(inputs), std::move(attributes), outputs, exact_};
    for (const OperatorInput& input : test.inputs) absl::StrAppend(&test.name, " ", SymShapeText(input.shape));
    for (const auto& [name, attribute] : test.attributes) {
      absl::StrAppend(&test.name, " ", name, "=", AttributeText(attribute));
    }
    cases_.push_back(std::move(test));
  }
  void Exact(bool exact) { exact_ = exact; }
  std::vector<OperatorCase> Take() { return std::move(cases_); }

 private:
  bool exact_ = false;
  std::vector<OperatorCase> cases_;
};

void Products(Table& table) {
  table.Exact(false);
  table.Add("linear", {F32({3, 4}), F32({6, 4}, 1), F32({6}, 2)});
  table.Add("linear", {Free(F32({5, 2, 3})), F32({5, 3}, 1), F32({5}, 2)});
  table.Add("linear", {Free(F32({0, 4})), F32({1, 4}, 1)});
  table.Add("embedding", {I64({2, 3}, 0, 6), F32({6, 4})});
  table.Add("embedding", {Free(I32({5}, 0, 5)), F32({5, 3})});
  table.Add("conv1d", {F32({3, 4, 6}), F32({6, 4, 3}, 1), F32({6}, 2)}, {{"padding", Ints{1}}, {"stride", Ints{2}}});
  table.Add("conv1d", {F32({2, 6, 5}), F32({6, 1, 2}, 1), F32({6}, 2)}, {{"groups", int64_t{6}}});
  table.Add("conv2d", {F32({2, 3, 4, 5}), F32({5, 3, 2, 2}, 1)}, {{"dilation", Ints{1, 2}}});
  table.Add("conv2d", {F32({1, 4, 3, 3}), F32({6, 2, 3, 3}, 1), F32({6}, 2)},
            {{"groups", int64_t{2}}, {"padding", Ints{1, 1}}});
  table.Add("matmul", {F32({4, 6}), F32({6, 2}, 1)});
  table.Add("matmul", {Free(F32({3, 2, 5})), F32({5, 3}, 1)});
  table.Add("matmul", {F32({1, 2, 4}), F32({3, 4, 2}, 1)});
  table.Add("matmul", {F32({5}), F32({2, 5, 3}, 1)});
  table.Add("matmul", {F32({2, 3, 4}), F32({4}, 1)});
  table.Add("matmul", {F32({6}), F32({6}, 1)});
  table.Add("bmm", {F32({3, 2, 4}), F32({3, 4, 5}, 1)});
  table.Add("bmm", {Free(F32({0, 2, 3})), Free(F32({0, 3, 2}, 1))});
  table.Add("rotary", {F32({2, 3, 4, 4})});
  table.Add("attention", {F32({2, 3, 4, 2}), F32({2, 3, 2, 2}, 1), F32({2, 3, 2, 2}, 2)});
  table.Add("attention", {F32({1, 3, 6, 2}), F32({1, 3, 6, 2}, 1), F32({1, 3, 6, 2}, 2)},
            {{"cache", false}, {"causal", false}});
  table.Add("rms_norm", {F32({4, 6}), F32({6}, 1)});
  table.Add("layer_norm", {Free(F32({3, 4, 6})), F32({6}, 1), F32({6}, 2)});
  table.Add("layer_norm", {F32({5, 2, 3}), F32({2, 3}, 1)}, {{"dims", int64_t{2}}});
  table.Add("softmax", {F32({4, 6})});
  table.Add("softmax", {F32({5, 3})}, {{"dim", int64_t{0}}});
  table.Add("log_softmax", {Free(F32({3, 5}))}, {{"dim", int64_t{1}}});
}

void Elementwise(Table& table) {
  table.Exact(false);
  for (const char* name : {"exp", "sin", "cos", "tanh", "sigmoid", "silu", "gelu"}) table.Add(name, {F32({4, 6})});
  table.Add("gelu", {Free(F32({5}))}, {{"approximate", std::string("tanh")}});
  for (const char* name : {"log", "sqrt", "rsqrt"}) table.Add(name, {Positive({4, 3})});
  table.Add("pow", {Positive({4, 6}), F32({6}, 1)});
  table.Add("pow", {F32({5})}, {{"scalar", 2.0}});
  table.Add("div", {F32({4, 6}), Positive({4, 6}, 1)});
  table.Add("div", {Free(F32({5, 2}))}, {{"scalar", 4.0}});
  table.Exact(true);
  table.Add("neg", {F32({4, 6})});
  table.Add("neg", {I64({5}, -9, 9)});
  table.Add("abs", {F32({5, 2})});
  table.Add("relu", {Free(F32({0, 4}))});
  table.Add("logical_not", {Bool({4, 6})});
  for (DType from : {DType::kF32, DType::kI64, DType::kI32, DType::kBool}) {
    for (DType to : {DType::kF32, DType::kBF16, DType::kI64, DType::kI32, DType::kBool}) {
      OperatorInput input = from == DType::kF32    ? F32({4, 2})
                            : from == DType::kBool ? Bool({4, 2})
                                                   : I64({4, 2}, -5, 5);
      input.dtype = from;
      table.Add("cast", {input}, {{"dtype", to}});
    }
  }
  for (const char* name : {"add", "sub", "mul", "maximum", "minimum", "floor_div", "remainder"}) {
    const bool divides = std::string(name) == "floor_div" || std::string(name) == "remainder";
    table.Add(name, {F32({4, 6}), divides ? Positive({4, 6}, 1) : F32({4, 6}, 1)});
    table.Add(name, {F32({5, 3})}, {{"scalar", 2.0}});
    table.Add(name, {I64({4, 1}, -9, 9), I64({6}, 1, 5)});
    table.Add(name, {I64({4}, -9, 9)}, {{"scalar", 3.0}});
  }
  table.Add("add", {Free(F32({0, 3})), F32({1, 3}, 1)});
  table.Add("mul", {F32({1, 6}), F32({4, 1}, 1)});
  table.Add("sub", {F32({2, 1, 4}), F32({3, 1}, 1)});
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    table.Add(name, {F32({4, 6}), F32({6}, 1)});
    table.Add(name, {I64({5}, 0, 4)}, {{"scalar", 2.0}});
  }
  table.Add("eq", {Bool({4}), Bool({4}, 1)});
  table.Add("logical_and", {Bool({4, 6}), Bool({6}, 1)});
  table.Add("logical_or", {Bool({5, 1}), Bool({5, 3}, 1)});
  table.Add("where", {Bool({4, 6}), F32({4, 6}), F32({6}, 1)});
  table.Add("where", {Bool({3, 1}), I64({1, 2}, -9, 9), I64({3, 2}, -9, 9, 1)});
  table.Add("masked_fill", {F32({4, 6}), Bool({6})}, {{"value", -1.5}});
  table.Add("masked_fill", {Free(F32({5, 2})), Free(Bool({5, 1}))}, {{"value", 0.0}});
}

void Shapes(Table& table) {
  table.Exact(true);
  const Dim n = Dim::Symbol("n");
  table.Add("reshape", {F32({12, 8})}, {{"shape", ToSymShape({16, 6})}});
  table.Add("reshape", {F32({4, 6})}, {{"shape", ToSymShape({2, 2, 6})}});
  table.Add("reshape", {F32({3, 2, 4})}, {{"shape", ToSymShape({6, 4})}});
  table.Add("reshape", {Free(F32({3, 8}))}, {{"shape", SymShape{n, 2, 4}}});
  table.Add("reshape", {I64({5}, 0, 9)}, {{"shape", ToSymShape({5, 1})}});
  table.Add("transpose", {F32({4, 6})}, {{"dim0", int64_t{0}}, {"dim1", int64_t{1}}});
  table.Add("permute", {F32({4, 2, 3})}, {{"dims", Ints{2, 0, -2}}});
  table.Add("permute", {Bool({5, 3})}, {{"dims", Ints{1, 0}}});
  table.Add("expand", {F32({1, 6})}, {{"shape", ToSymShape({4, -1})}});
  table.Add("expand", {Free(F32({5, 1}))}, {{"shape", SymShape{2, n, 3}}});
  table.Add("cat", {F32({4, 6}), F32({2, 6}, 1)});
  table.Add("cat", {F32({5, 1}), F32({5, 0}, 1), F32({5, 3}, 2)}, {{"dim", int64_t{-1}}});
  table.Add("split", {F32({4, 8})}, {{"sizes", Ints{4, 4}}, {"dim", int64_t{1}}}, 2);
  table.Add("split", {F32({12, 2})}, {{"sizes", Ints{8, 2, 2}}}, 3);
  table.Add("split", {F32({12, 2})}, {{"sizes", Ints{4, 4, 4}}}, 3);
  table.Add("split", {Free(F32({5, 6}))}, {{"sizes", Ints{3, 3}}, {"dim", int64_t{1}}}, 2);
  table.Add("split", {F32({5, 3})}, {{"sizes", Ints{2, 0, 3}}}, 3);
  table.Add("slice", {F32({6, 4})}, {{"start", int64_t{1}}, {"end", int64_t{6}}, {"step", int64_t{2}}});
  table.Add("slice", {F32({5, 4})}, {{"dim", int64_t{1}}, {"start", int64_t{-3}}});
  table.Add("slice", {F32({4, 3})}, {{"dim", int64_t{0}}});
  table.Add("select", {F32({4, 6})}, {{"dim", int64_t{1}}, {"index", int64_t{-2}}});
  table.Add("select", {F32({2, 3, 4})}, {{"dim", int64_t{0}}, {"index", int64_t{1}}});
  table.Add("index_select", {F32({4, 6}), I64({5}, 0, 6)}, {{"dim", int64_t{1}}});
  table.Add("index_select", {Bool({5, 2}), Free(I64({0}, 0, 5))}, {{"dim", int64_t{0}}});
  table.Add("gather", {F32({4, 6}), I64({4, 3}, 0, 6)}, {{"dim", int64_t{1}}});
  table.Add("gather", {F32({4, 6}), I64({5, 2}, 0, 4)}, {{"dim", int64_t{0}}});
  table.Add("pick", {F32({4, 6}), I64({4}, 0, 6)}, {{"dim", int64_t{1}}});
  table.Add("pick", {F32({2, 5, 3}), I64({2, 3}, 0, 5)}, {{"dim", int64_t{1}}, {"ignore_index", int64_t{2}}});
  table.Add("arange", {}, {{"end", SymShape{7}}, {"start", int64_t{2}}, {"step", int64_t{2}}});
}

void Reductions(Table& table) {
  table.Exact(true);  // sums of multiples of 1/8
  for (const char* name : {"sum", "max", "min"}) {
    table.Add(name, {F32({4, 6})});
    table.Add(name, {F32({5, 3})}, {{"dims", Ints{0}}});
    table.Add(name, {Free(F32({1, 4}))}, {{"dims", Ints{1}}, {"keepdim", true}});
    table.Add(name, {I64({3, 2, 4}, -9, 9)}, {{"dims", Ints{-1, 0}}});
    table.Add(name, {I32({5}, -9, 9)});
  }
  table.Add("sum", {Bool({4, 6})}, {{"dims", Ints{1}}});
  OperatorInput holes = F32({4, 6});
  for (size_t i = 0; i < holes.value.values.size(); i += 5) holes.value.values[i] = NAN;
  holes.value.values[7] = -INFINITY;
  table.Add("max", {holes}, {{"dims", Ints{1}}});
  table.Add("min", {holes}, {{"dims", Ints{0}}});
  table.Add("argmax", {F32({4, 6})});
  table.Add("argmax", {holes}, {{"dim", int64_t{0}}, {"keepdim", true}});
  table.Add("topk", {F32({4, 6})}, {{"k", int64_t{3}}}, 2);
  table.Add("topk", {holes}, {{"k", int64_t{2}}, {"dim", int64_t{0}}}, 2);
  table.Add("max_with_index", {holes}, {{"dim", int64_t{1}}}, 2);
  table.Add("min_with_index", {Free(F32({3, 5}))}, {{"dim", int64_t{1}}, {"keepdim", true}}, 2);
  table.Exact(false);
  table.Add("mean", {F32({3, 4})});
  table.Add("mean", {F32({5, 3})}, {{"dims", Ints{0}}});
  table.Add("mean", {Free(F32({1, 4}))}, {{"dims", Ints{1}}, {"keepdim", true}});
}

}  // namespace

std::vector<OperatorCase> OperatorCases() {
  Table table;
  Products(table);
  Elementwise(table);
  Shapes(table);
  Reductions(table);
  return table.Take();
}

Submission ForcedSubmission(CompositeConfig config, std::vector<ModelInput> inputs, const std::vector<MeshAxis>& mesh,
                            const std::vector<Placements>& placements) {
  Submission submission;
  submission.name = "operator";
  config.type_name = "Operator";
  for (const ModelInput& input : inputs) config.inputs.push_back({input.name});
  submission.model.inputs = std::move(inputs);
  submission.model.root = {.name = "", .config = std::move(config), .children = {}, .param_init = {}};
  submission.plan.mesh = mesh;
  if (placements.empty()) return submission;
  PrepareModuleInput style;
  for (const Placements& wanted : placements) {
    Placements arrives = wanted;
    for (Placement& placement : arrives) {
      if (placement.IsPartial()) placement = Placement::Replicate();
    }
    style.input_layouts.push_back(Layout::List(arrives));
    style.desired_input_layouts.push_back(Layout::List(wanted));
  }
  submission.plan.entries = {Styled("", std::move(style))};
  submission.plan.axis = mesh[0].name;
  return submission;
}

Submission OperatorSubmission(const OperatorCase& test, const std::vector<MeshAxis>& mesh,
                              const std::vector<Placements>& placements) {
  CompositeConfig config;
  std::vector<std::string> names;
  std::vector<ModelInput> inputs;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    names.push_back(absl::StrCat("x", i));
    inputs.push_back({names.back(), test.inputs[i].dtype, test.inputs[i].shape});
  }
  GraphNode node = CallFunction("y", test.function, names, test.attributes);
  for (int i = 0; i < test.outputs; ++i) {
    const std::string value = test.outputs == 1 ? "y" : absl::StrCat("y", i);
    if (test.outputs > 1) node.outputs.push_back(value);
    config.outputs.push_back({absl::StrCat("y", i), value});
  }
  config.nodes.push_back(std::move(node));
  return ForcedSubmission(std::move(config), std::move(inputs), mesh, placements);
}

std::map<std::string, SimTensor> OperatorInputs(const OperatorCase& test) {
  std::map<std::string, SimTensor> inputs;
  for (size_t i = 0; i < test.inputs.size(); ++i) inputs[absl::StrCat("x", i)] = test.inputs[i].value;
  return inputs;
}

std::vector<Placement> AllPlacements(const OperatorInput& input, int size) {
  std::vector<Placement> all{Placement::Replicate()};
  for (int dim = 0; dim < static_cast<int>(input.shape.size()); ++dim) {
    all.push_back(Placement::Shard(dim));
    all.push_back(Placement::StridedShard(dim, 2));
    for (int groups = 1; groups < size; ++groups) {
      if (size % groups == 0) all.push_back(Placement::GroupShard(dim, groups));
    }
    if (!input.shape[dim].IsConstant()) continue;
    for (const Ints& parts : {Ints{1, 1}, Ints{4, 1, 1}}) {
      int64_t sum = 0;
      for (int64_t part : parts) sum += part;
      if (input.shape[dim].constant() % sum == 0) all.push_back(Placement::InterleavedShard(dim, parts));
    }
  }
  if (input.dtype != DType::kBool) all.push_back(Placement::Partial(ReduceOp::kSum));
  if (IsFloating(input.dtype)) all.push_back(Placement::Partial(ReduceOp::kAvg));
  all.push_back(Placement::Partial(ReduceOp::kMax));
  all.push_back(Placement::Partial(ReduceOp::kMin));
  return all;
}

}  // namespace tp::testing
