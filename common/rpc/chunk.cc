#include "common/rpc/chunk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"

namespace tp {

v1::Chunk MakeChunk(uint32_t index, std::string_view bytes, uint64_t offset) {
  std::string_view data = bytes.substr(std::min<uint64_t>(offset, bytes.size()), kChunkBytes);
  v1::Chunk chunk;
  chunk.set_index(index);
  chunk.set_offset(offset);
  chunk.set_data(data.data(), data.size());
  chunk.set_crc32(Crc32(data));
  return chunk;
}

absl::Status CheckChunk(const v1::Chunk& chunk) {
  if (static_cast<int64_t>(chunk.data().size()) > kChunkBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("chunk of ", chunk.data().size(), " bytes is over the limit of ", kChunkBytes));
  }
  if (Crc32(chunk.data()) != chunk.crc32()) {
    return absl::DataLossError(
        absl::StrCat("chunk ", chunk.index(), " at offset ", chunk.offset(), ": checksum does not match"));
  }
  return absl::OkStatus();
}

ChunkAssembler::ChunkAssembler(std::vector<uint64_t> sizes) : sizes_(std::move(sizes)), arrays_(sizes_.size()) {
  SkipFull();
}

void ChunkAssembler::SkipFull() {
  while (current_ < sizes_.size() && arrays_[current_].size() == sizes_[current_]) ++current_;
}

absl::Status ChunkAssembler::Add(const v1::Chunk& chunk) {
  TP_RETURN_IF_ERROR(CheckChunk(chunk));
  if (chunk.data().empty()) return absl::OkStatus();
  if (done() || chunk.index() != current_ || chunk.offset() != arrays_[current_].size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk of array ", chunk.index(), " at offset ", chunk.offset(), " is out of order: ",
                     done() ? "no more bytes are expected"
                            : absl::StrCat("expected array ", current_, " at offset ", arrays_[current_].size())));
  }
  std::string& array = arrays_[current_];
  if (chunk.data().size() > sizes_[current_] - array.size()) {
    return absl::InvalidArgumentError(absl::StrCat("array ", current_, ": expected ", sizes_[current_],
                                                   " bytes, got at least ", array.size() + chunk.data().size()));
  }
  array.append(chunk.data());
  SkipFull();
  return absl::OkStatus();
}

std::string ChunkAssembler::Missing() const {
  if (done()) return "nothing is missing";
  return absl::StrCat("got ", arrays_[current_].size(), " of ", sizes_[current_], " bytes of array ", current_);
}

}  // namespace tp
