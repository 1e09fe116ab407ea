#include "server/rpc/stream_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/chunk.h"

namespace tp::server {

StreamRelay::StreamRelay(const ServiceContext& context, const std::vector<AnswerBlock>& blocks, Push push,
                         std::function<void(const absl::Status&)> done)
    : context_(context), push_(std::move(push)), done_(std::move(done)) {
  std::map<uint64_t, Source> sources;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const AnswerBlock& block = blocks[i];
    if (block.transfer_id == 0) continue;
    Source& source = sources[block.transfer_id];
    source.transfer_id = block.transfer_id;
    source.rank = block.rank;
    source.blocks[block.stream_index] = {static_cast<uint32_t>(i), static_cast<uint64_t>(block.size_bytes), 0};
    source.missing += static_cast<uint64_t>(block.size_bytes);
  }
  for (auto& [id, source] : sources) {
    if (source.missing > 0) sources_.push_back(std::move(source));
  }
}

void StreamRelay::Start() {
  Transfers& transfers = context_.dispatcher->transfers();
  for (Source& source : sources_) {
    source.worker = transfers.uploads().WorkerOf(source.transfer_id);
    if (source.worker.empty()) return Fail(Lost(source));
  }
  transfers.AddListener(weak_from_this());
  Next(0);
}

absl::Status StreamRelay::Lost(const Source& source) {
  const std::string worker = source.worker.empty() ? "" : absl::StrCat(" (worker ", source.worker, ")");
  return absl::UnavailableError(absl::StrCat("rank ", source.rank, worker, " was lost before it had sent its block"));
}

void StreamRelay::OnWorkerLost(const std::string& worker) {
  for (size_t i = passed_; i < sources_.size(); ++i) {
    if (sources_[i].worker == worker) return Fail(Lost(sources_[i]));
  }
}

void StreamRelay::Cancel() {
  cancelled_ = true;
  // Streams that are not claimed yet; those that are end with their next chunk.
  for (const Source& source : sources_) context_.dispatcher->transfers().Cancel(source.transfer_id);
}

void StreamRelay::Fail(const absl::Status& status) {
  if (!cancelled_.exchange(true)) done_(status);
}

void StreamRelay::Next(size_t index) {
  if (index == sources_.size()) return Fail(absl::OkStatus());
  context_.loop->Run([self = shared_from_this(), index](const Core&) {
    if (self->cancelled_) return;
    self->context_.dispatcher->transfers().uploads().Claim(
        self->sources_[index].transfer_id, [self, index](absl::StatusOr<std::shared_ptr<UploadStream>> stream) {
          if (!stream.ok()) return self->Fail(Lost(self->sources_[index]));
          self->sources_[index].stream = *std::move(stream);
          self->Read(index);
        });
  });
}

void StreamRelay::Read(size_t index) {
  sources_[index].stream->ReadChunk([self = shared_from_this(), index](absl::StatusOr<v1::Chunk> chunk) {
    absl::Status status = chunk.ok() ? self->Pass(index, &*chunk) : Lost(self->sources_[index]);
    if (status.ok()) return;
    self->sources_[index].stream->Stop(status);
    self->Fail(status);
  });
}

absl::Status StreamRelay::Pass(size_t index, v1::Chunk* chunk) {
  Source& source = sources_[index];
  TP_RETURN_IF_ERROR(CheckChunk(*chunk));
  auto block = source.blocks.find(chunk->index());
  if (block == source.blocks.end() || chunk->offset() != block->second.done || chunk->data().empty() ||
      chunk->data().size() > block->second.size - block->second.done) {
    return absl::InternalError(absl::StrCat("a worker's chunk of block ", chunk->index(), " at offset ",
                                            chunk->offset(), " does not fit its result"));
  }
  block->second.done += chunk->data().size();
  source.missing -= chunk->data().size();
  chunk->set_index(block->second.index);
  const bool last = source.missing == 0;
  push_(std::move(*chunk), [self = shared_from_this(), index, last](bool ok) {
    std::shared_ptr<UploadStream> stream = self->sources_[index].stream;
    if (!ok) {
      stream->Stop(absl::CancelledError("the client has gone"));
    } else if (last) {
      stream->Stop(absl::OkStatus());
      self->passed_ = index + 1;
      self->Next(index + 1);
    } else {
      self->Read(index);
    }
  });
  return absl::OkStatus();
}

}  // namespace tp::server
