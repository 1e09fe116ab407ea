// Where a data stream that a worker dials and the call that waits for it find each other, whoever comes first. Example:
//   streams.Expect(7, "w1");   streams.Claim(7, on_stream);   streams.Arrived(7, "w1", stream);   // ->
//   on_stream(stream)
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
#include "absl/strings/str_cat.h"

namespace tp::server {

// `Stream` has Stop(const absl::Status&).
template <typename Stream>
class Rendezvous {
 public:
  using OnStream = std::function<void(absl::StatusOr<std::shared_ptr<Stream>>)>;

  // `worker` was told of the transfer `id`.
  void Expect(uint64_t id, const std::string& worker) {
    expected_[id] = worker;
    // Ids of runs whose results turned out small are never cancelled; the oldest are forgotten.
    if (expected_.size() > kMaxExpected) expected_.erase(expected_.begin());
  }
  bool Expects(uint64_t id, const std::string& worker) const {
    const auto it = expected_.find(id);
    return it != expected_.end() && it->second == worker;
  }
  // The worker that a transfer is expected of; "" where it is not (any more).
  std::string WorkerOf(uint64_t id) const {
    const auto it = expected_.find(id);
    return it == expected_.end() ? "" : it->second;
  }
  // A worker's stream has come. NOT_FOUND where nobody expects it (any more).
  absl::Status Arrived(uint64_t id, const std::string& worker, std::shared_ptr<Stream> stream) {
    if (!Expects(id, worker) || streams_.count(id) != 0) {
      return absl::NotFoundError(absl::StrCat("transfer ", id, " of worker ", worker, " is not expected"));
    }
    auto claim = claims_.find(id);
    if (claim == claims_.end()) {
      streams_[id] = std::move(stream);
      return absl::OkStatus();
    }
    OnStream on_stream = std::move(claim->second);
    claims_.erase(claim);
    expected_.erase(id);
    on_stream(std::move(stream));
    return absl::OkStatus();
  }
  // The stream broke before it was claimed.
  void Forget(uint64_t id, const Stream* stream) {
    auto it = streams_.find(id);
    if (it == streams_.end() || it->second.get() != stream) return;
    streams_.erase(it);
    expected_.erase(id);
  }
  // `on_stream` is called once: at once or when the stream comes. UNAVAILABLE where the worker is lost before.
  void Claim(uint64_t id, OnStream on_stream) {
    auto it = streams_.find(id);
    if (it != streams_.end()) {
      std::shared_ptr<Stream> stream = std::move(it->second);
      streams_.erase(it);
      expected_.erase(id);
      on_stream(std::move(stream));
      return;
    }
    if (expected_.count(id) == 0) {
      on_stream(absl::UnavailableError("the worker of this transfer was lost"));
      return;
    }
    claims_[id] = std::move(on_stream);
  }
  void Cancel(uint64_t id) {
    expected_.erase(id);
    claims_.erase(id);
    auto it = streams_.find(id);
    if (it == streams_.end()) return;
    std::shared_ptr<Stream> stream = std::move(it->second);
    streams_.erase(it);
    stream->Stop(absl::NotFoundError(absl::StrCat("transfer ", id, " is not expected any more")));
  }
  void LoseWorker(const std::string& worker) {
    std::vector<OnStream> lost;
    for (auto it = expected_.begin(); it != expected_.end();) {
      if (it->second != worker) {
        ++it;
        continue;
      }
      auto claim = claims_.find(it->first);
      if (claim != claims_.end()) {
        lost.push_back(std::move(claim->second));
        claims_.erase(claim);
      }
      streams_.erase(it->first);
      it = expected_.erase(it);
    }
    for (OnStream& on_stream : lost) {
      on_stream(absl::UnavailableError(absl::StrCat("worker ", worker, " was lost before its transfer")));
    }
  }

 private:
  static constexpr size_t kMaxExpected = 65536;
  std::map<uint64_t, std::string> expected_;  // id -> worker
  std::map<uint64_t, std::shared_ptr<Stream>> streams_;
  std::map<uint64_t, OnStream> claims_;
};

}  // namespace tp::server
