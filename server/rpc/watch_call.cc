// WatchModel: a model's state at every change. A client that reads slowly gets the latest one, not all of them.
#include <memory>
#include <optional>
#include <utility>

#include "common/rpc/status.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/describe.h"

namespace tp::server {
namespace {

using WatchQueue = WriteQueue<v1::WatchModelResponse>;

class WatchCall : public grpc::ServerWriteReactor<v1::WatchModelResponse>,
                  public Watcher,
                  public std::enable_shared_from_this<WatchCall> {
 public:
  WatchCall(const ServiceContext& context, std::string name)
      : context_(context),
        name_(std::move(name)),
        queue_(std::make_shared<WatchQueue>([this](const v1::WatchModelResponse* response) { StartWrite(response); },
                                            [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {}

  void Start() {
    self_ = shared_from_this();
    context_.loop->Run([self = self_](const Core& core) {
      if (core.models().count(self->name_) == 0) {
        self->queue_->Close(NoSuchModel(core, self->name_));
        return;
      }
      if (self->queue_->closed()) return;
      self->context_.dispatcher->AddWatcher(self->name_, self);
      self->OnChanged(core);
    });
  }

  void OnWriteDone(bool ok) override {
    queue_->OnWriteDone(ok);
    if (ok) {
      context_.loop->Run([self = shared_from_this()](const Core&) { self->SendLatest(); });
    }
  }

  void OnCancel() override {
    queue_->Abort(absl::CancelledError("the client has gone"));
    context_.loop->Run([self = shared_from_this()](const Core&) { self->Leave(); });
  }

  void OnDone() override { self_.reset(); }

  // On the core's thread, as what follows.
  void OnChanged(const Core& core) override {
    auto it = core.models().find(name_);
    if (it == core.models().end()) {
      SendLatest();
      queue_->Close(absl::OkStatus());
      Leave();
      return;
    }
    latest_.emplace();
    *latest_->mutable_model() = Summary(it->second);
    SendLatest();
  }

  void End(const absl::Status& status) override { queue_->Abort(status); }

 private:
  void SendLatest() {
    if (!latest_.has_value() || queue_->pending() > 0) return;
    queue_->Push(*std::exchange(latest_, std::nullopt));
  }
  void Leave() { context_.dispatcher->RemoveWatcher(name_, this); }

  const ServiceContext context_;
  const std::string name_;
  std::shared_ptr<WatchQueue> queue_;
  std::shared_ptr<WatchCall> self_;
  std::optional<v1::WatchModelResponse> latest_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchModelResponse>* CoordinatorService::WatchModel(grpc::CallbackServerContext*,
                                                                                 const v1::WatchModelRequest* request) {
  auto call = std::make_shared<WatchCall>(context_, request->name());
  call->Start();
  return call.get();
}

}  // namespace tp::server
