#include "common/rpc/chunk.h"

#include <gmock/gmock.h>

namespace tp {
namespace {

using ::testing::HasSubstr;

v1::Chunk Piece(uint32_t index, uint64_t offset, const std::string& data) {
  v1::Chunk chunk = MakeChunk(index, data, 0);
  chunk.set_offset(offset);
  return chunk;
}

TEST(Chunk, CarriesZlibsChecksum) {
  v1::Chunk chunk = MakeChunk(3, "123456789", 0);
  EXPECT_EQ(chunk.crc32(), 0xcbf43926u);
  EXPECT_EQ(chunk.index(), 3u);
  EXPECT_TRUE(CheckChunk(chunk).ok());
  chunk.mutable_data()->at(4) = 'x';
  EXPECT_EQ(CheckChunk(chunk).code(), absl::StatusCode::kDataLoss);
}

TEST(Chunk, IsAtMostOneMebibyte) {
  std::string bytes((1 << 20) + 5, 'a');
  EXPECT_EQ(MakeChunk(0, bytes, 0).data().size(), 1u << 20);
  EXPECT_EQ(MakeChunk(0, bytes, 1 << 20).data().size(), 5u);
  v1::Chunk large = MakeChunk(0, bytes, 0);
  large.mutable_data()->push_back('a');
  EXPECT_EQ(CheckChunk(large).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ChunkAssembler, PutsArraysTogetherInOrder) {
  ChunkAssembler in({5, 0, 3});
  ASSERT_TRUE(in.Add(Piece(0, 0, "he")).ok());
  EXPECT_EQ(in.Missing(), "got 2 of 5 bytes of array 0");
  ASSERT_TRUE(in.Add(Piece(0, 2, "llo")).ok());
  EXPECT_FALSE(in.done());
  ASSERT_TRUE(in.Add(Piece(2, 0, "abc")).ok());
  EXPECT_TRUE(in.done());
  EXPECT_THAT(in.Take(), ::testing::ElementsAre("hello", "", "abc"));
}

TEST(ChunkAssembler, NothingExpectedIsDoneAtOnce) {
  EXPECT_TRUE(ChunkAssembler({}).done());
  EXPECT_TRUE(ChunkAssembler({0, 0}).done());
}

TEST(ChunkAssembler, RefusesWhatIsOutOfOrder) {
  ChunkAssembler in({4, 4});
  EXPECT_THAT(std::string(in.Add(Piece(1, 0, "abcd")).message()), HasSubstr("expected array 0 at offset 0"));
  EXPECT_FALSE(in.Add(Piece(0, 2, "ab")).ok());
  EXPECT_THAT(std::string(in.Add(Piece(0, 0, "abcde")).message()), HasSubstr("expected 4 bytes, got at least 5"));
  ASSERT_TRUE(in.Add(Piece(0, 0, "abcd")).ok());
  EXPECT_FALSE(in.Add(Piece(0, 0, "abcd")).ok());
  ASSERT_TRUE(in.Add(Piece(1, 0, "abcd")).ok());
  EXPECT_THAT(std::string(in.Add(Piece(1, 4, "e")).message()), HasSubstr("no more bytes are expected"));
}

}  // namespace
}  // namespace tp
