// Builds a program value by value: what the walk over a model and the selection of rows share. Example:
//   ProgramBuilder builder(&program);
//   TP_ASSIGN_OR_RETURN(int whole, builder.Move(value, {Placement::Replicate()}, "fc", "output of fc"));
// Internal to common/program.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/program/program.h"

namespace tp {

// Appends to `program`, which must outlive it. Thread-compatible.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(ForwardProgram* program) : program_(*program) {}

  const DTensorSpec& SpecOf(int value) const { return program_.values[value].spec; }
  const Placements& PlacementsOf(int value) const { return SpecOf(value).placements; }
  // The value's shape with every symbol at a nominal size, where costs are compared.
  Shape NominalShape(int value) const;
  int NewValue(const std::string& name, DType dtype, SymShape shape, Placements placements);
  // Appends an instruction with one output; returns the output.
  int Emit(const std::string& function, std::vector<int> inputs, const Attributes& attributes,
           const std::string& module_path, const std::string& name, DTensorSpec spec);
  // `value` at `target`, by redistribute steps whose reason is "what: from -> to"; once for each pair.
  absl::StatusOr<int> Move(int value, const Placements& target, const std::string& module_path,
                           const std::string& what);
  // `value` plus the replicated or cut `bias`, along dim `dim` of it, once: by add, or by add_once where the value is a
  // sum over ranks (its last dim only).
  absl::StatusOr<int> AddBias(int value, int bias, int dim, const std::string& module_path);

 private:
  std::string ChangeText(const Placements& from, const Placements& to) const;
  void EmitStep(int from, int to, const RedistributeStep& step, const std::string& module_path,
                const std::string& what);

  ForwardProgram& program_;
  std::map<std::pair<int, std::string>, int> moved_;
};

}  // namespace tp
