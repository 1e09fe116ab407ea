#include "worker/rpc/data_transfers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"

namespace tp::worker {

DataTransfers::DataTransfers(std::shared_ptr<grpc::Channel> channel, v1::DataHello hello)
    : stub_(v1::WorkerService::NewStub(channel)), hello_(std::move(hello)) {}

void DataTransfers::Start(uint64_t transfer_id, std::function<void(grpc::ClientContext*)> work) {
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
    transfer->id = transfer_id;
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

bool DataTransfers::idle() {
  absl::MutexLock lock(&mutex_);
  return std::all_of(transfers_.begin(), transfers_.end(), [](const auto& transfer) { return transfer->done.load(); });
}

void DataTransfers::Cancel(uint64_t transfer_id) {
  absl::MutexLock lock(&mutex_);
  for (auto& transfer : transfers_) {
    if (transfer->id == transfer_id) transfer->context.TryCancel();
  }
}

void DataTransfers::Upload(uint64_t transfer_id, std::vector<DataBlock> blocks) {
  Start(transfer_id, [this, transfer_id, blocks = std::move(blocks)](grpc::ClientContext* context) {
    absl::Status status = Send(context, transfer_id, blocks);
    // The client may have left: no concern of ours.
    if (!status.ok()) Log(LogLevel::kDebug, absl::StrCat("transfer ", transfer_id, ": ", status.ToString()));
  });
}

void DataTransfers::Download(uint64_t transfer_id, int64_t size_bytes, OnBytes on_bytes) {
  Start(transfer_id, [this, transfer_id, size_bytes, on_bytes = std::move(on_bytes)](grpc::ClientContext* context) {
    absl::Status status = Receive(context, transfer_id, size_bytes, on_bytes);
    if (!status.ok()) on_bytes("", true, status);
  });
}

absl::Status DataTransfers::Send(grpc::ClientContext* context, uint64_t transfer_id,
                                 const std::vector<DataBlock>& blocks) {
  auto stream = stub_->Data(context);
  v1::DataRequest request;
  *request.mutable_hello() = hello_;
  request.mutable_hello()->set_transfer_id(transfer_id);
  request.mutable_hello()->set_upload(true);
  bool open = stream->Write(request);
  absl::Status read;
  for (size_t i = 0; i < blocks.size() && open && read.ok(); ++i) {
    for (int64_t offset = 0; offset < blocks[i].size && open; offset += kChunkBytes) {
      v1::Chunk* chunk = request.mutable_chunk();
      std::string* data = chunk->mutable_data();
      data->resize(static_cast<size_t>(std::min(kChunkBytes, blocks[i].size - offset)));
      read = blocks[i].read(offset, static_cast<int64_t>(data->size()), data->data());
      if (!read.ok()) break;
      chunk->set_index(static_cast<uint32_t>(i));
      chunk->set_offset(static_cast<uint64_t>(offset));
      chunk->set_crc32(Crc32(*data));
      open = stream->Write(request);
    }
  }
  if (!read.ok()) {
    context->TryCancel();
    stream->Finish();
    return read;
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
  std::string last;
  absl::Status bad;
  while (bad.ok() && stream->Read(&response)) {
    v1::Chunk* chunk = response.mutable_chunk();
    bad = CheckChunk(*chunk);
    if (!bad.ok()) break;
    if (static_cast<int64_t>(chunk->offset()) != received ||
        static_cast<int64_t>(chunk->data().size()) > size_bytes - received) {
      bad = absl::InvalidArgumentError(absl::StrCat("transfer ", transfer_id, ": expected ", size_bytes,
                                                    " bytes in order, got ", chunk->data().size(), " at offset ",
                                                    chunk->offset(), " after ", received));
      break;
    }
    received += static_cast<int64_t>(chunk->data().size());
    // The last bytes are given below, once the stream is known to have ended well.
    if (received == size_bytes) {
      if (!chunk->data().empty()) last = std::move(*chunk->mutable_data());
      continue;
    }
    if (!on_bytes(std::move(*chunk->mutable_data()), false, absl::OkStatus())) {
      bad = absl::CancelledError(absl::StrCat("transfer ", transfer_id, " was dropped"));
    }
  }
  if (!bad.ok()) context->TryCancel();
  absl::Status status = FromGrpcStatus(stream->Finish());
  TP_RETURN_IF_ERROR(bad);
  TP_RETURN_IF_ERROR(status);
  if (received != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("transfer ", transfer_id, ": expected ", size_bytes, " bytes, got ", received));
  }
  on_bytes(std::move(last), true, absl::OkStatus());
  return absl::OkStatus();
}

}  // namespace tp::worker
