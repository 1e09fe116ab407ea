// Transport over Gloo's TCP pairs. Gloo's own collectives are not used: nothing wakes a rank that is blocked in one.
// Facts about Debian's Gloo (2022-05-18) that shape this file:
// - A wait that times out closes all pairs, and an error in mid-message is not signalled to the buffer. So a wait never
//   times out: a ticker thread interrupts one that lasts longer than a slice, and the waiting thread looks at the
//   deadline, at Abort() and at all peers.
// - A message longer than the posted receive ends the process. So a slot holds the length of the message: other lengths
//   never meet, and a mismatch that the headers did not show ends with the deadline.
// - Each peer has a standing receive of one byte, the farewell. A peer whose connection broke without it has died:
// every
//   call then fails naming it, also calls of groups that it is not in. After it, only calls that need the peer fail.
// Example: `GlooTransport transport(device, context);` with all pairs connected.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "worker/collective/transport.h"

namespace gloo::transport {
class Context;
class Device;
class UnboundBuffer;
}  // namespace gloo::transport

namespace tp::worker {

struct GlooPending;

// As Transport says.
class GlooTransport : public Transport {
 public:
  // Takes over a context whose pairs are connected. Throws nothing: Start() reports what fails.
  GlooTransport(std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<gloo::transport::Context> context);
  // Says farewell to the peers unless a call failed, closes the connections and joins both threads; takes no longer
  // than a second.
  ~GlooTransport() override;

  // Posts the farewell receives. UNAVAILABLE naming a peer.
  absl::Status Start();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::StatusOr<std::unique_ptr<Pending>> Send(int peer, const void* data, int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Pending>> Receive(int peer, void* data, int64_t bytes) override;
  absl::Status Wait(absl::Span<const std::unique_ptr<Pending>> batch, absl::Time deadline) override;
  absl::Status CheckPeers(absl::Span<const int> group) override;
  void Abort(absl::string_view reason) override;
  WireCounters wire() const override { return {bytes_sent_, bytes_received_}; }

 private:
  enum class PeerState { kConnected, kLeft, kDead };
  struct Peer {
    std::unique_ptr<gloo::transport::UnboundBuffer> farewell;
    std::atomic<uint8_t> farewell_byte = 0;  // written by Gloo's thread
    PeerState state = PeerState::kConnected;
    uint32_t sent = 0, received = 0;  // messages
  };

  absl::StatusOr<std::unique_ptr<Pending>> Post(bool send, int peer, void* data, int64_t bytes);
  // One wait for one operation: true when done, false when interrupted.
  absl::StatusOr<bool> WaitOnce(GlooPending& pending);
  // Looks at every peer's farewell; the dead one's status, else OK.
  absl::Status CheckPeers();
  absl::Status Gone(int peer, absl::string_view detail);
  void Interrupt();  // wakes the waiting thread; mutex_ is held
  void Tick();
  void SayFarewell();

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  const int rank_;
  const int size_;
  std::vector<Peer> peers_;
  bool failed_ = false;  // the owner's, as peers_

  std::mutex mutex_;
  std::condition_variable ticker_wake_;
  // Guarded by mutex_:
  GlooPending* waiting_ = nullptr;
  uint64_t waits_ = 0;
  bool ticker_asleep_ = false;
  bool stop_ = false;
  bool aborted_ = false;
  std::string reason_;

  std::atomic<int64_t> bytes_sent_ = 0, bytes_received_ = 0;
  std::thread ticker_;
};

}  // namespace tp::worker
