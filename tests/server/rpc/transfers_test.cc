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
  Rendezvous<UploadStream>::OnStream callback() {
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
  transfers.uploads().Expect(1, "w1");
  ASSERT_TRUE(transfers.uploads().Arrived(1, "w1", upload).ok());
  EXPECT_EQ(upload->reads, 0);
  Claimed claimed;
  transfers.uploads().Claim(1, claimed.callback());
  ASSERT_TRUE(claimed.result.has_value() && claimed.result->ok());
  EXPECT_EQ(**claimed.result, upload);
  EXPECT_FALSE(upload->stopped.has_value());
}

TEST(Transfers, AClaimWaitsForItsUpload) {
  Transfers transfers;
  transfers.uploads().Expect(1, "w1");
  Claimed claimed;
  transfers.uploads().Claim(1, claimed.callback());
  EXPECT_FALSE(claimed.result.has_value());
  auto upload = std::make_shared<FakeUpload>();
  ASSERT_TRUE(transfers.uploads().Arrived(1, "w1", upload).ok());
  ASSERT_TRUE(claimed.result.has_value() && claimed.result->ok());
  EXPECT_EQ(transfers.uploads().Arrived(1, "w1", upload).code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, UnexpectedUploadsAreRefused) {
  Transfers transfers;
  transfers.uploads().Expect(1, "w1");
  auto upload = std::make_shared<FakeUpload>();
  EXPECT_EQ(transfers.uploads().Arrived(2, "w1", upload).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(transfers.uploads().Arrived(1, "w2", upload).code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, CancelStopsAnUploadAndRefusesALaterOne) {
  Transfers transfers;
  auto upload = std::make_shared<FakeUpload>();
  transfers.uploads().Expect(1, "w1");
  ASSERT_TRUE(transfers.uploads().Arrived(1, "w1", upload).ok());
  transfers.Cancel(1);
  EXPECT_EQ(upload->stopped->code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(transfers.uploads().Arrived(1, "w1", upload).code(), absl::StatusCode::kNotFound);
}

TEST(Transfers, ALostWorkerFailsTheClaimsOnIt) {
  Transfers transfers;
  transfers.uploads().Expect(1, "w1");
  transfers.uploads().Expect(2, "w2");
  Claimed first, second, late;
  transfers.uploads().Claim(1, first.callback());
  transfers.uploads().Claim(2, second.callback());
  transfers.LoseWorker("w1");
  ASSERT_TRUE(first.result.has_value());
  EXPECT_EQ(first.result->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(second.result.has_value());
  transfers.uploads().Claim(1, late.callback());
  EXPECT_EQ(late.result->status().code(), absl::StatusCode::kUnavailable);
}

class FakeDownload : public DownloadStream {
 public:
  void WriteChunk(v1::Chunk, std::function<void(bool)> written) override { written(true); }
  void Stop(const absl::Status& status) override { stopped = status; }
  std::optional<absl::Status> stopped;
};

TEST(Transfers, DownloadsAndUploadsMeetTheirCallsApart) {
  Transfers transfers;
  transfers.downloads().Expect(1, "w1");
  EXPECT_TRUE(transfers.downloads().Expects(1, "w1"));
  EXPECT_FALSE(transfers.downloads().Expects(1, "w2"));
  EXPECT_EQ(transfers.uploads().Arrived(1, "w1", std::make_shared<FakeUpload>()).code(), absl::StatusCode::kNotFound);
  auto download = std::make_shared<FakeDownload>();
  ASSERT_TRUE(transfers.downloads().Arrived(1, "w1", download).ok());
  std::shared_ptr<DownloadStream> claimed;
  transfers.downloads().Claim(1, [&](absl::StatusOr<std::shared_ptr<DownloadStream>> stream) { claimed = *stream; });
  EXPECT_EQ(claimed, download);
}

TEST(Transfers, CancelStopsADownloadThatNobodyClaimed) {
  Transfers transfers;
  transfers.downloads().Expect(1, "w1");
  auto download = std::make_shared<FakeDownload>();
  ASSERT_TRUE(transfers.downloads().Arrived(1, "w1", download).ok());
  transfers.Cancel(1);
  EXPECT_EQ(download->stopped->code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(transfers.downloads().Expects(1, "w1"));
}

}  // namespace
}  // namespace tp::server
