// StreamRelay: blocks that workers stream, passed on to a client: one worker after the other, the next chunk asked for
// when the last has gone out, so that nothing piles up. Example:
//   auto relay = std::make_shared<StreamRelay>(context, blocks, push, done);   relay->Start();
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/rpc/services.h"

namespace tp::server {

// It keeps itself alive while it works; its owner holds it weakly, since `push` and `done` hold the owner.
class StreamRelay : public LossListener, public std::enable_shared_from_this<StreamRelay> {
 public:
  // Sends a chunk, whose index is one of `blocks`, to the client; `written` as WriteQueue's. From any thread.
  using Push = std::function<void(v1::Chunk chunk, std::function<void(bool ok)> written)>;
  // `done` is called once, from any thread: OK where all has gone out; not after a Cancel. Blocks without a transfer
  // are not its concern.
  StreamRelay(const ServiceContext& context, const std::vector<AnswerBlock>& blocks, Push push,
              std::function<void(const absl::Status&)> done);
  // On the core's thread.
  void Start();
  // The client has gone. On the core's thread.
  void Cancel();
  // Ends at once with UNAVAILABLE naming the rank, whichever stream is read just now.
  void OnWorkerLost(const std::string& worker) override;
  void OnCut(const absl::Status& status) override { Fail(status); }

 private:
  struct Block {
    uint32_t index = 0;  // in the answer's header
    uint64_t size = 0, done = 0;
  };
  // The streamed blocks of one worker.
  struct Source {
    uint64_t transfer_id = 0;
    int rank = 0;
    std::string worker;
    std::map<uint32_t, Block> blocks;  // by index in the stream
    uint64_t missing = 0;              // bytes
    std::shared_ptr<UploadStream> stream;
  };
  void Next(size_t index);
  void Read(size_t index);
  absl::Status Pass(size_t index, v1::Chunk* chunk);
  void Fail(const absl::Status& status);
  static absl::Status Lost(const Source& source);

  const ServiceContext context_;
  std::vector<Source> sources_;  // does not change; its elements belong to one callback at a time
  const Push push_;
  const std::function<void(const absl::Status&)> done_;
  std::atomic<size_t> passed_{0};  // sources that are through
  std::atomic<bool> cancelled_{false};
};

}  // namespace tp::server
