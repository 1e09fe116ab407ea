#include "server/rpc/transfers.h"

#include <gmock/gmock.h>

#include <optional>

namespace tp::server {
namespace {

class FakeUpload : public UploadStream {
 public:
  void ReadChunk(OnChunk) override { ++reads; }
  void Stop(const absl::Status& status) override { stopped = status; }
  int reads = 0;
  std::optional<absl::Status> stopped;
};

struct Claimed {
  std::optional<absl::StatusOr<std::shared_ptr<UploadStream>>> result;
  Transfers::OnUpload callback() {
    return [this](absl::StatusOr<std::shared_ptr<UploadStream>> stream) { result = std::move(stream); };
  }
};

TEST(Transfers, AnOfferIsForItsWorkerUntilItIsCancelled) {
  Transfers transfers;
  transfers.Offer(1, "w1", std::make_shared<const std::string>("bytes"));
  EXPECT_EQ(**transfers.Find(1, "w1"), "bytes");
  EXPECT_EQ(transfers.Find(1, "w2").status().code(), absl::StatusCode::kNotFound);
  transfers.Cancel(1);
  EXPECT_EQ(transfers.Find(1, "w1").status().code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, AnUploadBeforeItsClaimIsHeldUnread) {
  Transfers transfers;
  auto upload = std::make_shared<FakeUpload>();
  transfers.Expect(1, "w1");
  ASSERT_TRUE(transfers.Arrived(1, "w1", upload).ok());
  EXPECT_EQ(upload->reads, 0);
  Claimed claimed;
  transfers.Claim(1, claimed.callback());
  ASSERT_TRUE(claimed.result.has_value() && claimed.result->ok());
  EXPECT_EQ(**claimed.result, upload);
  EXPECT_FALSE(upload->stopped.has_value());
}

TEST(Transfers, AClaimWaitsForItsUpload) {
  Transfers transfers;
  transfers.Expect(1, "w1");
  Claimed claimed;
  transfers.Claim(1, claimed.callback());
  EXPECT_FALSE(claimed.result.has_value());
  auto upload = std::make_shared<FakeUpload>();
  ASSERT_TRUE(transfers.Arrived(1, "w1", upload).ok());
  ASSERT_TRUE(claimed.result.has_value() && claimed.result->ok());
  EXPECT_EQ(transfers.Arrived(1, "w1", upload).code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, UnexpectedUploadsAreRefused) {
  Transfers transfers;
  transfers.Expect(1, "w1");
  auto upload = std::make_shared<FakeUpload>();
  EXPECT_EQ(transfers.Arrived(2, "w1", upload).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(transfers.Arrived(1, "w2", upload).code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, CancelStopsAnUploadAndRefusesALaterOne) {
  Transfers transfers;
  auto upload = std::make_shared<FakeUpload>();
  transfers.Expect(1, "w1");
  ASSERT_TRUE(transfers.Arrived(1, "w1", upload).ok());
  transfers.Cancel(1);
  EXPECT_EQ(upload->stopped->code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(transfers.Arrived(1, "w1", upload).code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, ALostWorkerFailsTheClaimsOnIt) {
  Transfers transfers;
  transfers.Expect(1, "w1");
  transfers.Expect(2, "w2");
  Claimed first, second, late;
  transfers.Claim(1, first.callback());
  transfers.Claim(2, second.callback());
  transfers.LoseWorker("w1");
  ASSERT_TRUE(first.result.has_value());
  EXPECT_EQ(first.result->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(second.result.has_value());
  transfers.Claim(1, late.callback());
  EXPECT_EQ(late.result->status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tp::server
