#include "worker/collective/gloo/gloo_backend.h"

#include <dlfcn.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "worker/collective/gloo/gloo_address.h"
#include "worker/collective/gloo/gloo_transport.h"
#include "worker/collective/transport_communicator.h"

// In place of libc's. Gloo's thread asks every connection that it has accepted for its peer's name, and ends the
// process where the peer has reset it meanwhile (a scanner, a rank that gave up). To Gloo such a peer's name is all
// zeros: the read that follows fails, and that is told to whoever waits.
extern "C" int getpeername(int fd, sockaddr* __restrict address, socklen_t* __restrict length) noexcept {
  if (syscall(SYS_getpeername, fd, address, length) == 0) return 0;
  Dl_info caller;
  if (errno != ENOTCONN || dladdr(__builtin_return_address(0), &caller) == 0 || caller.dli_fname == nullptr ||
      std::strstr(caller.dli_fname, "libgloo") == nullptr) {
    return -1;  // errno is the call's: dladdr sets none
  }
  std::memset(address, 0, *length);
  return 0;
}

namespace tp::worker {
namespace {

using Lock = std::unique_lock<std::mutex>;
namespace tcp = gloo::transport::tcp;

constexpr std::chrono::hours kNever(10);  // Gloo's own timeouts: deadlines are ours

// The first message on each connection, so that a stray or stale peer is found out before anything else is sent.
struct Hello {
  uint64_t magic = 0x74702d676c6f6f31;
  uint32_t rank = 0;
  uint32_t size = 0;
  uint64_t addresses = 0;  // digest of all of them
};

uint64_t DigestOf(const std::vector<std::string>& addresses) {
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a
  for (const std::string& address : addresses) {
    for (char c : address + "\n") digest = (digest ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return digest;
}

// One peer's connection in the making.
struct Attempt {
  bool finished = false;
  std::string error;
  std::thread thread;
};

class GlooConnector : public Connector {
 public:
  GlooConnector(int rank, int size) : rank_(rank), size_(size) {}
  ~GlooConnector() override {
    try {
      context_.reset();
      device_.reset();
    } catch (const std::exception&) {
      // The sockets are closed all the same.
    }
  }

  // Opens the listeners.
  absl::Status Open(const tcp::attr& attributes) {
    std::vector<sockaddr_storage> listeners;
    try {
      device_ = tcp::CreateDevice(attributes);
      context_ = device_->createContext(rank_, size_);
      context_->setTimeout(kNever);
      for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        listeners.push_back(tcp::Address(context_->createPair(r)->address().bytes()).getSockaddr());
      }
    } catch (const std::exception& e) {
      return absl::UnavailableError(absl::StrCat("can't listen for ", size_ - 1, " peers: ", e.what()));
    }
    if (listeners.empty()) {
      address_ = absl::StrCat(attributes.hostname, ":0");
      return absl::OkStatus();
    }
    TP_ASSIGN_OR_RETURN(address_, FormatGlooAddress(listeners));
    return absl::OkStatus();
  }

  std::string Address() const override { return address_; }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::vector<std::string>& addresses,
                                                        absl::Time deadline) override {
    if (static_cast<int>(addresses.size()) != size_ || addresses[rank_] != address_) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " of ", size_, " listens at ", address_,
                                                     ", which the ", addresses.size(), " addresses do not say"));
    }
    if (context_ == nullptr) return absl::FailedPreconditionError("connected already");
    TP_RETURN_IF_ERROR(ConnectPairs(addresses, deadline));
    auto transport = std::make_unique<GlooTransport>(std::move(device_), std::move(context_));
    {
      const Lock lock(mutex_);
      transport_ = transport.get();
      if (aborted_) transport->Abort("connecting was aborted");
    }
    absl::Status status = transport->Start();
    if (status.ok()) status = Greet(*transport, addresses, deadline);
    {
      const Lock lock(mutex_);
      transport_ = nullptr;
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("rank ", rank_, " at ", address_, " connecting"));
    return CreateTransportCommunicator(std::move(transport));
  }

  void Abort() override {
    const Lock lock(mutex_);
    aborted_ = true;
    if (transport_ != nullptr) transport_->Abort("connecting was aborted");
    changed_.notify_all();
  }

 private:
  // The address of one peer that this rank connects to.
  absl::StatusOr<sockaddr_storage> PeerAddress(const std::vector<std::string>& addresses, int peer) const {
    return ParseGlooAddress(addresses[peer], size_ - 1, PortIndex(peer, rank_));
  }

  absl::Status ConnectPairs(const std::vector<std::string>& addresses, absl::Time deadline) {
    std::vector<sockaddr_storage> peers(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      TP_ASSIGN_OR_RETURN(peers[r], PeerAddress(addresses, r));
    }
    // Pair::connect blocks, and nothing but the close of its pair ends it: each has a thread until then.
    std::vector<Attempt> attempts(static_cast<size_t>(size_));
    attempts[rank_].finished = true;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      attempts[r].thread = std::thread([this, r, &attempts, &peers] {
        std::string error;
        try {
          context_->getPair(r)->connect(tcp::Address(peers[r]).bytes());
        } catch (const std::exception& e) {
          error = absl::StrCat("failed: ", e.what());
        }
        const Lock lock(mutex_);
        attempts[r].finished = true;
        attempts[r].error = error;
        changed_.notify_all();
      });
    }

    auto all_finished = [&attempts] {
      for (const Attempt& attempt : attempts) {
        if (!attempt.finished) return false;
      }
      return true;
    };
    auto failed = [&attempts] {
      for (const Attempt& attempt : attempts) {
        if (!attempt.error.empty()) return true;
      }
      return false;
    };
    absl::Status status;
    {
      Lock lock(mutex_);
      while (status.ok() && !all_finished()) {
        const absl::Duration left = deadline - absl::Now();
        if (aborted_) {
          status = absl::AbortedError("connecting was aborted");
        } else if (failed() || left <= absl::ZeroDuration()) {
          break;
        } else {
          changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
        }
      }
      if (status.ok() && (failed() || !all_finished())) status = Unreached(addresses, attempts, failed());
    }
    Lock lock(mutex_);
    while (!all_finished()) {  // a thread that had not begun yet may open its pair again
      lock.unlock();
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) ClosePair(r);
      }
      lock.lock();
      if (!all_finished()) changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
    lock.unlock();
    for (Attempt& attempt : attempts) {
      if (attempt.thread.joinable()) attempt.thread.join();
    }
    return status;
  }

  absl::Status Unreached(const std::vector<std::string>& addresses, const std::vector<Attempt>& attempts,
                         bool refused) const {
    std::string text;
    for (int r = 0; r < size_; ++r) {
      const Attempt& attempt = attempts[r];
      if (refused ? attempt.error.empty() : attempt.finished) continue;
      const absl::StatusOr<sockaddr_storage> peer = PeerAddress(addresses, r);
      absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", r, " (", peer.ok() ? SocketText(*peer) : addresses[r],
                      attempt.error.empty() ? "" : " ", attempt.error, ")");
    }
    text = absl::StrCat("rank ", rank_, " at ", address_, " did not reach ", text);
    return refused ? absl::UnavailableError(text) : absl::DeadlineExceededError(text);
  }

  void ClosePair(int peer) {
    try {
      context_->getPair(peer)->close();
    } catch (const std::exception&) {
      // Closed all the same.
    }
  }

  absl::Status Greet(GlooTransport& transport, const std::vector<std::string>& addresses, absl::Time deadline) const {
    Hello mine;
    mine.rank = static_cast<uint32_t>(rank_);
    mine.size = static_cast<uint32_t>(size_);
    mine.addresses = DigestOf(addresses);
    std::vector<Hello> theirs(static_cast<size_t>(size_));
    Exchange exchange(transport, deadline);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) exchange.Receive(r, &theirs[r], sizeof(Hello));
    }
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) exchange.Send(r, &mine, sizeof(Hello));
    }
    TP_RETURN_IF_ERROR(exchange.Finish());
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const Hello& hello = theirs[r];
      if (hello.magic == mine.magic && hello.rank == static_cast<uint32_t>(r) && hello.size == mine.size &&
          hello.addresses == mine.addresses) {
        continue;
      }
      return absl::UnavailableError(absl::StrCat("the peer at ", addresses[r], " is not rank ", r, " of this group"));
    }
    return absl::OkStatus();
  }

  const int rank_;
  const int size_;
  std::string address_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, as are the attempts of a Connect():
  bool aborted_ = false;
  GlooTransport* transport_ = nullptr;  // while it greets
};

class GlooBackend : public CollectiveBackend {
 public:
  explicit GlooBackend(tcp::attr attributes) : attributes_(std::move(attributes)) {}

  std::string Describe() const override { return "gloo"; }
  absl::StatusOr<std::unique_ptr<Connector>> Listen(int rank, int size) override {
    if (rank < 0 || rank >= size) return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", size));
    auto connector = std::make_unique<GlooConnector>(rank, size);
    TP_RETURN_IF_ERROR(connector->Open(attributes_));
    return connector;
  }

 private:
  const tcp::attr attributes_;
};

void IgnoreBrokenPipes() {
  struct sigaction action;
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveBackend>> CreateGlooBackend(const std::string& host) {
  TP_ASSIGN_OR_RETURN(const sockaddr_storage address, ResolveLocalHost(host));
  tcp::attr attributes;
  attributes.hostname = HostText(address);
  IgnoreBrokenPipes();
  return std::make_unique<GlooBackend>(attributes);
}

}  // namespace tp::worker
