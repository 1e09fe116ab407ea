// tpctl verify: loads the same weights on one rank under another name, runs both on one input with every module's
// outputs, and compares.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/inputs.h"
#include "client/tpctl/seeded_inputs.h"
#include "client/tpctl/verify_compare.h"
#include "common/base/status.h"
#include "common/model/flatten.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {
namespace {

// SIGINT and SIGTERM, blocked in this thread and those that it starts from here on.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  const sigset_t& signals() const { return signals_; }

 private:
  sigset_t signals_, before_;
};

// Deletes the copy on every way out, signals included. Every thread must have them blocked.
class TemporaryModel {
 public:
  TemporaryModel(Client* client, std::string name, const BlockedSignals& blocked)
      : client_(client), name_(std::move(name)), signals_(blocked.signals()), waiter_([this] { Wait(); }) {}
  ~TemporaryModel() {
    done_ = true;
    pthread_kill(waiter_.native_handle(), SIGTERM);
    waiter_.join();
    client_->DeleteModel(name_).IgnoreError();
  }
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;

 private:
  void Wait() {
    int signal = 0;
    sigwait(&signals_, &signal);
    if (done_) return;
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);  // another one ends the process at once
    client_->DeleteModel(name_).IgnoreError();
    _exit(128 + signal);
  }

  Client* const client_;
  const std::string name_;
  const sigset_t signals_;
  std::atomic<bool> done_{false};
  std::thread waiter_;
};

absl::Status OfOneRank(const absl::Status& status) {
  return Annotate(status, absl::IsResourceExhausted(status) ? "one rank can't hold the model, so there is nothing to "
                                                              "compare with"
                                                            : "the same weights on one rank");
}

}  // namespace

absl::Status Verify(const GlobalOptions& globals, const VerifyOptions& options) {
  const BlockedSignals blocked;
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(ModelDescription model, client->GetModel(options.model, /*include_submission=*/true));
  TP_ASSIGN_OR_RETURN(Submission submission, ParseSubmission(model.submission, SubmissionFormat::kBinary));
  TP_ASSIGN_OR_RETURN(const FlatModel flat, FlattenModel(submission.model, submission.compute_dtype));
  TP_ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, ParseInputs(options.inputs, model.inputs));
  if (inputs.empty()) {
    TP_ASSIGN_OR_RETURN(inputs, SeededInputs(flat, submission.model.symbol_limits));
  }
  std::map<std::string, std::string> kinds;
  for (const FlatModule& module : flat.modules) kinds[module.path] = module.type_name;

  const std::string copy = absl::StrCat(options.model.substr(0, 100), ".verify-", getpid());
  for (MeshAxis& axis : submission.plan.mesh) axis.size = 1;
  submission.name = copy;
  const std::string bytes = SerializeSubmission(submission, SubmissionFormat::kBinary);
  const TemporaryModel temporary(client.get(), copy, blocked);
  absl::StatusOr<ForwardResult> parallel = client->Forward(options.model, inputs, /*module_outputs=*/true);
  if (!parallel.ok()) return Annotate(parallel.status(), "with the outputs of every module");
  const absl::StatusOr<SubmitResult> submitted = client->Submit(bytes, {});
  if (!submitted.ok()) return OfOneRank(submitted.status());
  absl::StatusOr<ForwardResult> single = client->Forward(copy, inputs, /*module_outputs=*/true);
  if (!single.ok()) return OfOneRank(single.status());

  Tolerance tolerance = DefaultTolerance(submission.compute_dtype);
  if (options.tolerance.has_value()) tolerance.value = *options.tolerance;
  VerifySummary summary = Compare(single->outputs, parallel->outputs, kinds, tolerance);
  summary.model = options.model;
  std::fputs(VerifyText(summary, globals.json()).c_str(), stdout);
  if (summary.equal()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(options.model, " differs from one rank by more than ", tolerance.value,
                                          ", first in ", ExceedingText(*summary.first())));
}

}  // namespace tp::client
