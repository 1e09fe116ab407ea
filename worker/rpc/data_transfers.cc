#include "worker/rpc/data_transfers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"

namespace tp::worker {

DataTransfers::DataTransfers(std::shared_ptr<grpc::Channel> channel, v1::DataHello hello)
    : stub_(v1::WorkerService::NewStub(channel)), hello_(std::move(hello)) {}

void DataTransfers::Start(std::function<void(grpc::ClientContext*)> work) {
  std::vector<std::unique_ptr<Transfer>> ended;
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    for (auto it = transfers_.begin(); it != transfers_.end();) {
      if (!(*it)->done) {
        ++it;
        continue;
      }
      ended.push_back(std::move(*it));
      it = transfers_.erase(it);
    }
    transfers_.push_back(std::make_unique<Transfer>());
    Transfer* transfer = transfers_.back().get();
    transfer->thread = std::thread([transfer, work = std::move(work)] {
      work(&transfer->context);
      transfer->done = true;
    });
  }
  for (auto& transfer : ended) transfer->thread.join();
}

void DataTransfers::Stop() {
  std::list<std::unique_ptr<Transfer>> transfers;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    transfers.swap(transfers_);
  }
  for (auto& transfer : transfers) transfer->context.TryCancel();
  for (auto& transfer : transfers) transfer->thread.join();
}

void DataTransfers::Upload(uint64_t transfer_id, std::vector<std::string> blocks) {
  Start([this, transfer_id, blocks = std::move(blocks)](grpc::ClientContext* context) {
    absl::Status status = Send(context, transfer_id, blocks);
    // The client may have left: no concern of ours.
    if (!status.ok()) Log(LogLevel::kDebug, absl::StrCat("transfer ", transfer_id, ": ", status.ToString()));
  });
}

void DataTransfers::Download(uint64_t transfer_id, int64_t size_bytes, OnBytes on_bytes) {
  Start([this, transfer_id, size_bytes, on_bytes = std::move(on_bytes)](grpc::ClientContext* context) {
    absl::Status status = Receive(context, transfer_id, size_bytes, on_bytes);
    if (!status.ok()) on_bytes("", true, status);
  });
}

absl::Status DataTransfers::Send(grpc::ClientContext* context, uint64_t transfer_id,
                                 const std::vector<std::string>& blocks) {
  auto stream = stub_->Data(context);
  v1::DataRequest request;
  *request.mutable_hello() = hello_;
  request.mutable_hello()->set_transfer_id(transfer_id);
  request.mutable_hello()->set_upload(true);
  bool open = stream->Write(request);
  for (size_t i = 0; i < blocks.size() && open; ++i) {
    for (uint64_t offset = 0; offset < blocks[i].size() && open; offset += kChunkBytes) {
      *request.mutable_chunk() = MakeChunk(static_cast<uint32_t>(i), blocks[i], offset);
      open = stream->Write(request);
    }
  }
  stream->WritesDone();
  return FromGrpcStatus(stream->Finish());
}

absl::Status DataTransfers::Receive(grpc::ClientContext* context, uint64_t transfer_id, int64_t size_bytes,
                                    const OnBytes& on_bytes) {
  auto stream = stub_->Data(context);
  v1::DataRequest request;
  *request.mutable_hello() = hello_;
  request.mutable_hello()->set_transfer_id(transfer_id);
  stream->Write(request);
  stream->WritesDone();
  v1::DataResponse response;
  int64_t received = 0;
  absl::Status bad;
  while (bad.ok() && stream->Read(&response)) {
    v1::Chunk* chunk = response.mutable_chunk();
    bad = CheckChunk(*chunk);
    if (!bad.ok()) break;
    if (static_cast<int64_t>(chunk->offset()) != received ||
        static_cast<int64_t>(chunk->data().size()) > size_bytes - received) {
      bad = absl::InternalError(absl::StrCat("transfer ", transfer_id, ": chunk at offset ", chunk->offset(), " of ",
                                             chunk->data().size(), " bytes, expected offset ", received, " of ",
                                             size_bytes));
      break;
    }
    received += static_cast<int64_t>(chunk->data().size());
    // The last bytes are given below, once the stream is known to have ended well.
    if (received < size_bytes) {
      on_bytes(std::move(*chunk->mutable_data()), false, absl::OkStatus());
    } else {
      break;
    }
  }
  if (!bad.ok()) context->TryCancel();
  std::string last = received == size_bytes && received > 0 ? std::move(*response.mutable_chunk()->mutable_data()) : "";
  absl::Status status = FromGrpcStatus(stream->Finish());
  TP_RETURN_IF_ERROR(bad);
  TP_RETURN_IF_ERROR(status);
  if (received != size_bytes) {
    return absl::UnavailableError(
        absl::StrCat("transfer ", transfer_id, " ended after ", received, " of ", size_bytes, " bytes"));
  }
  on_bytes(std::move(last), true, absl::OkStatus());
  return absl::OkStatus();
}

}  // namespace tp::worker
