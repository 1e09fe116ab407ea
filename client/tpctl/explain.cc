// tpctl explain: what a submission will do, known before anything runs. Offline.
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/explain_render.h"
#include "client/tpctl/explain_shapes.h"
#include "common/base/status.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {
namespace {

absl::StatusOr<Explanation> ExplainFile(const std::string& file, const ExplainOptions& options, bool automatic) {
  TP_ASSIGN_OR_RETURN(Submission submission, ReadSubmission(file, options.mesh));
  TP_ASSIGN_OR_RETURN(const auto shapes, ExplainShapes(options.shapes, submission.model));
  std::optional<AutoPlan> found;
  if (automatic) {
    absl::StatusOr<AutoPlan> plan = FindPlan(submission, {options.sequence_parallel, options.memory_limit, shapes});
    if (!plan.ok()) return Annotate(plan.status(), file);
    submission.plan = plan->plan;
    found = *std::move(plan);
  }
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  if (!compiled.ok()) return Annotate(compiled.status(), file);
  TP_ASSIGN_OR_RETURN(const Bindings bindings, BindInputs(compiled->program, shapes));
  TP_ASSIGN_OR_RETURN(Explanation explanation,
                      Explained(submission, *std::move(compiled), bindings, options.memory_limit));
  if (found.has_value()) {
    explanation.found_text = SerializePlan(submission.plan, SubmissionFormat::kText);
    explanation.found = std::move(found);
  }
  const RankMemory& busiest = Busiest(explanation.memory);
  if (options.memory_limit > 0 && TotalBytes(busiest) > options.memory_limit)
    explanation.warnings.push_back(absl::StrCat("rank ", busiest.rank, " needs ", TotalBytes(busiest),
                                                " bytes, over the limit of ", options.memory_limit,
                                                "; --plan auto looks for a plan within it"));
  return explanation;
}

}  // namespace

absl::Status Explain(const GlobalOptions& globals, const ExplainOptions& options) {
  const bool automatic = options.plan == "auto";
  if (options.sequence_parallel && !automatic)
    return absl::InvalidArgumentError("--sequence-parallel needs --plan auto");
  if (options.memory_limit < 0) return absl::InvalidArgumentError("--memory-limit must not be negative");
  TP_ASSIGN_OR_RETURN(const Explanation explanation, ExplainFile(options.file, options, automatic));
  std::string text;
  if (options.against.empty()) {
    text = ExplainText(explanation, globals.json());
  } else {
    TP_ASSIGN_OR_RETURN(const Explanation other, ExplainFile(options.against, options, /*automatic=*/false));
    text = AgainstText(explanation, other, globals.json());
  }
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
