#include "worker/collective/in_process/in_process_backend.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "worker/collective/transport_communicator.h"

namespace tp::worker {
namespace {

// std::mutex, not absl's: thread sanitizer sees it also where Abseil is not built for it.
using Lock = std::unique_lock<std::mutex>;

// Until `wake` is notified or `deadline` has passed; false if it has.
bool WaitUntil(std::condition_variable& wake, Lock& lock, absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) return false;
  wake.wait_for(lock, absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
  return true;
}

enum class Presence { kAbsent, kPresent, kLeft, kBroken };

// One communicator's ranks and the messages between them. Thread-safe: all fields are guarded by `mutex`.
struct Room {
  explicit Room(int ranks)
      : size(ranks), wake(ranks), presence(ranks, Presence::kAbsent), messages(static_cast<size_t>(ranks) * ranks) {}
  const int size;
  std::mutex mutex;
  std::vector<std::condition_variable> wake;  // one a rank
  std::vector<Presence> presence;
  std::vector<std::map<uint64_t, std::string>> messages;  // [from * size + to]: number of the message -> bytes

  void WakeAll() {
    for (std::condition_variable& w : wake) w.notify_all();
  }
};

struct InProcessPending : Pending {
  int peer = 0;
  uint64_t number = 0;
  void* data = nullptr;  // nullptr: a send, which is done when posted
  int64_t bytes = 0;
};

// A send copies its bytes into the room, so it never blocks.
class InProcessTransport : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Room> room, int rank)
      : room_(std::move(room)), rank_(rank), sent_(room_->size, 0), received_(room_->size, 0) {}

  // A rank that leaves in order lets the others go on with what it has sent; one that had failed ends them all.
  ~InProcessTransport() override {
    const Lock lock(room_->mutex);
    room_->presence[rank_] = aborted_ || failed_ ? Presence::kBroken : Presence::kLeft;
    room_->WakeAll();
  }

  int rank() const override { return rank_; }
  int size() const override { return room_->size; }

  absl::StatusOr<std::unique_ptr<Pending>> Send(int peer, const void* data, int64_t bytes) override {
    const Lock lock(room_->mutex);
    if (aborted_) return absl::AbortedError(reason_);
    if (room_->presence[peer] != Presence::kPresent) return Gone(peer);
    room_->messages[rank_ * size() + peer][sent_[peer]++].assign(static_cast<const char*>(data),
                                                                 static_cast<size_t>(bytes));
    room_->wake[peer].notify_all();
    bytes_sent_ += bytes;
    return std::make_unique<InProcessPending>();
  }

  absl::StatusOr<std::unique_ptr<Pending>> Receive(int peer, void* data, int64_t bytes) override {
    auto pending = std::make_unique<InProcessPending>();
    pending->peer = peer;
    pending->number = received_[peer]++;
    pending->data = data;
    pending->bytes = bytes;
    return pending;
  }

  absl::Status Wait(absl::Span<const std::unique_ptr<Pending>> batch, absl::Time deadline) override {
    std::vector<const InProcessPending*> open;
    for (const auto& pending : batch) {
      const auto* receive = static_cast<const InProcessPending*>(pending.get());
      if (receive->data != nullptr) open.push_back(receive);
    }
    Lock lock(room_->mutex);
    while (true) {
      if (aborted_) return absl::AbortedError(reason_);
      absl::Status error;
      std::erase_if(open, [&](const InProcessPending* receive) { return Take(*receive, &error); });
      if (!error.ok()) return error;
      if (open.empty()) return absl::OkStatus();
      for (int r = 0; r < size(); ++r) {
        if (room_->presence[r] == Presence::kBroken) return Gone(r);
      }
      for (const InProcessPending* receive : open) {
        if (room_->presence[receive->peer] != Presence::kPresent) return Gone(receive->peer);
      }
      if (!WaitUntil(room_->wake[rank_], lock, deadline)) {
        failed_ = true;
        return absl::DeadlineExceededError(absl::StrCat("rank ", rank_, " got nothing from rank ", open[0]->peer));
      }
    }
  }

  absl::Status CheckPeers(absl::Span<const int> group) override {
    const Lock lock(room_->mutex);
    for (int r = 0; r < size(); ++r) {
      if (room_->presence[r] == Presence::kBroken) return Gone(r);
    }
    for (const int r : group) {
      if (room_->presence[r] != Presence::kPresent) return Gone(r);
    }
    return absl::OkStatus();
  }

  void Abort(absl::string_view reason) override {
    const Lock lock(room_->mutex);
    if (!aborted_) reason_ = std::string(reason);
    aborted_ = true;
    room_->wake[rank_].notify_all();
  }

  WireCounters wire() const override { return {bytes_sent_, bytes_received_}; }

 private:
  absl::Status Gone(int peer) {
    failed_ = true;
    return absl::UnavailableError(absl::StrCat("rank ", peer, " is gone"));
  }

  // Copies the message out if it is there.
  bool Take(const InProcessPending& receive, absl::Status* error) {
    auto& queue = room_->messages[receive.peer * size() + rank_];
    const auto it = queue.find(receive.number);
    if (it == queue.end()) return false;
    if (static_cast<int64_t>(it->second.size()) != receive.bytes) {
      failed_ = true;
      *error = absl::InternalError(absl::StrCat("rank ", rank_, " expected ", receive.bytes, " bytes from rank ",
                                                receive.peer, ", got ", it->second.size()));
    } else {
      std::memcpy(receive.data, it->second.data(), it->second.size());
      bytes_received_ += receive.bytes;
    }
    queue.erase(it);
    return true;
  }

  const std::shared_ptr<Room> room_;
  const int rank_;
  bool aborted_ = false;  // guarded by room_->mutex, as are failed_ and reason_
  bool failed_ = false;
  std::string reason_;
  std::vector<uint64_t> sent_, received_;  // messages so far, by peer; the owner's
  std::atomic<int64_t> bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace

class InProcessHub {
 public:
  std::string NewAddress() { return absl::StrCat("in-process:", ++last_id_); }

  std::shared_ptr<Room> RoomOf(const std::vector<std::string>& addresses) {
    const Lock lock(mutex_);
    std::weak_ptr<Room>& entry = rooms_[absl::StrJoin(addresses, " ")];
    std::shared_ptr<Room> room = entry.lock();
    if (room == nullptr) {
      room = std::make_shared<Room>(static_cast<int>(addresses.size()));
      entry = room;
    }
    return room;
  }

 private:
  std::atomic<int64_t> last_id_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Room>> rooms_;  // by the addresses; guarded by mutex_
};

namespace {

class InProcessConnector : public Connector {
 public:
  InProcessConnector(std::shared_ptr<InProcessHub> hub, int rank, int size, const CollectiveMemory& memory)
      : hub_(std::move(hub)), address_(hub_->NewAddress()), rank_(rank), size_(size), memory_(memory) {}

  std::string Address() const override { return address_; }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::vector<std::string>& addresses,
                                                        absl::Time deadline) override {
    if (static_cast<int>(addresses.size()) != size_ || addresses[rank_] != address_) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " of ", size_, " is at ", address_, ", not in [",
                                                     absl::StrJoin(addresses, ", "), "]"));
    }
    const std::shared_ptr<Room> room = hub_->RoomOf(addresses);
    {
      const Lock own(mutex_);
      room_ = room;
    }
    Lock lock(room->mutex);
    room->presence[rank_] = Presence::kPresent;
    room->WakeAll();
    while (true) {
      std::string missing;
      for (int r = 0; r < size_; ++r) {
        if (room->presence[r] != Presence::kAbsent) continue;
        absl::StrAppend(&missing, missing.empty() ? "" : ", ", "rank ", r, " (", addresses[r], ")");
      }
      if (missing.empty()) break;
      absl::Status error;
      if (aborted_) {
        error = absl::AbortedError("connecting was aborted");
      } else if (!WaitUntil(room->wake[rank_], lock, deadline)) {
        error = absl::DeadlineExceededError(absl::StrCat("rank ", rank_, " (", address_, ") did not reach ", missing));
      }
      if (!error.ok()) {
        room->presence[rank_] = Presence::kAbsent;
        return error;
      }
    }
    lock.unlock();
    return CreateTransportCommunicator(std::make_unique<InProcessTransport>(room, rank_), memory_);
  }

  void Abort() override {
    aborted_ = true;
    const Lock own(mutex_);
    if (room_ == nullptr) return;
    const Lock lock(room_->mutex);
    room_->WakeAll();
  }

 private:
  const std::shared_ptr<InProcessHub> hub_;
  const std::string address_;
  const int rank_;
  const int size_;
  const CollectiveMemory memory_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::shared_ptr<Room> room_;  // guarded by mutex_
};

class InProcessBackend : public CollectiveBackend {
 public:
  InProcessBackend(std::shared_ptr<InProcessHub> hub, const CollectiveMemory& memory)
      : hub_(std::move(hub)), memory_(memory) {}
  std::string Describe() const override { return "in_process"; }
  absl::StatusOr<std::unique_ptr<Connector>> Listen(int rank, int size) override {
    if (rank < 0 || rank >= size) return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", size));
    return std::make_unique<InProcessConnector>(hub_, rank, size, memory_);
  }

 private:
  const std::shared_ptr<InProcessHub> hub_;
  const CollectiveMemory memory_;
};

}  // namespace

std::shared_ptr<InProcessHub> CreateInProcessHub() { return std::make_shared<InProcessHub>(); }

std::unique_ptr<CollectiveBackend> CreateInProcessBackend(std::shared_ptr<InProcessHub> hub,
                                                          const CollectiveMemory& memory) {
  return std::make_unique<InProcessBackend>(std::move(hub), memory);
}

}  // namespace tp::worker
