#include "worker/device/cpu/buffer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

constexpr int64_t kAlignment = 64;
#ifdef TP_SANITIZE
constexpr int64_t kGuard = 64;               // bytes on each side
constexpr int64_t kMost = int64_t{1} << 39;  // a sanitizer stops the process at more
#else
constexpr int64_t kGuard = 0;
constexpr int64_t kMost = int64_t{1} << 47;  // no address space is larger
#endif
constexpr unsigned char kPattern = 0xA5;

class CpuBuffer : public DeviceBuffer {
 public:
  CpuBuffer(std::shared_ptr<MemoryAccount> account, unsigned char* block, int64_t size)
      : account_(std::move(account)), block_(block), size_(size) {
    if (kGuard == 0) return;
    std::memset(block_, kPattern, static_cast<size_t>(kGuard));
    std::memset(block_ + kGuard, 0xFF, static_cast<size_t>(size_));
    std::memset(block_ + kGuard + size_, kPattern, static_cast<size_t>(kGuard));
  }
  ~CpuBuffer() override {
    for (int64_t i = 0; i < kGuard; ++i) {
      if (block_[i] == kPattern && block_[kGuard + size_ + i] == kPattern) continue;
      std::fprintf(stderr, "a kernel wrote outside its buffer of %lld bytes: guard byte %lld changed\n",
                   static_cast<long long>(size_), static_cast<long long>(i));
      std::abort();
    }
    std::free(block_);
    account_->Give(size_);
  }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;

  void* data() override { return block_ + kGuard; }
  int64_t size() const override { return size_; }

 private:
  const std::shared_ptr<MemoryAccount> account_;
  unsigned char* const block_;
  const int64_t size_;
};

}  // namespace

absl::Status MemoryAccount::Take(int64_t bytes) {
  int64_t used = used_.load();
  do {
    if (limit_ > 0 && bytes > limit_ - used) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory_limit_bytes: ", bytes, " bytes asked for, ", used, " in use, limit ", limit_));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateCpuBuffer(std::shared_ptr<MemoryAccount> account, int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  if (bytes > kMost) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  TP_RETURN_IF_ERROR(account->Take(bytes));
  const int64_t whole = (std::max<int64_t>(bytes, 1) + 2 * kGuard + kAlignment - 1) / kAlignment * kAlignment;
  void* block = std::aligned_alloc(static_cast<size_t>(kAlignment), static_cast<size_t>(whole));
  if (block == nullptr) {
    account->Give(bytes);
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  return std::make_unique<CpuBuffer>(std::move(account), static_cast<unsigned char*>(block), bytes);
}

}  // namespace tp::worker
