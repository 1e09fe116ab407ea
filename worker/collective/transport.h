// Transport: point-to-point messages between the ranks of one communicator; what a backend without collectives of its
// own implements. Exchange posts a batch and waits for it. Example, both ranks of a pair at once:
//   Exchange exchange(transport, deadline);
//   exchange.Receive(peer, in, bytes);  exchange.Send(peer, out, bytes);
//   TP_RETURN_IF_ERROR(exchange.Finish());
// Messages from one rank to another match in the order in which they are posted; both sides know the length. A message
// of 0 bytes does not exist: neither side posts it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/collective/communicator.h"

namespace tp::worker {

// A posted send or receive. Destroying it before it is done gives its memory back at once; after that the transport can
// only be aborted or destroyed.
class Pending {
 public:
  virtual ~Pending() = default;
};

// Owned by the thread that issues collectives; only Abort() and wire() are thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // `bytes` > 0, `peer` another rank. The memory stays untouched by the caller until Wait() returned. UNAVAILABLE
  // naming the peer where it is gone; ABORTED after Abort().
  virtual absl::StatusOr<std::unique_ptr<Pending>> Send(int peer, const void* data, int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Pending>> Receive(int peer, void* data, int64_t bytes) = 0;
  // Until all are done. DEADLINE_EXCEEDED, ABORTED after Abort(), UNAVAILABLE naming a rank that is gone.
  virtual absl::Status Wait(absl::Span<const std::unique_ptr<Pending>> batch, absl::Time deadline) = 0;
  // As Communicator::CheckPeers.
  virtual absl::Status CheckPeers(absl::Span<const int> group) = 0;
  virtual void Abort(absl::string_view reason) = 0;
  virtual WireCounters wire() const = 0;
};

// One batch of messages. Keeps the first error; Finish() returns it.
class Exchange {
 public:
  Exchange(Transport& transport, absl::Time deadline) : transport_(transport), deadline_(deadline) {}
  void Send(int peer, const void* data, int64_t bytes) {
    if (bytes > 0 && status_.ok()) Keep(transport_.Send(peer, data, bytes));
  }
  void Receive(int peer, void* data, int64_t bytes) {
    if (bytes > 0 && status_.ok()) Keep(transport_.Receive(peer, data, bytes));
  }
  // Waits for all that was posted since the last Finish().
  absl::Status Finish() {
    if (status_.ok()) status_ = transport_.Wait(pending_, deadline_);
    pending_.clear();
    return status_;
  }

 private:
  void Keep(absl::StatusOr<std::unique_ptr<Pending>> pending) {
    if (pending.ok()) {
      pending_.push_back(*std::move(pending));
    } else {
      status_ = pending.status();
    }
  }

  Transport& transport_;
  const absl::Time deadline_;
  absl::Status status_;
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace tp::worker
