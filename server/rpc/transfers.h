// Transfers: bytes between coordinator and workers over data streams. Small inputs that workers fetch are offered
// whole; tensors are written by the client's call, piece by piece, over a stream that it claims (downloads). Results
// are read by the client's call over a stream that it claims (uploads). A stream that comes before its claim waits,
// unread, so that nothing piles up here. Example:
//   transfers.uploads().Claim(id, [](absl::StatusOr<std::shared_ptr<UploadStream>> stream) { ... });
// Owned by the core's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/rpc/rendezvous.h"
#include "tp/v1/tensor.pb.h"

namespace tp::server {

// A data stream from a worker, whose chunks are asked for one by one. Thread-safe.
class UploadStream {
 public:
  using OnChunk = std::function<void(absl::StatusOr<v1::Chunk>)>;
  virtual ~UploadStream() = default;
  // `on_chunk` is called once, from another thread; UNAVAILABLE where the worker has gone. One call at a time.
  virtual void ReadChunk(OnChunk on_chunk) = 0;
  // Ends the stream; OK where all was read.
  virtual void Stop(const absl::Status& status) = 0;
};

// A data stream to a worker. Thread-safe.
class DownloadStream {
 public:
  virtual ~DownloadStream() = default;
  // `written` is called once, from any thread: with false where the worker has gone.
  virtual void WriteChunk(v1::Chunk chunk, std::function<void(bool ok)> written) = 0;
  // Ends the stream; OK, after all chunks, where these were all.
  virtual void Stop(const absl::Status& status) = 0;
};

// Reads streams of several workers, and wants to know at once where one of them is lost, or all of them end.
class LossListener {
 public:
  virtual ~LossListener() = default;
  // On the core's thread.
  virtual void OnWorkerLost(const std::string& worker) = 0;
  virtual void OnCut(const absl::Status& status) = 0;
};

class Transfers {
 public:
  void Offer(uint64_t id, const std::string& worker, std::shared_ptr<const std::string> bytes);
  // NOT_FOUND for an id that is not offered to `worker` (any more).
  absl::StatusOr<std::shared_ptr<const std::string>> Find(uint64_t id, const std::string& worker) const;

  Rendezvous<UploadStream>& uploads() { return uploads_; }
  Rendezvous<DownloadStream>& downloads() { return downloads_; }

  // Of any kind.
  void Cancel(uint64_t id);
  void LoseWorker(const std::string& worker);
  // The coordinator stops: all listeners are told.
  void Cut(const absl::Status& status);
  // Told of losses for as long as it lives.
  void AddListener(std::weak_ptr<LossListener> listener) { listeners_.push_back(std::move(listener)); }

 private:
  std::vector<std::shared_ptr<LossListener>> Listeners();
  struct Download {
    std::string worker;
    std::shared_ptr<const std::string> bytes;
  };
  std::map<uint64_t, Download> offers_;
  Rendezvous<UploadStream> uploads_;
  Rendezvous<DownloadStream> downloads_;
  std::vector<std::weak_ptr<LossListener>> listeners_;
};

}  // namespace tp::server
