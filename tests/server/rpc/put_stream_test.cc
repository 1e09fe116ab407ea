#include "server/rpc/put_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/digest.h"
#include "common/rpc/chunk.h"

namespace tp::server {
namespace {

using ::testing::HasSubstr;

PutTarget Target(int rank, int64_t size, int local = -1, int copy_of = 0) {
  PutTarget target;
  target.rank = rank;
  target.size_bytes = size;
  target.local = local;
  target.copy_of = copy_of;
  return target;
}

// U8 [2, 4], S(1) on tp=2.
PutStarted Columns() {
  PutStarted started;
  started.mesh = *Mesh::Parse("tp=2");
  started.dtype = DType::kU8;
  started.shape = {2, 4};
  started.placements = {Placement::Shard(1)};
  started.targets = {Target(0, 4), Target(1, 4)};
  return started;
}

PutStarted Locals(int second_copy_of) {
  PutStarted started = Columns();
  started.shape = {4};
  started.placements = {Placement::Replicate()};
  started.targets = {Target(0, 4, 1, 0), Target(1, 4, 0, second_copy_of)};
  return started;
}

v1::Chunk Piece(uint32_t index, const std::string& data, uint64_t offset) {
  v1::Chunk chunk = MakeChunk(index, data, 0);
  chunk.set_offset(offset);
  return chunk;
}

TEST(PutStreamTest, EachRankGetsItsRunsInOrderWithItsOwnOffsets) {
  PutStream stream(Columns(), {});
  ASSERT_TRUE(stream.Accept(Piece(0, "abcde", 0)).ok());
  v1::Chunk first = stream.PieceFor(0), second = stream.PieceFor(1);
  EXPECT_EQ(first.data(), "abe");
  EXPECT_EQ(second.data(), "cd");
  EXPECT_EQ(first.crc32(), Crc32("abe"));
  EXPECT_FALSE(stream.Complete(0));
  EXPECT_EQ(stream.Missing(), "got 5 of 8 bytes of block 0");
  ASSERT_TRUE(stream.Accept(Piece(0, "fgh", 5)).ok());
  first = stream.PieceFor(0);
  second = stream.PieceFor(1);
  EXPECT_EQ(first.data(), "f");
  EXPECT_EQ(first.offset(), 3u);
  EXPECT_EQ(second.data(), "gh");
  EXPECT_EQ(second.offset(), 2u);
  EXPECT_TRUE(CheckChunk(second).ok());
  EXPECT_TRUE(stream.done());
  EXPECT_TRUE(stream.Complete(0));
  EXPECT_EQ(stream.Accept(Piece(0, "i", 8)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PutStreamTest, BadChunksAreRefused) {
  PutStream stream(Columns(), {});
  v1::Chunk chunk = Piece(0, "ab", 0);
  chunk.set_crc32(1);
  EXPECT_EQ(stream.Accept(chunk).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(stream.Accept(Piece(0, "ab", 1)).message()), HasSubstr("out of order"));
  EXPECT_THAT(std::string(stream.Accept(Piece(1, "ab", 0)).message()), HasSubstr("out of order"));
  EXPECT_THAT(std::string(stream.Accept(Piece(0, "abcdefghi", 0)).message()),
              HasSubstr("expected 8 bytes, got at least 9"));
  v1::Chunk large = Piece(0, "", 0);
  large.set_data(std::string(kChunkBytes + 1, 'a'));
  large.set_crc32(Crc32(large.data()));
  EXPECT_EQ(stream.Accept(large).code(), absl::StatusCode::kResourceExhausted);
}

TEST(PutStreamTest, LocalBlocksGoToTheirRanksAsTheyAre) {
  PutStream stream(Locals(1), {{4}, {4}});  // no copies of each other
  ASSERT_TRUE(stream.Accept(Piece(0, "abcd", 0)).ok());
  EXPECT_EQ(stream.PieceFor(0).data(), "");
  EXPECT_EQ(stream.PieceFor(1).data(), "abcd");
  EXPECT_TRUE(stream.Complete(1));
  EXPECT_FALSE(stream.Complete(0));
  ASSERT_TRUE(stream.Accept(Piece(1, "ef", 0)).ok());
  EXPECT_EQ(stream.PieceFor(0).data(), "ef");
  EXPECT_EQ(stream.PieceFor(1).data(), "");
  ASSERT_TRUE(stream.Accept(Piece(1, "gh", 2)).ok());
  EXPECT_EQ(stream.PieceFor(0).offset(), 2u);
  EXPECT_TRUE(stream.done());
}

TEST(PutStreamTest, EqualCopiesThatDifferAreRefusedNamingBothRanks) {
  PutStream same(Locals(0), {{4}, {4}});
  ASSERT_TRUE(same.Accept(Piece(0, "abcd", 0)).ok());
  ASSERT_TRUE(same.Accept(Piece(1, "ab", 0)).ok());
  EXPECT_TRUE(same.Accept(Piece(1, "cd", 2)).ok());
  PutStream other(Locals(0), {{4}, {4}});
  ASSERT_TRUE(other.Accept(Piece(0, "abcd", 0)).ok());
  ASSERT_TRUE(other.Accept(Piece(1, "ab", 0)).ok());
  const absl::Status status = other.Accept(Piece(1, "ce", 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 and rank 1 are equal copies"));
}

TEST(PutStreamTest, NothingIsExpectedOfATensorWithoutElements) {
  PutStarted started = Columns();
  started.shape = {0, 4};
  started.targets = {};
  PutStream stream(started, {});
  EXPECT_TRUE(stream.done());
  EXPECT_TRUE(stream.Accept(Piece(0, "", 0)).ok());
}

}  // namespace
}  // namespace tp::server
