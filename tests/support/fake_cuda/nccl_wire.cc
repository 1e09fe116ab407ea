#include "nccl_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace tp_fake {
namespace {

constexpr int kSliceMs = 2;  // how late `stop` may be seen

struct Hello {
  int32_t rank = 0, size = 0;
};

socklen_t NameOf(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());  // abstract: no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}
std::string NameOfRank(const std::string& name, int rank) {
  return "tp-fake-nccl-" + name + "-" + std::to_string(rank);
}

Fault SystemFault(const char* what) { return {ncclSystemError, std::string(what) + ": " + std::strerror(errno)}; }

bool WaitFor(int fd, short events) {
  pollfd one{fd, events, 0};
  return poll(&one, 1, kSliceMs) > 0;
}

// `bytes` whole; false where the peer is gone or `stop` is set.
bool ReadAll(int fd, void* data, size_t bytes, const std::atomic<bool>& stop) {
  size_t got = 0;
  while (got < bytes && !stop) {
    if (!WaitFor(fd, POLLIN)) continue;
    const ssize_t n = read(fd, static_cast<char*>(data) + got, bytes - got);
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return got == bytes;
}

void MakeNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

const char* const kTypes[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                              "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
const char* const kReductions[] = {"sum", "prod", "max", "min", "avg"};
const char* const kOperations[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                   "reduce",     "send",           "split"};

}  // namespace

std::string TextOf(const MessageHeader& header) {
  if (header.kind == MessageHeader::kTaken) return "an answer";
  std::string text = kOperations[header.operation];
  if (header.kind == MessageHeader::kSplit) return text;
  text += " of " + std::to_string(header.count) + " " + kTypes[header.type];
  if (header.kind == MessageHeader::kPoint) return text;
  text += std::string(", op ") + kReductions[header.reduction] + ", root " + std::to_string(header.root);
  return text + ", number " + std::to_string(header.sequence);
}

Fault Mesh::Connect(const std::string& name, int rank, int size, const std::atomic<bool>& stop) {
  rank_ = rank;
  links_.resize(static_cast<size_t>(size));
  if (size == 1) return {};
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return SystemFault("socket");
  sockaddr_un address;
  socklen_t length = NameOf(NameOfRank(name, rank), &address);
  Fault fault;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    fault = {ncclInvalidUsage, "rank " + std::to_string(rank) + " is taken: two ranks have one number"};
  } else if (listen(listener, size) != 0) {
    fault = SystemFault("listen");
  }
  for (int peer = 0; peer < rank && !fault && !stop; ++peer) {
    length = NameOf(NameOfRank(name, peer), &address);
    int fd = -1;
    while (!stop) {
      fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0) break;
      if (fd >= 0) close(fd);
      fd = -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (fd < 0) break;
    const Hello hello{rank, size};
    if (write(fd, &hello, sizeof(hello)) != static_cast<ssize_t>(sizeof(hello))) fault = SystemFault("hello");
    links_[static_cast<size_t>(peer)].fd = fd;
  }
  for (int open = size - 1 - rank; open > 0 && !fault && !stop;) {
    if (!WaitFor(listener, POLLIN)) continue;
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    Hello hello;
    if (fd < 0 || !ReadAll(fd, &hello, sizeof(hello), stop) || hello.size != size || hello.rank <= rank ||
        hello.rank >= size || links_[static_cast<size_t>(hello.rank)].fd >= 0) {
      if (fd >= 0) close(fd);
      if (!stop) {
        fault = {ncclInvalidUsage, "rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.size) +
                                       " joins rank " + std::to_string(rank) + " of " + std::to_string(size)};
      }
      break;
    }
    links_[static_cast<size_t>(hello.rank)].fd = fd;
    --open;
  }
  close(listener);
  for (const Link& link : links_) {
    if (link.fd >= 0) MakeNonBlocking(link.fd);
  }
  return fault;
}

void Mesh::Close() {
  for (Link& link : links_) {
    if (link.fd >= 0) close(link.fd);
    link.fd = -1;
  }
}

Batch::Batch(Mesh& mesh, const std::atomic<bool>& stop)
    : mesh_(mesh), stop_(stop), peers_(static_cast<size_t>(mesh.size())) {}

void Batch::Send(int peer, const MessageHeader& header, const void* data, size_t bytes) {
  Peer& to = peers_[static_cast<size_t>(peer)];
  to.out.push_back({header, static_cast<const char*>(data), bytes, 0});
  to.out.back().header.bytes = bytes;
  if (header.kind == MessageHeader::kPoint) ++to.untaken;
}

void Batch::Receive(int peer, const MessageHeader& header, void* data, size_t bytes) {
  Peer& from = peers_[static_cast<size_t>(peer)];
  from.in.push_back({header, static_cast<char*>(data), bytes});
  from.in.back().header.bytes = bytes;
}

Fault Batch::Gone(int peer) const {
  return {ncclRemoteError, "the connection to rank " + std::to_string(peer) + " is closed"};
}

Fault Batch::Write(int peer) {
  Peer& to = peers_[static_cast<size_t>(peer)];
  const int fd = mesh_.links_[static_cast<size_t>(peer)].fd;
  while (!to.out.empty()) {
    Out& out = to.out.front();
    const size_t head = sizeof(MessageHeader);
    const bool in_head = out.sent < head;
    const char* from = in_head ? reinterpret_cast<const char*>(&out.header) + out.sent : out.data + (out.sent - head);
    const size_t left = in_head ? head - out.sent : head + out.bytes - out.sent;
    if (left > 0) {
      const ssize_t n = send(fd, from, left, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (n < 0) return Gone(peer);
      out.sent += static_cast<size_t>(n);
    }
    if (out.sent == head + out.bytes) to.out.pop_front();
  }
  return {};
}

Fault Batch::Read(int peer, bool* progress) {
  Peer& from = peers_[static_cast<size_t>(peer)];
  Mesh::Link& link = mesh_.links_[static_cast<size_t>(peer)];
  while (from.wants_to_read()) {
    if (!link.has_header) {
      const ssize_t n =
          read(link.fd, reinterpret_cast<char*>(&link.header) + link.got, sizeof(MessageHeader) - link.got);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (n <= 0) return Gone(peer);
      link.got += static_cast<size_t>(n);
      if (link.got < sizeof(MessageHeader)) continue;
      link.has_header = true;
      link.got = 0;
      *progress = true;
    }
    if (link.header.kind == MessageHeader::kTaken) {
      link.has_header = false;
      --from.untaken;
      continue;
    }
    if (from.in.empty()) return {};  // of a later batch; what this one waits for can't come before it is taken
    In& in = from.in.front();
    if (!(link.header == in.header)) {
      return {ncclInvalidUsage, "rank " + std::to_string(mesh_.rank()) + " does " + TextOf(in.header) + ", rank " +
                                    std::to_string(peer) + " does " + TextOf(link.header)};
    }
    if (link.got < in.bytes) {
      const ssize_t n = read(link.fd, in.data + link.got, in.bytes - link.got);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (n <= 0) return Gone(peer);
      link.got += static_cast<size_t>(n);
      *progress = true;
      if (link.got < in.bytes) continue;
    }
    link.has_header = false;
    link.got = 0;
    if (in.header.kind == MessageHeader::kPoint) from.out.push_back({MessageHeader{}, nullptr, 0, 0});
    from.in.pop_front();
  }
  return {};
}

Fault Batch::Finish() {
  while (!stop_) {
    std::vector<pollfd> polled;
    std::vector<int> peers;
    for (int p = 0; p < mesh_.size(); ++p) {
      const Peer& peer = peers_[static_cast<size_t>(p)];
      const Mesh::Link& link = mesh_.links_[static_cast<size_t>(p)];
      if (peer.done()) continue;
      // A message of a later batch is left where it is.
      const bool blocked = link.has_header && link.header.kind != MessageHeader::kTaken && peer.in.empty();
      short events = 0;
      if (!peer.out.empty()) events |= POLLOUT;
      if (peer.wants_to_read() && !blocked) events |= POLLIN;
      polled.push_back({link.fd, events, 0});
      peers.push_back(p);
    }
    if (polled.empty()) return {};
    poll(polled.data(), polled.size(), kSliceMs);
    for (size_t i = 0; i < peers.size(); ++i) {
      bool progress = false;
      if ((polled[i].revents & (POLLOUT | POLLERR)) != 0) {
        if (Fault fault = Write(peers[i])) return fault;
      }
      const Mesh::Link& link = mesh_.links_[static_cast<size_t>(peers[i])];
      if ((polled[i].revents & (POLLIN | POLLHUP)) != 0 || link.has_header) {
        if (Fault fault = Read(peers[i], &progress)) return fault;
        if (Fault fault = Write(peers[i])) return fault;
      }
    }
  }
  return {};
}

}  // namespace tp_fake
