// tpctl explain: what a submission will do, known before anything runs. Offline.
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/render.h"
#include "client/tpctl/tensor_arguments.h"
#include "common/base/status.h"
#include "common/program/compile.h"

namespace tp::client {
namespace {

// "ids=1x16" -> {"ids", {1, 16}}.
absl::Status ParseShape(const std::string& text, std::map<std::string, Shape>* shapes) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  absl::StatusOr<Shape> shape = ParseShapeText(parts.second);
  if (!shape.ok()) return Annotate(shape.status(), absl::StrCat("--shape ", parts.first));
  (*shapes)[parts.first] = *std::move(shape);
  return absl::OkStatus();
}

// Shapes that were not given: 1 for the first free size, 16 for every other.
Shape DefaultShape(const SymShape& shape) {
  Shape sizes;
  bool first = true;
  for (const Dim& dim : shape) {
    if (dim.IsConstant()) {
      sizes.push_back(dim.constant());
      continue;
    }
    sizes.push_back(first ? 1 : 16);
    first = false;
  }
  return sizes;
}

}  // namespace

absl::Status Explain(const GlobalOptions& globals, const ExplainOptions& options) {
  if (!options.against.empty()) return absl::UnimplementedError("--against is not built yet");
  if (!options.plan.empty()) return absl::UnimplementedError("--plan is not built yet");
  if (options.memory_limit != 0) return absl::UnimplementedError("--memory-limit is not built yet");
  TP_ASSIGN_OR_RETURN(Submission submission, ReadSubmission(options.file, options.mesh));
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  if (!compiled.ok()) return Annotate(compiled.status(), options.file);

  std::map<std::string, Shape> shapes;
  for (const std::string& text : options.shapes) TP_RETURN_IF_ERROR(ParseShape(text, &shapes));
  for (const auto& [name, shape] : shapes) {
    bool known = false;
    for (const ModelInput& input : submission.model.inputs) known |= input.name == name;
    if (!known) return absl::InvalidArgumentError(absl::StrCat("--shape: the model has no input '", name, "'"));
  }
  for (const ModelInput& input : submission.model.inputs) shapes.emplace(input.name, DefaultShape(input.shape));
  Explanation explanation{.name = submission.name, .compiled = &*compiled};
  TP_ASSIGN_OR_RETURN(explanation.bindings, BindInputs(compiled->program, shapes));
  TP_ASSIGN_OR_RETURN(explanation.collectives, CollectivesOf(compiled->program, explanation.bindings));
  TP_ASSIGN_OR_RETURN(explanation.memory, MemoryOf(*compiled, explanation.bindings, /*widened=*/false));
  if (submission.compute_dtype == DType::kBF16) {
    TP_ASSIGN_OR_RETURN(const std::vector<RankMemory> widened, MemoryOf(*compiled, explanation.bindings, true));
    compiled->warnings.push_back(absl::StrCat("a processor without a BF16 product holds weights of linear as F32: ",
                                              BytesText(widened[0].parameter_bytes), " of parameters on rank 0"));
  }
  std::fputs(ExplainText(explanation, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
