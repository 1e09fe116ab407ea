// Messages between the ranks of a fake communicator over unix sockets: a full mesh, and batches of messages that all
// move at once. Example:
//   Mesh mesh;
//   Fault fault = mesh.Connect("a3f9", rank, size, stop);
//   Batch batch(mesh, stop);  batch.Send(1, header, data, n);  batch.Receive(1, header, into, n);  fault =
//   batch.Finish();
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tp_fake {

// Why something failed; ncclSuccess: it did not.
struct Fault {
  ncclResult_t code = ncclSuccess;
  std::string text;
  explicit operator bool() const { return code != ncclSuccess; }
};

// Stands before every message: what the sender is doing. The receiver compares it with what it is doing itself.
struct MessageHeader {
  enum Kind : int32_t { kCollective = 1, kPoint, kSplit, kTaken };
  int32_t kind = kTaken;
  int32_t operation = 0, type = 0, reduction = 0, root = 0, reserved = 0;
  uint64_t count = 0, sequence = 0, bytes = 0;
  bool operator==(const MessageHeader&) const = default;
};
// "all_reduce of 10 float32, sum"
std::string TextOf(const MessageHeader& header);

// The connections of one rank to all others. Not thread-safe.
class Mesh {
 public:
  Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh() { Close(); }
  // Blocks until all ranks of `name` are there or `stop` is set. Two ranks of one number are ncclInvalidUsage, as are
  // other sizes.
  Fault Connect(const std::string& name, int rank, int size, const std::atomic<bool>& stop);
  void Close();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.size()); }

 private:
  friend class Batch;
  // A message's header that was read before anything was posted for it stays here.
  struct Link {
    int fd = -1;
    bool has_header = false;
    MessageHeader header;
    size_t got = 0;  // bytes of the header, then of the payload
  };
  int rank_ = 0;
  std::vector<Link> links_;
};

// Messages from one rank to another are matched in order. A message of kind kPoint is done when its receiver took it,
// as a send may wait for its receive.
class Batch {
 public:
  Batch(Mesh& mesh, const std::atomic<bool>& stop);
  void Send(int peer, const MessageHeader& header, const void* data, size_t bytes);
  void Receive(int peer, const MessageHeader& header, void* data, size_t bytes);
  // ncclInvalidUsage where a peer does something else, ncclRemoteError where it is gone; no fault after `stop`.
  Fault Finish();

 private:
  struct Out {
    MessageHeader header;
    const char* data;
    size_t bytes, sent;
  };
  struct In {
    MessageHeader header;
    char* data;
    size_t bytes;
  };
  struct Peer {
    std::deque<Out> out;
    std::deque<In> in;
    int untaken = 0;
    bool wants_to_read() const { return !in.empty() || untaken > 0; }
    bool done() const { return out.empty() && in.empty() && untaken == 0; }
  };
  Fault Write(int peer);
  Fault Read(int peer, bool* progress);
  Fault Gone(int peer) const;

  Mesh& mesh_;
  const std::atomic<bool>& stop_;
  std::vector<Peer> peers_;
};

}  // namespace tp_fake
