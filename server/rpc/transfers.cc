#include "server/rpc/transfers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tp::server {
namespace {

// Ids of runs whose results turned out small are never cancelled; the oldest are forgotten.
constexpr size_t kMaxExpected = 65536;

}  // namespace

void Transfers::Offer(uint64_t id, const std::string& worker, std::shared_ptr<const std::string> bytes) {
  offers_[id] = {worker, std::move(bytes)};
}

absl::StatusOr<std::shared_ptr<const std::string>> Transfers::Find(uint64_t id, const std::string& worker) const {
  auto it = offers_.find(id);
  if (it == offers_.end() || it->second.worker != worker) {
    return absl::NotFoundError(absl::StrCat("transfer ", id, " is not offered to worker ", worker));
  }
  return it->second.bytes;
}

void Transfers::Expect(uint64_t id, const std::string& worker) {
  expected_[id] = worker;
  if (expected_.size() > kMaxExpected) expected_.erase(expected_.begin());
}

absl::Status Transfers::Arrived(uint64_t id, const std::string& worker, std::shared_ptr<UploadStream> stream) {
  auto expected = expected_.find(id);
  if (expected == expected_.end() || expected->second != worker || uploads_.count(id) != 0) {
    return absl::NotFoundError(absl::StrCat("transfer ", id, " of worker ", worker, " is not expected"));
  }
  auto claim = claims_.find(id);
  if (claim == claims_.end()) {
    uploads_[id] = std::move(stream);
    return absl::OkStatus();
  }
  OnUpload on_upload = std::move(claim->second);
  claims_.erase(claim);
  expected_.erase(expected);
  on_upload(std::move(stream));
  return absl::OkStatus();
}

void Transfers::Forget(uint64_t id, const UploadStream* stream) {
  auto upload = uploads_.find(id);
  if (upload == uploads_.end() || upload->second.get() != stream) return;
  uploads_.erase(upload);
  expected_.erase(id);
}

void Transfers::Claim(uint64_t id, OnUpload on_upload) {
  auto upload = uploads_.find(id);
  if (upload != uploads_.end()) {
    std::shared_ptr<UploadStream> stream = std::move(upload->second);
    uploads_.erase(upload);
    expected_.erase(id);
    on_upload(std::move(stream));
    return;
  }
  if (expected_.count(id) == 0) {
    on_upload(absl::UnavailableError("the worker that holds the result was lost"));
    return;
  }
  claims_[id] = std::move(on_upload);
}

void Transfers::Cancel(uint64_t id) {
  offers_.erase(id);
  expected_.erase(id);
  claims_.erase(id);
  auto upload = uploads_.find(id);
  if (upload == uploads_.end()) return;
  upload->second->Stop(absl::NotFoundError(absl::StrCat("transfer ", id, " is not expected any more")));
  uploads_.erase(upload);
}

void Transfers::LoseWorker(const std::string& worker) {
  for (auto it = offers_.begin(); it != offers_.end();)
    it = it->second.worker == worker ? offers_.erase(it) : std::next(it);
  std::vector<OnUpload> lost;
  for (auto it = expected_.begin(); it != expected_.end();) {
    if (it->second != worker) {
      ++it;
      continue;
    }
    auto claim = claims_.find(it->first);
    if (claim != claims_.end()) {
      lost.push_back(std::move(claim->second));
      claims_.erase(claim);
    }
    uploads_.erase(it->first);
    it = expected_.erase(it);
  }
  for (OnUpload& on_upload : lost) {
    on_upload(absl::UnavailableError(absl::StrCat("worker ", worker, " was lost before it sent its result")));
  }
}

}  // namespace tp::server
