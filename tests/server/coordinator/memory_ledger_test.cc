#include "server/coordinator/memory_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tp::server {
namespace {

TEST(MemoryLedgerTest, ReservesAllOrNone) {
  MemoryLedger ledger;
  const auto first = ledger.Reserve("x", {{"a", 0, 60, 100}, {"b", 1, 10, 0}});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(ledger.Held("a"), 60);
  const auto second = ledger.Reserve("y", {{"b", 0, 10, 0}, {"a", 1, 41, 100}});
  EXPECT_EQ(second.status().ToString(),
            "RESOURCE_EXHAUSTED: worker 'a' (rank 1): y needs 41 bytes beside 60 in use, its memory limit is 100");
  EXPECT_EQ(ledger.Held("b"), 10);
  EXPECT_TRUE(ledger.Reserve("y", {{"a", 1, 40, 100}}).ok());
  ledger.Release(*first);
  ledger.Release(*first);
  EXPECT_EQ(ledger.Held("a"), 40);
  EXPECT_EQ(ledger.Held("b"), 0);
}

TEST(MemoryLedgerTest, LostWorkerHoldsNothing) {
  MemoryLedger ledger;
  const auto key = ledger.Reserve("x", {{"a", 0, 60, 100}, {"b", 1, 60, 100}});
  ledger.LoseWorker("a");
  EXPECT_EQ(ledger.Held("a"), 0);
  EXPECT_TRUE(ledger.Reserve("y", {{"a", 0, 100, 100}}).ok());  // it came back
  ledger.Release(*key);
  EXPECT_EQ(ledger.Held("a"), 100);
  EXPECT_EQ(ledger.Held("b"), 0);
}

TEST(MemoryLedgerTest, SumsThatOverflowAreRefused) {
  MemoryLedger ledger;
  const int64_t most = std::numeric_limits<int64_t>::max();
  ASSERT_TRUE(ledger.Reserve("x", {{"a", 0, most, 0}}).ok());
  EXPECT_EQ(ledger.Reserve("y", {{"a", 0, 1, 0}}).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tp::server
