#include "server/rpc/put_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/rpc/chunk.h"

namespace tp::server {

PutStream::PutStream(const PutStarted& started, std::vector<Shape> local_shapes) {
  const uint64_t item = static_cast<uint64_t>(ItemSize(started.dtype));
  if (local_shapes.empty()) {
    arrays_.push_back({static_cast<uint64_t>(ElementCount(started.shape)) * item, -1});
  }
  for (const Shape& shape : local_shapes) arrays_.push_back({static_cast<uint64_t>(ElementCount(shape)) * item, -1});
  for (const PutTarget& target : started.targets) {
    Target added;
    added.rank = target.rank;
    added.copy_of = target.copy_of;
    added.local = target.local;
    added.size = static_cast<uint64_t>(target.size_bytes);
    if (local_shapes.empty()) {
      added.cursor.emplace(started.shape, ItemSize(started.dtype), started.placements, started.mesh,
                           started.mesh.CoordinateOf(target.rank));
    } else {
      arrays_[static_cast<size_t>(target.local)].target = static_cast<int>(targets_.size());
    }
    targets_.push_back(std::move(added));
  }
  SkipFull();
}

void PutStream::SkipFull() {
  while (current_ < arrays_.size() && received_ == arrays_[current_].size) {
    ++current_;
    received_ = 0;
  }
}

absl::Status PutStream::Accept(v1::Chunk chunk) {
  TP_RETURN_IF_ERROR(CheckChunk(chunk));
  chunk_ = std::move(chunk);
  last_ = current_;
  const uint64_t size = chunk_.data().size();
  if (size == 0) return absl::OkStatus();
  if (done()) return absl::InvalidArgumentError("chunk: more bytes than the tensor has");
  if (chunk_.index() != current_ || chunk_.offset() != received_) {
    return absl::InvalidArgumentError(absl::StrCat("chunk of block ", chunk_.index(), " at offset ", chunk_.offset(),
                                                   " is out of order: expected block ", current_, " at offset ",
                                                   received_));
  }
  if (size > arrays_[current_].size - received_) {
    return absl::InvalidArgumentError(absl::StrCat("block ", current_, ": expected ", arrays_[current_].size,
                                                   " bytes, got at least ", received_ + size));
  }
  received_ += size;
  if (arrays_[current_].target >= 0) {
    Target& target = targets_[static_cast<size_t>(arrays_[current_].target)];
    target.accepted += size;
    target.crc32 = Crc32(chunk_.data(), target.crc32);
    SkipFull();
    if (target.accepted == target.size) return CheckCopies(target);
    return absl::OkStatus();
  }
  SkipFull();
  if (done()) {
    for (Target& target : targets_) target.accepted = target.size;
  }
  return absl::OkStatus();
}

absl::Status PutStream::CheckCopies(const Target& complete) const {
  for (const Target& other : targets_) {
    if (&other == &complete || other.copy_of != complete.copy_of || other.accepted != other.size) continue;
    if (other.crc32 == complete.crc32 && other.size == complete.size) continue;
    return absl::InvalidArgumentError(absl::StrCat("locals: the blocks of rank ", std::min(other.rank, complete.rank),
                                                   " and rank ", std::max(other.rank, complete.rank),
                                                   " are equal copies by the placements, but their bytes differ"));
  }
  return absl::OkStatus();
}

v1::Chunk PutStream::PieceFor(size_t index) {
  Target& target = targets_[index];
  v1::Chunk piece;
  if (target.cursor.has_value()) {
    target.cursor->Take(chunk_.data(), piece.mutable_data());
    piece.set_crc32(Crc32(piece.data()));
  } else if (!chunk_.data().empty() && target.local == static_cast<int>(last_)) {
    piece = chunk_;
    piece.set_index(0);
  }
  piece.set_offset(target.sent);
  target.sent += piece.data().size();
  return piece;
}

std::string PutStream::Missing() const {
  if (done()) return "nothing is missing";
  return absl::StrCat("got ", received_, " of ", arrays_[current_].size, " bytes of block ", current_);
}

}  // namespace tp::server
