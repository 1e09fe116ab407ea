#include "server/rpc/coordinator_server.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/program/compile.h"
#include "common/proto_convert/submission_file.h"
#include "common/rpc/server.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/membership_service.h"
#include "server/rpc/request_metrics.h"
#include "server/rpc/worker_service.h"

namespace tp::server {
namespace {

constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);
constexpr absl::Duration kLastAnswers = absl::Milliseconds(500);  // to go out, before connections close
constexpr absl::Duration kScrapeLimit = absl::Seconds(1);         // for the core's part of a scrape
constexpr absl::Duration kLiveLimit = absl::Seconds(2);           // for the core to answer at all

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& data_dir) {
  if (data_dir.empty()) return Store::Open(":memory:");
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat("can't create folder ", data_dir, ": ", error.message()));
  }
  return Store::Open((std::filesystem::path(data_dir) / "coordinator.db").string());
}

// Compiles what the store kept. What this version can't compile any more stays in the store and is said in the log.
std::optional<SubmitRequested> Restore(const std::string& name, const std::string& blob) {
  absl::StatusOr<Submission> submission = ParseSubmission(blob, SubmissionFormat::kBinary);
  absl::StatusOr<CompiledModel> compiled =
      submission.ok() ? CompileForward(*submission) : absl::StatusOr<CompiledModel>(submission.status());
  if (!compiled.ok()) {
    Log(LogLevel::kError, absl::StrCat("model ", name, " is not restored: ", std::string(compiled.status().message())));
    return std::nullopt;
  }
  SubmitRequested event;
  event.digest = Sha256Hex(blob);
  event.submission = std::make_shared<const Submission>(*std::move(submission));
  event.compiled = std::make_shared<const CompiledModel>(*std::move(compiled));
  event.blob = blob;
  return event;
}

}  // namespace

class CoordinatorServer::Impl {
 public:
  Impl(const CoordinatorServerOptions& options, CoreOptions core, std::unique_ptr<Store> store, const Clock* clock)
      : time_scale_(options.time_scale),
        metrics_(CoordinatorRpcs(), options.version),
        loop_(core, clock),
        store_(std::move(store), &loop_),
        dispatcher_(
            {core.term, kHeartbeat * options.time_scale, core.lease * options.time_scale, options.check_collectives},
            &store_),
        pool_(2),
        context_{
            &loop_,          &dispatcher_, &pool_,    clock,    {options.max_submission_bytes, options.max_input_bytes},
            options.version, clock->Now(), &running_, &metrics_},
        membership_(context_),
        workers_(context_),
        clients_(context_) {}

  absl::Status Serve(const CoordinatorServerOptions& options, std::vector<SubmitRequested> restored) {
    for (SubmitRequested& event : restored) loop_.Post(std::move(event));
    loop_.Start(&dispatcher_);
    RpcServerOptions rpc;
    rpc.keepalive = rpc.keepalive * options.time_scale;
    rpc.tls = options.tls;
    rpc.interceptor = [this] { return NewRequestMetrics(&metrics_); };
    TP_ASSIGN_OR_RETURN(server_, RpcServer::Start(options.listen, {&membership_, &workers_, &clients_}, rpc));
    endpoint_ = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", server_->port());
    server_->SetServing(true);
    return absl::OkStatus();
  }

  ~Impl() { Stop(absl::ZeroDuration(), nullptr); }

  void Stop(absl::Duration grace, const std::atomic<bool>* hurry) {
    if (stopped_) return;
    stopped_ = true;
    if (server_ != nullptr) {
      server_->SetServing(false);
      Drain(grace, hurry);
      loop_.Run([this](const Core& core) {
        dispatcher_.CutCalls(absl::UnavailableError("the coordinator stopped before this request was done"), core);
        dispatcher_.CloseStreams(absl::UnavailableError("the coordinator stops"));
      });
      server_->Shutdown(kLastAnswers * time_scale_);
    }
    pool_.Stop();
    store_.Stop();
    loop_.Stop();
  }

  const std::string& endpoint() const { return endpoint_; }

  std::string MetricsText() {
    CoreNumbers numbers;
    const absl::Time asked = absl::Now();
    const bool answered = AskCore(
        kScrapeLimit, [](const Core& core) { return core.numbers(); }, &numbers);
    if (answered) metrics_.Show(numbers);
    metrics_.ShowDelay(answered ? absl::Now() - asked : kScrapeLimit);
    metrics_.ShowDraining(running_.draining);
    return metrics_.Text();
  }

  absl::Status Live() {
    bool alive = false;
    if (AskCore(
            kLiveLimit, [](const Core&) { return true; }, &alive))
      return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("the core did not answer within ", absl::FormatDuration(kLiveLimit)));
  }

  absl::Status Ready() {
    if (running_.draining) return absl::UnavailableError("draining");
    return Live();
  }

 private:
  // What `question` says on the core's thread; false where that takes longer than `limit`.
  template <typename Question, typename Answer>
  bool AskCore(absl::Duration limit, Question question, Answer* answer) {
    struct Asked {
      Answer answer{};
      absl::Notification done;
    };
    const auto asked = std::make_shared<Asked>();
    loop_.Run([asked, question](const Core& core) {
      asked->answer = question(core);
      asked->done.Notify();
    });
    if (!asked->done.WaitForNotificationWithTimeout(limit)) return false;
    *answer = asked->answer;
    return true;
  }

  // Until all calls that have begun are answered to the last byte.
  void Drain(absl::Duration grace, const std::atomic<bool>* hurry) {
    running_.draining = true;
    loop_.Post(DrainRequested{});
    if (running_.begun > 0) Log(LogLevel::kInfo, absl::StrCat("drains: ", running_.begun.load(), " requests run"));
    const absl::Time end = absl::Now() + grace;
    while (running_.begun > 0 && absl::Now() < end && !(hurry != nullptr && hurry->load())) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    if (running_.begun > 0) Log(LogLevel::kWarning, absl::StrCat("cuts ", running_.begun.load(), " requests"));
  }

  const double time_scale_;
  CoordinatorMetrics metrics_;
  RunningCalls running_;
  CoreLoop loop_;
  StoreThread store_;
  Dispatcher dispatcher_;
  WorkPool pool_;
  const ServiceContext context_;
  MembershipService membership_;
  WorkerService workers_;
  CoordinatorService clients_;
  std::unique_ptr<RpcServer> server_;
  std::string endpoint_;
  bool stopped_ = false;
};

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(const CoordinatorServerOptions& options,
                                                                            const Clock* clock) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenStore(options.data_dir));
  CoreOptions core;
  TP_ASSIGN_OR_RETURN(core.term, store->NextTerm());
  core.version = options.version;
  core.time_scale = options.time_scale;
  core.cache_bytes = options.cache_bytes;
  core.max_queued_requests = options.max_queued_requests;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> kept = store->All();
  if (!kept.ok()) return kept.status();
  std::vector<SubmitRequested> restored;
  for (const auto& [name, blob] : *kept) {
    if (std::optional<SubmitRequested> event = Restore(name, blob)) restored.push_back(*std::move(event));
  }
  auto impl = std::make_unique<Impl>(options, core, std::move(store), clock);
  TP_RETURN_IF_ERROR(impl->Serve(options, std::move(restored)));
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

const std::string& CoordinatorServer::endpoint() const { return impl_->endpoint(); }
std::string CoordinatorServer::MetricsText() { return impl_->MetricsText(); }
absl::Status CoordinatorServer::Live() { return impl_->Live(); }
absl::Status CoordinatorServer::Ready() { return impl_->Ready(); }

void CoordinatorServer::Stop(absl::Duration grace, const std::atomic<bool>* hurry) { impl_->Stop(grace, hurry); }

}  // namespace tp::server
