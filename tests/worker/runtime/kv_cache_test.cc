#include "worker/runtime/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::worker {
namespace {

using ::testing::ElementsAre;

JoinSequence Join(uint64_t id) { return {id, {}, 10, {}}; }

TEST(PagePool, GivesTheLowestFreePage) {
  PagePool pool(3);
  EXPECT_EQ(*pool.Take(), 0);
  EXPECT_EQ(*pool.Take(), 1);
  EXPECT_EQ(*pool.Take(), 2);
  EXPECT_EQ(pool.Take().status().code(), absl::StatusCode::kResourceExhausted);
  pool.Give(2);
  pool.Give(0);
  EXPECT_EQ(*pool.Take(), 0);
  EXPECT_EQ(*pool.Take(), 2);
  EXPECT_EQ(pool.free_count(), 0);
}

TEST(SequenceTable, TakesAPageForEach16Positions) {
  SequenceTable table(4);
  ASSERT_TRUE(table.Join(Join(5)).ok());
  Sequence* sequence = table.Find(5);
  ASSERT_TRUE(table.Reserve(*sequence, 16).ok());
  EXPECT_THAT(sequence->pages, ElementsAre(0));
  sequence->past = 16;
  ASSERT_TRUE(table.Reserve(*sequence, 0).ok());
  EXPECT_THAT(sequence->pages, ElementsAre(0));
  ASSERT_TRUE(table.Reserve(*sequence, 17).ok());
  EXPECT_THAT(sequence->pages, ElementsAre(0, 1, 2));
}

TEST(SequenceTable, LeavingFreesPagesForTheNext) {
  SequenceTable table(3);
  ASSERT_TRUE(table.Join(Join(1)).ok());
  ASSERT_TRUE(table.Join(Join(2)).ok());
  ASSERT_TRUE(table.Reserve(*table.Find(1), 20).ok());
  ASSERT_TRUE(table.Reserve(*table.Find(2), 1).ok());
  table.Leave(1);
  EXPECT_EQ(table.Find(1), nullptr);
  EXPECT_EQ(table.pool().free_count(), 2);
  ASSERT_TRUE(table.Join(Join(3)).ok());
  ASSERT_TRUE(table.Reserve(*table.Find(3), 17).ok());
  EXPECT_THAT(table.Find(3)->pages, ElementsAre(0, 1));
  table.Leave(77);
}

TEST(SequenceTable, RefusesAnIdInUseAndAFullPool) {
  SequenceTable table(1);
  ASSERT_TRUE(table.Join(Join(1)).ok());
  EXPECT_EQ(table.Join(Join(1)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(table.Reserve(*table.Find(1), 17).code(), absl::StatusCode::kResourceExhausted);
  table.Leave(1);
  EXPECT_EQ(table.pool().free_count(), 1);
}

}  // namespace
}  // namespace tp::worker
