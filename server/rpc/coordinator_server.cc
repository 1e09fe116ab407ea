#include "server/rpc/coordinator_server.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/program/compile.h"
#include "common/proto_convert/submission_file.h"
#include "common/rpc/server.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/membership_service.h"
#include "server/rpc/worker_service.h"

namespace tp::server {
namespace {

constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);

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
      : loop_(core, clock),
        store_(std::move(store), &loop_),
        dispatcher_(
            {core.term, kHeartbeat * options.time_scale, core.lease * options.time_scale, options.check_collectives},
            &store_),
        pool_(2),
        context_{&loop_,          &dispatcher_, &pool_,  clock, {options.max_submission_bytes, options.max_input_bytes},
                 options.version, clock->Now(), &relays_},
        membership_(context_),
        workers_(context_),
        clients_(context_) {}

  absl::Status Serve(const CoordinatorServerOptions& options, std::vector<SubmitRequested> restored) {
    for (SubmitRequested& event : restored) loop_.Post(std::move(event));
    loop_.Start(&dispatcher_);
    RpcServerOptions rpc;
    rpc.keepalive = rpc.keepalive * options.time_scale;
    rpc.tls = options.tls;
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
      loop_.Run([this](const Core&) { dispatcher_.CloseStreams(absl::UnavailableError("the coordinator stops")); });
      server_->Shutdown(absl::Milliseconds(500));
    }
    pool_.Stop();
    store_.Stop();
    loop_.Stop();
  }

  const std::string& endpoint() const { return endpoint_; }

 private:
  void Drain(absl::Duration grace, const std::atomic<bool>* hurry) {
    auto drained = std::make_shared<absl::Notification>();
    loop_.Run([this, drained](const Core&) { dispatcher_.SetOnDrained([drained] { drained->Notify(); }); });
    loop_.Post(DrainRequested{});
    const absl::Time end = absl::Now() + grace;
    // Answers that are still being relayed are the client's, not the core's.
    while (absl::Now() < end && !(hurry != nullptr && hurry->load())) {
      if (drained->WaitForNotificationWithTimeout(absl::Milliseconds(20)) && relays_.load() == 0) return;
      if (drained->HasBeenNotified()) absl::SleepFor(absl::Milliseconds(10));
    }
  }

  std::atomic<int> relays_{0};
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

void CoordinatorServer::Stop(absl::Duration grace, const std::atomic<bool>* hurry) { impl_->Stop(grace, hurry); }

}  // namespace tp::server
