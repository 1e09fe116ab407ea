// Bytes in chunks of at most 1 MiB, each with a CRC-32. Example:
//   for (uint64_t offset = 0; offset < bytes.size(); offset += kChunkBytes) stream->Write(MakeChunk(0, bytes, offset));
//   ChunkAssembler in({sizes...});  TP_RETURN_IF_ERROR(in.Add(chunk));  if (in.done()) Use(in.Take());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/program/command.h"
#include "tp/v1/tensor.pb.h"

namespace tp {

// The chunk of `bytes` that begins at `offset`, at most kChunkBytes long.
v1::Chunk MakeChunk(uint32_t index, std::string_view bytes, uint64_t offset);

// RESOURCE_EXHAUSTED over kChunkBytes; DATA_LOSS for a wrong checksum.
absl::Status CheckChunk(const v1::Chunk& chunk);

// Puts arrays together from chunks that come array by array and in order. Memory grows with what has arrived, never
// with what was announced. Thread-compatible.
class ChunkAssembler {
 public:
  explicit ChunkAssembler(std::vector<uint64_t> sizes);
  // Also INVALID_ARGUMENT for a chunk that is out of order or past the end.
  absl::Status Add(const v1::Chunk& chunk);
  bool done() const { return current_ == sizes_.size(); }
  // "got 3 of 8 bytes of array 1"; for an end that comes too early.
  std::string Missing() const;
  std::vector<std::string> Take() { return std::move(arrays_); }

 private:
  void SkipFull();
  std::vector<uint64_t> sizes_;
  std::vector<std::string> arrays_;
  size_t current_ = 0;
};

}  // namespace tp
