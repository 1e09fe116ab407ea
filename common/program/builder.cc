#include "common/program/builder.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {
namespace {

constexpr int64_t kNominal = 64;  // size of every symbol where costs are compared

}  // namespace

Shape ProgramBuilder::NominalShape(int value) const {
  Bindings bindings;
  const SymShape& shape = program_.values[value].spec.shape;
  for (const Dim& dim : shape) {
    for (const std::string& symbol : dim.Symbols()) bindings[symbol] = kNominal;
  }
  absl::StatusOr<Shape> nominal = EvaluateShape(shape, bindings);
  return nominal.ok() ? *nominal : Shape(shape.size(), kNominal);
}

std::string ProgramBuilder::ChangeText(const Placements& from, const Placements& to) const {
  if (from.size() == 1) return absl::StrCat(PlacementText(from[0]), " -> ", PlacementText(to[0]));
  return absl::StrCat(PlacementsText(program_.mesh, from), " -> ", PlacementsText(program_.mesh, to));
}

int ProgramBuilder::NewValue(const std::string& name, DType dtype, SymShape shape, Placements placements) {
  program_.values.push_back({name, {dtype, std::move(shape), std::move(placements)}});
  return static_cast<int>(program_.values.size()) - 1;
}

int ProgramBuilder::Emit(const std::string& function, std::vector<int> inputs, const Attributes& attributes,
                         const std::string& module_path, const std::string& name, DTensorSpec spec) {
  const int output = NewValue(name, spec.dtype, std::move(spec.shape), std::move(spec.placements));
  program_.instructions.push_back({function, std::move(inputs), {output}, attributes, module_path, "", std::nullopt});
  return output;
}

void ProgramBuilder::EmitStep(int from, int to, const RedistributeStep& step, const std::string& module_path,
                              const std::string& what) {
  program_.instructions.push_back(
      {"redistribute", {from}, {to}, {}, module_path, absl::StrCat(what, ": ", ChangeText(step.from, step.to)), step});
}

absl::StatusOr<int> ProgramBuilder::Move(int value, const Placements& target, const std::string& module_path,
                                         const std::string& what) {
  const Placements from = PlacementsOf(value);
  if (from == target) return value;
  const auto key = std::make_pair(value, PlacementsText(program_.mesh, target));
  if (auto it = moved_.find(key); it != moved_.end()) return it->second;
  const DTensorSpec spec = program_.values[value].spec;
  absl::StatusOr<RedistributePlan> plan =
      PlanRedistribute(program_.mesh, spec.dtype, NominalShape(value), from, target);
  if (!plan.ok()) return Annotate(plan.status(), what);
  std::vector<RedistributeStep> steps = plan->steps;
  if (steps.empty() || steps.back().to != target) {
    // Nothing moves or changes: only the name of the layout does (R -> P(max), layouts with one element map).
    steps.push_back({RedistributeOp::kNone, {}, steps.empty() ? from : steps.back().to, target});
  }
  int current = value;
  for (const RedistributeStep& step : steps) {
    const int next = NewValue(program_.values[value].name, spec.dtype, spec.shape, step.to);
    EmitStep(current, next, step, module_path, what);
    current = next;
  }
  moved_[key] = current;
  return current;
}

absl::StatusOr<int> ProgramBuilder::AddBias(int value, int bias, int dim, const std::string& module_path) {
  const DTensorSpec spec = program_.values[value].spec;
  const int last = static_cast<int>(spec.shape.size()) - 1;
  Placements placements(spec.placements.size());
  std::vector<int64_t> once;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (spec.placements[axis].IsPartial()) once.push_back(static_cast<int64_t>(axis));
    if (spec.placements[axis].Cuts(dim)) {
      placements[axis] = spec.placements[axis];
      placements[axis].dim = 0;
    }
  }
  TP_ASSIGN_OR_RETURN(bias, Move(bias, placements, module_path, absl::StrCat("bias of ", module_path)));
  if (const DTensorSpec from = program_.values[bias].spec; from.dtype != spec.dtype) {
    bias = Emit("cast", {bias}, {{"dtype", spec.dtype}}, module_path, program_.values[bias].name,
                {spec.dtype, from.shape, from.placements});
  }
  const std::string name = program_.values[value].name;
  if (!once.empty()) return Emit("add_once", {value, bias}, {{"axes", once}}, module_path, name, spec);
  if (dim < last) {  // [channels] -> [channels, 1, ...], so that it broadcasts
    DTensorSpec from = program_.values[bias].spec;
    from.shape.resize(static_cast<size_t>(last - dim + 1), Dim(1));
    bias = Emit("reshape", {bias}, {{"shape", from.shape}}, module_path, program_.values[bias].name, from);
  }
  return Emit("add", {value, bias}, {}, module_path, name, spec);
}

}  // namespace tp
