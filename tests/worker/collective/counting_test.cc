#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/collective/counting_communicator.h"

namespace tp::worker {
namespace {

using ::testing::_;
using ::testing::Return;

class NoStream : public Stream {};

class Inner : public Communicator {
 public:
  using Ranks = absl::Span<const int>;
  using Counts = absl::Span<const int64_t>;
  MOCK_METHOD(int, rank, (), (const, override));
  MOCK_METHOD(int, size, (), (const, override));
  MOCK_METHOD(absl::Status, AllReduce, (Stream&, Ranks, void*, int64_t, DType, ReduceOp, absl::Time), (override));
  MOCK_METHOD(absl::Status, ReduceScatter, (Stream&, Ranks, const void*, Counts, void*, DType, ReduceOp, absl::Time),
              (override));
  MOCK_METHOD(absl::Status, AllGather, (Stream&, Ranks, const void*, void*, Counts, DType, absl::Time), (override));
  MOCK_METHOD(absl::Status, AllToAll, (Stream&, Ranks, const void*, Counts, void*, Counts, DType, absl::Time),
              (override));
  MOCK_METHOD(absl::Status, Broadcast, (Stream&, Ranks, int, void*, int64_t, DType, absl::Time), (override));
  MOCK_METHOD(absl::Status, Scatter, (Stream&, Ranks, int, const void*, Counts, void*, DType, absl::Time), (override));
  MOCK_METHOD(absl::Status, Gather, (Stream&, Ranks, int, const void*, void*, Counts, DType, absl::Time), (override));
  MOCK_METHOD(absl::Status, SendReceive, (Stream&, int, const void*, int64_t, int, void*, int64_t, DType, absl::Time),
              (override));
  MOCK_METHOD(absl::Status, Barrier, (Ranks, absl::Time), (override));
  MOCK_METHOD(absl::StatusOr<std::vector<StepHeader>>, ExchangeHeaders, (Ranks, const StepHeader&, absl::Time),
              (override));
  MOCK_METHOD(bool, Records, (), (const, override));
  MOCK_METHOD(absl::Status, Launched, (Stream&, absl::Time), (override));
  MOCK_METHOD(void, Abort, (absl::string_view), (override));
  MOCK_METHOD(WireCounters, wire, (), (const, override));
};

class Counting : public ::testing::Test {
 protected:
  Counting() {
    auto inner = std::make_unique<::testing::NiceMock<Inner>>();
    inner_ = inner.get();
    counted_ = CreateCountingCommunicator(std::move(inner), &counters_);
  }
  int64_t Calls(CollectiveKind kind) { return counters_.Read().calls[static_cast<size_t>(kind)]; }
  int64_t Bytes(CollectiveKind kind) { return counters_.Read().bytes[static_cast<size_t>(kind)]; }

  CollectiveCounters counters_;
  Inner* inner_;
  std::unique_ptr<Communicator> counted_;
  NoStream stream_;
  const std::vector<int> group_{0, 1};
  const std::vector<int64_t> counts_{3, 4};
  float data_[8] = {};
  const absl::Time end_ = absl::FromUnixSeconds(5);
};

TEST_F(Counting, EachKindByItsBytes) {
  ASSERT_EQ(counted_->AllReduce(stream_, group_, data_, 5, DType::kF32, ReduceOp::kSum, end_), absl::OkStatus());
  ASSERT_EQ(counted_->ReduceScatter(stream_, group_, data_, counts_, data_, DType::kF32, ReduceOp::kSum, end_),
            absl::OkStatus());
  ASSERT_EQ(counted_->AllGather(stream_, group_, data_, data_, counts_, DType::kBF16, end_), absl::OkStatus());
  ASSERT_EQ(counted_->AllToAll(stream_, group_, data_, {1, 1}, data_, counts_, DType::kF32, end_), absl::OkStatus());
  ASSERT_EQ(counted_->Broadcast(stream_, group_, 1, data_, 6, DType::kI64, end_), absl::OkStatus());
  ASSERT_EQ(counted_->Scatter(stream_, group_, 0, data_, counts_, data_, DType::kF32, end_), absl::OkStatus());
  ASSERT_EQ(counted_->Gather(stream_, group_, 0, data_, data_, counts_, DType::kF32, end_), absl::OkStatus());
  ASSERT_EQ(counted_->SendReceive(stream_, 1, data_, 2, -1, nullptr, 9, DType::kF32, end_), absl::OkStatus());
  ASSERT_EQ(counted_->Barrier(group_, end_), absl::OkStatus());
  counted_->ExchangeHeaders(group_, {}, end_).IgnoreError();
  const int64_t bytes[kCollectiveKinds] = {20, 28, 14, 28, 48, 28, 28, 8, 0, 64};
  ASSERT_EQ(CollectiveKindNames().size(), kCollectiveKinds);
  for (size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    EXPECT_EQ(Calls(static_cast<CollectiveKind>(kind)), 1) << CollectiveKindNames()[kind];
    EXPECT_EQ(Bytes(static_cast<CollectiveKind>(kind)), bytes[kind]) << CollectiveKindNames()[kind];
  }
}

TEST_F(Counting, FailedCallsAreCountedAndPassedOn) {
  EXPECT_CALL(*inner_, Barrier(_, end_)).WillOnce(Return(absl::AbortedError("a peer failed")));
  EXPECT_EQ(counted_->Barrier(group_, end_), absl::AbortedError("a peer failed"));
  EXPECT_EQ(Calls(CollectiveKind::kBarrier), 1);
}

TEST_F(Counting, TheRestIsTheInnerOnes) {
  EXPECT_CALL(*inner_, rank()).WillOnce(Return(3));
  EXPECT_CALL(*inner_, size()).WillOnce(Return(4));
  EXPECT_CALL(*inner_, Records()).WillOnce(Return(true));
  EXPECT_CALL(*inner_, Launched(_, end_)).WillOnce(Return(absl::UnavailableError("gone")));
  EXPECT_CALL(*inner_, Abort(absl::string_view("why")));
  EXPECT_CALL(*inner_, wire()).WillOnce(Return(WireCounters{7, 8}));
  EXPECT_EQ(counted_->rank(), 3);
  EXPECT_EQ(counted_->size(), 4);
  EXPECT_TRUE(counted_->Records());
  EXPECT_EQ(counted_->Launched(stream_, end_), absl::UnavailableError("gone"));
  counted_->Abort("why");
  EXPECT_EQ(counted_->wire().bytes_received, 8);
}

TEST_F(Counting, RecordedCallsCountAgain) {
  counters_.Add(CollectiveKind::kAllReduce, 100, absl::Seconds(2));
  const CollectiveTally before = counters_.Read();
  counters_.Add(CollectiveKind::kAllReduce, 10, absl::Seconds(1));
  counters_.Add(CollectiveKind::kAllGather, 4, absl::Seconds(1));
  counters_.AddAgain(counters_.Read().Since(before));
  EXPECT_EQ(Calls(CollectiveKind::kAllReduce), 3);
  EXPECT_EQ(Bytes(CollectiveKind::kAllReduce), 120);
  EXPECT_EQ(Bytes(CollectiveKind::kAllGather), 8);
  EXPECT_EQ(counters_.Read().times[0], absl::Seconds(3));
}

}  // namespace
}  // namespace tp::worker
