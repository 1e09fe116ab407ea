// PutTensor: a header up; the core has ranks wait for their blocks; then chunks up, each passed on to the ranks before
// the next one is read, so that a few MiB at most are here at any time.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/describe.h"
#include "server/rpc/put_stream.h"
#include "server/rpc/tensor_requests.h"

namespace tp::server {
namespace {

constexpr size_t kMaxInFlight = size_t{4} << 20;               // bytes on their way to ranks, all together
constexpr absl::Duration kProgress = absl::Milliseconds(500);  // how often the core is told that bytes move

class PutCall : public grpc::ServerReadReactor<v1::PutTensorRequest>,
                public CallSink,
                public std::enable_shared_from_this<PutCall> {
 public:
  PutCall(const ServiceContext& context, v1::PutTensorResponse* response)
      : context_(context), response_(response), last_progress_(context.clock->Now()) {}

  void Start() {
    self_ = shared_from_this();
    Read();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (stream_ == nullptr) {
        if (!header_) End(absl::InvalidArgumentError("put: the first message must be a header"));
      } else if (!stream_->done()) {
        End(absl::InvalidArgumentError(absl::StrCat("the tensor's bytes ended early: ", stream_->Missing())));
      } else {
        context_.loop->Post(PutSent{id_});
      }
      return;
    }
    const absl::Status status = header_ ? OnChunk() : OnHeader();
    if (!status.ok()) End(status);
  }

  // The answer, where there is none yet, does not reach anybody.
  void OnCancel() override { End(absl::CancelledError("the client has gone")); }
  void OnDone() override { self_.reset(); }

  // --- On the core's thread.
  void OnPutStarted(PutStarted started) override {
    stream_ = std::make_unique<PutStream>(started, std::move(local_shapes_));
    sinks_.resize(started.targets.size());
    unclaimed_ = started.targets.size();
    if (unclaimed_ == 0) return Read();
    for (size_t i = 0; i < started.targets.size(); ++i) {
      context_.dispatcher->transfers().downloads().Claim(
          started.targets[i].transfer_id,
          [self = shared_from_this(), i](absl::StatusOr<std::shared_ptr<DownloadStream>> sink) {
            if (!sink.ok()) return;  // the core knows more of it, and answers
            self->sinks_[i] = *std::move(sink);
            if (--self->unclaimed_ == 0) self->Read();
          });
    }
  }

  void OnOperation(const OperationReply& reply, const Core&) override {
    if (!reply.status.ok()) StopSinks(reply.status);
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    if (reply.status.ok() && !reply.tensors.empty()) *response_->mutable_tensor() = DescriptionOf(reply.tensors[0]);
    Finish(ToGrpcStatus(reply.status));
  }

 private:
  void Read() {
    absl::MutexLock lock(&mutex_);
    if (!ended_) StartRead(&request_);
  }

  absl::Status OnHeader() {
    if (request_.kind_case() != v1::PutTensorRequest::kHeader) {
      return absl::InvalidArgumentError("put: the first message must be a header");
    }
    header_ = true;
    TP_ASSIGN_OR_RETURN(PutTensorRequested event, RequestFromProto(request_.header()));
    for (const LocalBlockShape& local : event.locals) local_shapes_.push_back(local.shape);
    event.head.call = id_;
    context_.loop->Run([self = shared_from_this(), event = std::move(event)](const Core&) {
      absl::MutexLock lock(&self->mutex_);
      if (self->ended_) return;  // the client has gone
      self->context_.dispatcher->AddCall(self->id_, self);
      self->context_.loop->Post(event);
    });
    return absl::OkStatus();  // the next read waits for the core's consent
  }

  absl::Status OnChunk() {
    if (request_.kind_case() != v1::PutTensorRequest::kChunk) {
      return absl::InvalidArgumentError("put: only chunks may follow the header");
    }
    TP_RETURN_IF_ERROR(stream_->Accept(std::move(*request_.mutable_chunk())));
    const absl::Time now = context_.clock->Now();
    if (now - last_progress_ >= kProgress) {
      last_progress_ = now;
      context_.loop->Post(PutProgressed{id_});
    }
    {
      absl::MutexLock lock(&mutex_);
      next_ = 0;
      passing_ = true;
    }
    Pass();
    return absl::OkStatus();
  }

  // Gives the ranks what they get of the chunk; the last answer of a rank asks for the next chunk.
  void Pass() {
    while (true) {
      size_t target = 0;
      {
        absl::MutexLock lock(&mutex_);
        if (ended_ || !passing_) return;
        if (next_ == stream_->targets()) {
          if (in_flight_ > 0) return;
          passing_ = false;
          break;
        }
        if (in_flight_ >= kMaxInFlight) return;
        target = next_++;
        in_flight_ += kReserve;
      }
      v1::Chunk piece = stream_->PieceFor(target);
      const bool complete = stream_->Complete(target);
      if (piece.data().empty()) {
        if (complete) sinks_[target]->Stop(absl::OkStatus());
        absl::MutexLock lock(&mutex_);
        in_flight_ -= kReserve;
        continue;
      }
      sinks_[target]->WriteChunk(std::move(piece), [self = shared_from_this()](bool ok) {
        {
          absl::MutexLock lock(&self->mutex_);
          self->in_flight_ -= kReserve;
          if (!ok) self->passing_ = false;  // the core knows more of it, and answers
        }
        self->Pass();
      });
      if (complete) sinks_[target]->Stop(absl::OkStatus());
    }
    Read();
  }

  // The client has gone or is refused.
  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      ended_ = true;
      Finish(ToGrpcStatus(status));
    }
    context_.loop->Run([dispatcher = context_.dispatcher, id = id_](const Core&) { dispatcher->RemoveCall(id); });
    context_.loop->Post(CallCancelled{id_});
    context_.loop->Run([self = shared_from_this(), status](const Core&) { self->StopSinks(status); });
  }

  // On the core's thread: ranks wait no longer for what will not come.
  void StopSinks(const absl::Status& status) {
    for (const auto& sink : sinks_) {
      if (sink != nullptr) sink->Stop(status);
    }
  }

  static constexpr size_t kReserve = static_cast<size_t>(kChunkBytes);
  const ServiceContext context_;
  const RunningCall running_{context_};
  v1::PutTensorResponse* response_;
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<PutCall> self_;
  // Of the one read, or of what follows from it, at a time.
  v1::PutTensorRequest request_;
  bool header_ = false;
  std::vector<Shape> local_shapes_;
  absl::Time last_progress_;
  // Set by the core's thread before the first chunk is read.
  std::unique_ptr<PutStream> stream_;
  std::vector<std::shared_ptr<DownloadStream>> sinks_;
  size_t unclaimed_ = 0;
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;       // target that gets its piece of the chunk next
  size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes
  bool passing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
};

}  // namespace

grpc::ServerReadReactor<v1::PutTensorRequest>* CoordinatorService::PutTensor(grpc::CallbackServerContext*,
                                                                             v1::PutTensorResponse* response) {
  auto call = std::make_shared<PutCall>(context_, response);
  call->Start();
  return call.get();
}

}  // namespace tp::server
