// One transfer between coordinator and worker. What was offered is written chunk by chunk, the next one when the last
// has gone out; a tensor is written by its call; an upload is read only when a chunk is asked for.
#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "server/rpc/worker_service.h"

namespace tp::server {
namespace {

using DataQueue = WriteQueue<v1::DataResponse>;
using DataReactorBase = grpc::ServerBidiReactor<v1::DataRequest, v1::DataResponse>;

// Lives on while a call holds it as an UploadStream or DownloadStream; the stream itself ends with `queue_`.
class DataReactor : public DataReactorBase,
                    public UploadStream,
                    public DownloadStream,
                    public std::enable_shared_from_this<DataReactor> {
 public:
  explicit DataReactor(const ServiceContext& context)
      : context_(context),
        queue_(std::make_shared<DataQueue>([this](const v1::DataResponse* response) { StartWrite(response); },
                                           [this](const absl::Status& status) { FinishStream(status); })) {}

  void Start() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!hello_) {
      if (!ok || request_.kind_case() != v1::DataRequest::kHello) {
        queue_->Close(absl::InvalidArgumentError("data: the first message must be a hello"));
        return;
      }
      hello_ = true;
      Begin(request_.hello());
      return;
    }
    OnChunk on_chunk;
    {
      absl::MutexLock lock(&mutex_);
      on_chunk = std::exchange(on_chunk_, nullptr);
    }
    if (!on_chunk) return;
    if (!ok || request_.kind_case() != v1::DataRequest::kChunk) {
      on_chunk(absl::UnavailableError("the worker ended its transfer early"));
      return;
    }
    context_.metrics->RelayedFromWorker(request_.chunk().data().size());
    on_chunk(std::move(*request_.mutable_chunk()));
  }

  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }

  void OnCancel() override {
    if (begun_) {
      context_.loop->Run([dispatcher = context_.dispatcher, self = shared_from_this()](const Core&) {
        dispatcher->transfers().uploads().Forget(self->transfer_id_, self.get());
        dispatcher->transfers().downloads().Forget(self->transfer_id_, self.get());
      });
    }
    queue_->Abort(absl::CancelledError("the worker's connection broke"));
  }

  void OnDone() override { self_.reset(); }

  // --- UploadStream
  void ReadChunk(OnChunk on_chunk) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!finished_) {
        on_chunk_ = std::move(on_chunk);
        // Under the lock, so that the stream can't end in between; gRPC answers from another thread.
        StartRead(&request_);
        return;
      }
    }
    on_chunk(absl::UnavailableError("the worker's transfer has ended"));
  }

  // --- DownloadStream
  void WriteChunk(v1::Chunk chunk, std::function<void(bool ok)> written) override {
    context_.metrics->RelayedToWorker(chunk.data().size());
    v1::DataResponse response;
    *response.mutable_chunk() = std::move(chunk);
    queue_->Push(std::move(response), std::move(written));
  }

  // --- Both
  void Stop(const absl::Status& status) override {
    if (status.ok() && !upload_) {
      queue_->Close(status);
    } else {
      queue_->Abort(status);
    }
  }

 private:
  void FinishStream(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      finished_ = true;
    }
    Finish(ToGrpcStatus(status));
  }

  void Begin(const v1::DataHello& hello) {
    upload_ = hello.upload();
    transfer_id_ = hello.transfer_id();
    begun_ = true;
    context_.loop->Run(
        [dispatcher = context_.dispatcher, self = shared_from_this(), worker = hello.worker_id()](const Core&) {
          Transfers& transfers = dispatcher->transfers();
          if (self->upload_) {
            absl::Status status = transfers.uploads().Arrived(self->transfer_id_, worker, self);
            if (!status.ok()) self->queue_->Close(status);
            return;
          }
          if (transfers.downloads().Expects(self->transfer_id_, worker)) {
            absl::Status status = transfers.downloads().Arrived(self->transfer_id_, worker, self);
            if (!status.ok()) self->queue_->Close(status);
            return;
          }
          absl::StatusOr<std::shared_ptr<const std::string>> bytes = transfers.Find(self->transfer_id_, worker);
          if (!bytes.ok()) {
            self->queue_->Close(bytes.status());
            return;
          }
          self->SendFrom(*bytes, 0);
        });
  }

  void SendFrom(std::shared_ptr<const std::string> bytes, uint64_t offset) {
    if (offset >= bytes->size()) {
      queue_->Close(absl::OkStatus());
      return;
    }
    v1::DataResponse response;
    *response.mutable_chunk() = MakeChunk(0, *bytes, offset);
    const uint64_t next = offset + response.chunk().data().size();
    context_.metrics->RelayedToWorker(response.chunk().data().size());
    queue_->Push(std::move(response), [self = shared_from_this(), bytes = std::move(bytes), next](bool ok) {
      if (ok) self->SendFrom(bytes, next);
    });
  }

  const ServiceContext context_;
  std::shared_ptr<DataQueue> queue_;
  std::shared_ptr<DataReactor> self_;
  v1::DataRequest request_;
  bool hello_ = false;
  bool upload_ = false;
  uint64_t transfer_id_ = 0;
  std::atomic<bool> begun_{false};  // what the hello says is known
  absl::Mutex mutex_;
  OnChunk on_chunk_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::DataRequest, v1::DataResponse>* NewDataReactor(const ServiceContext& context) {
  auto reactor = std::make_shared<DataReactor>(context);
  reactor->Start();
  return reactor.get();
}

}  // namespace tp::server
