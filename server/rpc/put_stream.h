// The bytes of a put on their way from the client to the ranks: order and checksums of what comes, and what each rank
// gets of it. Example:
//   PutStream stream(started, locals);
//   TP_RETURN_IF_ERROR(stream.Accept(std::move(chunk)));
//   for (size_t target = 0; target < stream.targets(); ++target) Send(target, stream.PieceFor(target));
// No gRPC. Accept and the rest are called in turn; PieceFor of different targets may run at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/events.h"
#include "server/rpc/block_cursor.h"
#include "tp/v1/tensor.pb.h"

namespace tp::server {

class PutStream {
 public:
  // `local_shapes`: of the request's locals; empty for a global tensor.
  PutStream(const PutStarted& started, std::vector<Shape> local_shapes);

  size_t targets() const { return targets_.size(); }
  // The next chunk of the client. DATA_LOSS for its checksum, RESOURCE_EXHAUSTED for its size, INVALID_ARGUMENT for one
  // that is out of order or past the end, and for equal copies whose blocks differ, naming both ranks.
  absl::Status Accept(v1::Chunk chunk);
  // What the target gets of the last chunk, to be asked once: without data where it gets nothing.
  v1::Chunk PieceFor(size_t target);
  // All bytes of the target were accepted.
  bool Complete(size_t target) const { return targets_[target].accepted == targets_[target].size; }
  bool done() const { return current_ == arrays_.size(); }
  // "got 3 of 8 bytes of block 1".
  std::string Missing() const;

 private:
  struct Target {
    int rank = 0, copy_of = 0, local = -1;
    uint64_t size = 0;
    uint64_t accepted = 0, sent = 0;
    std::optional<BlockCursor> cursor;  // of a global tensor
    uint32_t crc32 = 0;                 // of a local block, so far
  };
  struct Array {
    uint64_t size = 0;
    int target = -1;
  };
  void SkipFull();
  absl::Status CheckCopies(const Target& complete) const;
  std::vector<Target> targets_;
  std::vector<Array> arrays_;  // what the client sends: the tensor, or each local block
  size_t current_ = 0;
  uint64_t received_ = 0;  // of the current array
  size_t last_ = 0;        // array of the last chunk
  v1::Chunk chunk_;        // the last one
};

}  // namespace tp::server
