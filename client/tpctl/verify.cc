// tpctl verify: loads the same weights on one rank under another name, runs both on one input, and compares.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/inputs.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"
#include "common/model/initializer.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {
namespace {

// Values that depend on nothing but the input's name: floats in [-1, 1), ids below `id_limit`.
HostTensor SeededInput(const InputType& type, int64_t id_limit) {
  Shape shape;
  bool first = true;
  for (const Dim& dim : type.shape) {
    shape.push_back(dim.IsConstant() ? dim.constant() : first ? 2 : 16);
    if (!dim.IsConstant()) first = false;
  }
  std::vector<double> values(ElementCount(shape));
  const Initializer uniform{Initializer::Kind::kUniform, -1, 1};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = InitialValue(uniform, 0, type.name, shape, static_cast<int64_t>(i));
    if (!IsFloating(type.dtype)) values[i] = std::floor((values[i] + 1) / 2 * static_cast<double>(id_limit));
  }
  return ConvertTo(MakeHostTensor<double>(shape, values), type.dtype);
}

// Smallest table that an integer input may index: the model's vocabulary, or the first embedding's rows.
int64_t IdLimit(const Submission& submission) {
  if (submission.model.generation) return submission.model.generation->vocab_size;
  return 2;
}

double MaxDifference(const HostTensor& a, const HostTensor& b) {
  if (a.shape != b.shape) return std::numeric_limits<double>::infinity();
  const HostTensor x = ConvertTo(a, DType::kF64), y = ConvertTo(b, DType::kF64);
  double largest = 0;
  for (int64_t i = 0; i < ElementCount(a.shape); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i];
    if (p == q || (std::isnan(p) && std::isnan(q))) continue;
    const double difference = std::abs(p - q);
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
  }
  return largest;
}

// Deletes the copy on every way out.
class TemporaryModel {
 public:
  TemporaryModel(Client* client, std::string name) : client_(client), name_(std::move(name)) {}
  ~TemporaryModel() { client_->DeleteModel(name_).IgnoreError(); }
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;

 private:
  Client* client_;
  std::string name_;
};

}  // namespace

absl::Status Verify(const GlobalOptions& globals, const VerifyOptions& options) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(ModelDescription model, client->GetModel(options.model, /*include_submission=*/true));
  TP_ASSIGN_OR_RETURN(Submission submission, ParseSubmission(model.submission, SubmissionFormat::kBinary));
  TP_ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, ParseInputs(options.inputs, model.inputs));
  if (inputs.empty())
    for (const InputType& type : model.inputs) inputs.push_back({type.name, SeededInput(type, IdLimit(submission))});

  const std::string copy = absl::StrCat(options.model.substr(0, 100), ".verify-", getpid());
  for (MeshAxis& axis : submission.plan.mesh) axis.size = 1;
  submission.name = copy;
  const std::string bytes = SerializeSubmission(submission, SubmissionFormat::kBinary);
  TP_ASSIGN_OR_RETURN(ForwardResult parallel, client->Forward(options.model, inputs));
  absl::StatusOr<SubmitResult> submitted = client->Submit(bytes, {});
  if (!submitted.ok()) return Annotate(submitted.status(), "loading the same weights on one rank");
  TemporaryModel temporary(client.get(), copy);
  TP_ASSIGN_OR_RETURN(ForwardResult single, client->Forward(copy, inputs));

  VerifySummary summary{.model = options.model, .tolerance = options.tolerance, .equal = true};
  for (size_t i = 0; i < parallel.outputs.size() && i < single.outputs.size(); ++i) {
    summary.rows.push_back(
        {parallel.outputs[i].name, MaxDifference(parallel.outputs[i].tensor, single.outputs[i].tensor)});
    summary.equal = summary.equal && summary.rows.back().max_difference <= options.tolerance;
  }
  std::fputs(VerifyText(summary, globals.json()).c_str(), stdout);
  if (!summary.equal)
    return absl::DataLossError(absl::StrCat(options.model, " differs from one rank by more than ", options.tolerance));
  return absl::OkStatus();
}

}  // namespace tp::client
