// Transfers: bytes between coordinator and workers over data streams. Inputs that workers fetch are offered; results
// that they send are claimed by the client's call, and read only then, chunk by chunk. An upload that comes before its
// claim is held unread, so that nothing piles up here. Example:
//   transfers.Claim(id, [](absl::StatusOr<std::shared_ptr<UploadStream>> stream) { ... });
// Owned by the core's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "tp/v1/tensor.pb.h"

namespace tp::server {

// A data stream whose chunks are asked for one by one.
class UploadStream {
 public:
  using OnChunk = std::function<void(absl::StatusOr<v1::Chunk>)>;
  virtual ~UploadStream() = default;
  // `on_chunk` is called once, from another thread; UNAVAILABLE where the worker has gone. One call at a time.
  virtual void ReadChunk(OnChunk on_chunk) = 0;
  // Ends the stream; OK where all was read.
  virtual void Stop(const absl::Status& status) = 0;
};

class Transfers {
 public:
  using OnUpload = std::function<void(absl::StatusOr<std::shared_ptr<UploadStream>>)>;

  // --- Downloads.
  void Offer(uint64_t id, const std::string& worker, std::shared_ptr<const std::string> bytes);
  // NOT_FOUND for an id that is not offered to `worker` (any more).
  absl::StatusOr<std::shared_ptr<const std::string>> Find(uint64_t id, const std::string& worker) const;

  // --- Uploads.
  // A command that may make `worker` send a result as `id` was sent.
  void Expect(uint64_t id, const std::string& worker);
  // A worker's stream has come. NOT_FOUND where nobody expects it (any more).
  absl::Status Arrived(uint64_t id, const std::string& worker, std::shared_ptr<UploadStream> stream);
  // The stream broke before it was claimed.
  void Forget(uint64_t id, const UploadStream* stream);
  // `on_upload` is called once: at once or when the stream comes. UNAVAILABLE where the worker is lost before.
  void Claim(uint64_t id, OnUpload on_upload);

  void Cancel(uint64_t id);
  void LoseWorker(const std::string& worker);

 private:
  struct Download {
    std::string worker;
    std::shared_ptr<const std::string> bytes;
  };
  std::map<uint64_t, Download> offers_;
  std::map<uint64_t, std::string> expected_;  // id -> worker
  std::map<uint64_t, std::shared_ptr<UploadStream>> uploads_;
  std::map<uint64_t, OnUpload> claims_;
};

}  // namespace tp::server
