#include "worker/collective/gloo/gloo_transport.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"

namespace tp::worker {

using gloo::transport::UnboundBuffer;
using Lock = std::unique_lock<std::mutex>;

namespace {

constexpr std::chrono::milliseconds kSlice(20);      // how late a deadline, a death or a leave may be seen
constexpr int kIdleTicks = 100;                      // after which the ticker sleeps until the next wait
constexpr std::chrono::hours kNever(24);             // a timeout of Gloo's would close all connections
constexpr std::chrono::milliseconds kFarewell(200);  // for all peers together
constexpr uint64_t kFarewellSlot = ~uint64_t{0};
constexpr uint8_t kFarewellByte = 0x5a;

}  // namespace

struct GlooPending : Pending {
  std::unique_ptr<UnboundBuffer> buffer;
  bool send = false;
  int peer = 0;
  int64_t bytes = 0;
  bool done = false;
  int waits_since_left = 0;
};

GlooTransport::GlooTransport(std::shared_ptr<gloo::transport::Device> device,
                             std::shared_ptr<gloo::transport::Context> context)
    : device_(std::move(device)),
      context_(std::move(context)),
      rank_(context_->rank),
      size_(context_->size),
      peers_(static_cast<size_t>(size_)),
      ticker_([this] { Tick(); }) {}

GlooTransport::~GlooTransport() {
  {
    const Lock lock(mutex_);
    stop_ = true;
    if (aborted_) failed_ = true;
    ticker_wake_.notify_all();
  }
  ticker_.join();
  if (!failed_) SayFarewell();
  try {
    peers_.clear();
    context_.reset();
    device_.reset();
  } catch (const std::exception&) {
    // The connections are closed all the same.
  }
}

absl::Status GlooTransport::Start() {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    try {
      peers_[r].farewell = context_->createUnboundBuffer(&peers_[r].farewell_byte, 1);
      peers_[r].farewell->recv(r, kFarewellSlot);
    } catch (const std::exception& e) {
      return Gone(r, e.what());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Pending>> GlooTransport::Send(int peer, const void* data, int64_t bytes) {
  return Post(true, peer, const_cast<void*>(data), bytes);
}

absl::StatusOr<std::unique_ptr<Pending>> GlooTransport::Receive(int peer, void* data, int64_t bytes) {
  return Post(false, peer, data, bytes);
}

absl::StatusOr<std::unique_ptr<Pending>> GlooTransport::Post(bool send, int peer, void* data, int64_t bytes) {
  {
    const Lock lock(mutex_);
    if (aborted_) return absl::AbortedError(reason_);
  }
  auto pending = std::make_unique<GlooPending>();
  pending->send = send;
  pending->peer = peer;
  pending->bytes = bytes;
  uint32_t& number = send ? peers_[peer].sent : peers_[peer].received;
  const uint64_t slot = (uint64_t{number++} << 32) | (static_cast<uint64_t>(bytes) & 0xffffffffu);
  try {
    pending->buffer = context_->createUnboundBuffer(data, static_cast<size_t>(bytes));
    if (send) {
      pending->buffer->send(peer, slot);
      bytes_sent_ += bytes;
    } else {
      pending->buffer->recv(peer, slot);
    }
  } catch (const std::exception& e) {
    TP_RETURN_IF_ERROR(CheckPeers());
    return Gone(peer, e.what());
  }
  return pending;
}

absl::StatusOr<bool> GlooTransport::WaitOnce(GlooPending& pending) {
  {
    const Lock lock(mutex_);
    if (aborted_) {
      failed_ = true;
      return absl::AbortedError(reason_);
    }
    waiting_ = &pending;
    ++waits_;
    if (ticker_asleep_) ticker_wake_.notify_all();
  }
  std::string error;
  bool threw = false;
  try {
    pending.done = pending.send ? pending.buffer->waitSend(nullptr, kNever) : pending.buffer->waitRecv(nullptr, kNever);
  } catch (const std::exception& e) {
    threw = true;
    error = e.what();
  }
  {
    const Lock lock(mutex_);
    waiting_ = nullptr;
    if (!pending.done && aborted_) {
      failed_ = true;
      return absl::AbortedError(reason_);
    }
  }
  if (threw) {
    TP_RETURN_IF_ERROR(CheckPeers());
    return Gone(pending.peer, error);
  }
  if (pending.done && !pending.send) bytes_received_ += pending.bytes;
  return pending.done;
}

absl::Status GlooTransport::Wait(absl::Span<const std::unique_ptr<Pending>> batch, absl::Time deadline) {
  std::vector<GlooPending*> open;
  for (const auto& pending : batch) open.push_back(static_cast<GlooPending*>(pending.get()));
  size_t next = 0;
  while (next < open.size()) {
    if (open[next]->done) {
      ++next;
      continue;
    }
    // What can't become done any more is looked at first.
    GlooPending* pending = open[next];
    for (size_t i = next; i < open.size(); ++i) {
      if (!open[i]->done && peers_[open[i]->peer].state == PeerState::kLeft) pending = open[i];
    }
    TP_ASSIGN_OR_RETURN(const bool done, WaitOnce(*pending));
    if (done) continue;
    // An interrupt hides a completion from one wait only: twice interrupted after the peer's farewell, which comes
    // after all of its messages, means that it never will be done.
    if (peers_[pending->peer].state == PeerState::kLeft && ++pending->waits_since_left == 2) {
      return Gone(pending->peer, "it left");
    }
    TP_RETURN_IF_ERROR(CheckPeers());
    if (absl::Now() >= deadline) {
      failed_ = true;
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank_, " waited for rank ", pending->peer, " to ",
                                                      pending->send ? "receive " : "send ", pending->bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::CheckPeers() {
  for (int r = 0; r < size_; ++r) {
    Peer& peer = peers_[r];
    if (r == rank_ || peer.state == PeerState::kLeft || peer.farewell == nullptr) continue;
    if (peer.farewell_byte.load() == kFarewellByte) {
      peer.state = PeerState::kLeft;
      continue;
    }
    try {
      peer.farewell->abortWaitRecv();  // so that the wait returns at once, unless the connection is broken
      peer.farewell->waitRecv(nullptr, kNever);
    } catch (const std::exception& e) {
      peer.state = PeerState::kDead;
      return Gone(r, e.what());
    }
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::CheckPeers(absl::Span<const int> group) {
  TP_RETURN_IF_ERROR(CheckPeers());
  for (const int r : group) {
    if (r != rank_ && peers_[r].state == PeerState::kLeft) return Gone(r, "it left");
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::Gone(int peer, absl::string_view detail) {
  failed_ = true;
  return absl::UnavailableError(absl::StrCat("rank ", peer, " is gone: ", detail));
}

void GlooTransport::Abort(absl::string_view reason) {
  const Lock lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  reason_ = std::string(reason);
  Interrupt();
}

// Sticky: where the wait has not begun yet, it returns at once.
void GlooTransport::Interrupt() {
  if (waiting_ == nullptr) return;
  if (waiting_->send) {
    waiting_->buffer->abortWaitSend();
  } else {
    waiting_->buffer->abortWaitRecv();
  }
}

void GlooTransport::Tick() {
  Lock lock(mutex_);
  uint64_t seen = 0;
  int idle = 0;
  while (!stop_) {
    idle = waits_ == seen && waiting_ == nullptr ? idle + 1 : 0;
    if (waits_ == seen) Interrupt();  // the same wait as a slice ago
    seen = waits_;
    if (idle < kIdleTicks) {
      ticker_wake_.wait_for(lock, kSlice);
      continue;
    }
    ticker_asleep_ = true;
    while (!stop_ && waits_ == seen) ticker_wake_.wait(lock);
    ticker_asleep_ = false;
  }
}

void GlooTransport::SayFarewell() {
  const absl::Time deadline = absl::Now() + absl::FromChrono(kFarewell);
  std::vector<std::unique_ptr<UnboundBuffer>> sends;
  uint8_t byte = kFarewellByte;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    try {
      auto buffer = context_->createUnboundBuffer(&byte, 1);
      buffer->send(r, kFarewellSlot);
      sends.push_back(std::move(buffer));
    } catch (const std::exception&) {
      // That peer is gone already.
    }
  }
  for (const auto& send : sends) {
    const auto left = absl::ToChronoMilliseconds(std::max(absl::ZeroDuration(), deadline - absl::Now()));
    try {
      send->waitSend(nullptr, left);
    } catch (const std::exception&) {
      // Gone, or stuck; the first timeout closes all connections.
    }
  }
}

}  // namespace tp::worker
