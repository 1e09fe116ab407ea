#include "server/scheduler/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::server {
namespace {

using ::testing::ElementsAre;

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(StreamsTest, SequencesAreGapFreeInEachStreamAndOrderNumbersAreShared) {
  Order order({});
  WorkerStream a, b, c;
  EXPECT_THAT(order.Append({&a, &b}, CommandClass::kWork, kStart).sequences, ElementsAre(1, 1));
  EXPECT_THAT(order.Append({&b, &c}, CommandClass::kWork, kStart).sequences, ElementsAre(2, 1));
  const Numbers third = order.Append({&a, &b, &c}, CommandClass::kWork, kStart);
  EXPECT_EQ(third.order, 3u);
  EXPECT_THAT(third.sequences, ElementsAre(2, 3, 2));
  EXPECT_EQ(a.pending[1].order, b.pending[2].order);
}

TEST(StreamsTest, OnlyTheOldestCommandIsAnswered) {
  Order order({});
  WorkerStream stream;
  order.Append({&stream}, CommandClass::kWork, kStart);
  order.Append({&stream}, CommandClass::kWork, kStart);
  EXPECT_EQ(Acknowledge(&stream, 2, 2, kStart), AckVerdict::kOutOfOrder);
  EXPECT_EQ(Acknowledge(&stream, 1, 9, kStart), AckVerdict::kStray);
  EXPECT_EQ(Acknowledge(&stream, 1, 1, kStart), AckVerdict::kHead);
  EXPECT_EQ(Acknowledge(&stream, 1, 1, kStart), AckVerdict::kStray);
  EXPECT_EQ(Acknowledge(&stream, 2, 2, kStart), AckVerdict::kHead);
  EXPECT_EQ(Acknowledge(&stream, 3, 3, kStart), AckVerdict::kStray);
  EXPECT_EQ(stream.completed_sequence, 2u);
}

TEST(StreamsTest, TimeCountsFromWhenACommandBecameTheOldest) {
  Order order({absl::Seconds(4), absl::Seconds(10), 1});
  WorkerStream stream;
  order.Append({&stream}, CommandClass::kFirstWork, kStart);
  order.Append({&stream}, CommandClass::kWork, kStart);
  EXPECT_FALSE(Overdue(stream, kStart + absl::Seconds(10)));
  EXPECT_TRUE(Overdue(stream, kStart + absl::Milliseconds(10001)));
  ASSERT_EQ(Acknowledge(&stream, 1, 1, kStart + absl::Seconds(9)), AckVerdict::kHead);
  EXPECT_FALSE(Overdue(stream, kStart + absl::Seconds(13)));
  EXPECT_TRUE(Overdue(stream, kStart + absl::Milliseconds(13001)));
}

TEST(StreamsTest, LimitIsTwentyTimesTheUsualAndTheFirstRunDoesNotCount) {
  Order order({absl::Seconds(4), absl::Seconds(10), 1});
  WorkerStream stream;
  order.Append({&stream}, CommandClass::kFirstWork, kStart);
  ASSERT_EQ(Acknowledge(&stream, 1, 1, kStart + absl::Seconds(8)), AckVerdict::kHead);
  EXPECT_EQ(order.Append({&stream}, CommandClass::kWork, kStart).limit, absl::Seconds(4));
  ASSERT_EQ(Acknowledge(&stream, 2, 2, kStart + absl::Seconds(1)), AckVerdict::kHead);
  stream.usual = absl::Seconds(1);
  EXPECT_EQ(order.Append({&stream}, CommandClass::kWork, kStart).limit, absl::Seconds(20));
}

TEST(StreamsTest, TimeScaleMultipliesTheLimit) {
  EXPECT_EQ(ProgressLimit({absl::Seconds(4), absl::Seconds(10), 3}, absl::Seconds(1), false), absl::Seconds(60));
  EXPECT_EQ(ProgressLimit({absl::Seconds(4), absl::Seconds(10), 3}, absl::ZeroDuration(), true), absl::Seconds(30));
}

}  // namespace
}  // namespace tp::server
