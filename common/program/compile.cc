#include "common/program/compile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/program/match.h"
#include "common/program/module_outputs.h"
#include "common/program/select_rows.h"
#include "common/program/sources.h"
#include "common/program/trim.h"
#include "common/program/walk.h"

namespace tp {
namespace {

// Prompt and new tokens together stay within max_positions, whatever the symbol limits say.
void LimitTime(const GenerationConfig& generation, const ModelDef& model, ForwardProgram* program) {
  for (const ModelInput& input : model.inputs) {
    if (input.name != generation.ids_input) continue;
    const std::string time = input.shape[1].Symbols()[0];
    auto [limit, added] = program->symbol_limits.emplace(time, generation.max_positions);
    if (!added) limit->second = std::min(limit->second, generation.max_positions);
  }
}

void WarnOfCopies(const ResolvedPlan& plan, CompiledModel* compiled) {
  for (int axis = 0; axis < plan.mesh.axis_count(); ++axis) {
    if (plan.styled_axes[axis] || plan.batch_axes[axis] || plan.mesh.axis_size(axis) == 1) continue;
    const std::string& name = plan.mesh.axes()[axis].name;
    compiled->warnings.push_back(absl::StrCat("no entry acts on axis '", name, "': its ", plan.mesh.axis_size(axis),
                                              " coordinates compute copies; batch_axes: [", name,
                                              "] in the plan cuts the batch over it, an entry on it the weights"));
  }
}

// Nothing is cut over the axis: every coordinate of it computes the whole by itself.
bool IsWholeOn(const ForwardProgram& program, int axis) {
  return std::all_of(program.values.begin(), program.values.end(), [&](const ProgramValue& value) {
    return value.spec.placements[static_cast<size_t>(axis)].IsReplicate();
  });
}

}  // namespace

absl::StatusOr<CompiledModel> CompileForward(const Submission& submission, const CompileOptions& options) {
  TP_ASSIGN_OR_RETURN(const FlatModel flat, FlattenModel(submission.model, submission.compute_dtype));
  Problems problems;
  ResolvedPlan plan = ResolvePlan(submission, flat, &problems);
  if (plan.mesh.axis_count() == 0) return problems.status();
  CompiledModel compiled;
  compiled.states = PlaceStates(submission, flat, &plan, &problems);
  TP_ASSIGN_OR_RETURN(WalkResult walked, WalkModel(submission, flat, plan, &problems));
  TP_RETURN_IF_ERROR(problems.status());
  compiled.mesh = plan.mesh;
  compiled.modules = std::move(walked.modules);
  compiled.warnings = plan.warnings;
  compiled.warnings.insert(compiled.warnings.end(), walked.warnings.begin(), walked.warnings.end());
  WarnOfCopies(plan, &compiled);
  if (submission.model.generation.has_value()) {
    LimitTime(*submission.model.generation, submission.model, &walked.program);
    compiled.max_positions = submission.model.generation->max_positions;
  }
  if (options.module_outputs) {
    TP_ASSIGN_OR_RETURN(walked.program, WithModuleOutputs(std::move(walked.program), walked.module_outputs));
    compiled.program = TrimProgram(walked.program);
    compiled.fingerprint = FingerprintOf(compiled.program);
    return compiled;
  }
  compiled.program = TrimProgram(walked.program);
  std::string text = ProgramText(compiled.program);
  if (submission.model.generation.has_value()) {
    ForwardProgram whole = compiled.program;
    if (!submission.plan.batch_axes.empty()) {
      // A step's tokens are those of many sequences in one row: each coordinate of a batch axis has its own.
      const std::vector<bool> batch_axes = plan.batch_axes;
      plan.batch_axes.assign(plan.batch_axes.size(), false);
      TP_ASSIGN_OR_RETURN(WalkResult steps, WalkModel(submission, flat, plan, &problems));
      TP_RETURN_IF_ERROR(problems.status());
      steps.program.symbol_limits = compiled.program.symbol_limits;
      whole = TrimProgram(steps.program);
      for (int axis = 0; axis < plan.mesh.axis_count(); ++axis) {
        if (!batch_axes[axis]) continue;
        if (IsWholeOn(whole, axis)) {
          compiled.replica_axes.push_back(axis);
        } else {
          compiled.warnings.push_back(absl::StrCat("plan.batch_axes: layouts of entries name '",
                                                   plan.mesh.axes()[axis].name,
                                                   "' too, so generation computes copies over it"));
        }
      }
    }
    TP_ASSIGN_OR_RETURN(compiled.step_program, MakeStepProgram(whole, submission.model.generation->logits_output));
    absl::StrAppend(&text, "\n", ProgramText(*compiled.step_program));
  }
  compiled.fingerprint = Sha256Hex(text);
  return compiled;
}

}  // namespace tp
