#include "worker/device/cuda/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/cuda_status.h"

namespace tp::worker::cuda {

class Memory::Buffer : public DeviceBuffer {
 public:
  Buffer(std::shared_ptr<Memory> memory, void* data, int64_t size)
      : memory_(std::move(memory)), data_(data), size_(size) {}
  ~Buffer() override { memory_->Give(data_, size_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() override { return data_; }
  int64_t size() const override { return size_; }

 private:
  const std::shared_ptr<Memory> memory_;
  void* const data_;
  const int64_t size_;
};

std::string MachineId() {
  std::string id;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (std::getline(file, id) && !id.empty()) return id;
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

absl::Status UseDevice(int ordinal) { return CudaStatus(cudaSetDevice(ordinal), absl::StrCat("cuda:", ordinal)); }

absl::StatusOr<std::shared_ptr<Memory>> Memory::Create(int ordinal, int64_t limit_bytes) {
  if (limit_bytes < 0) return absl::InvalidArgumentError(absl::StrCat("memory_limit_bytes: ", limit_bytes));
  TP_RETURN_IF_ERROR(UseDevice(ordinal));
  size_t free_bytes = 0, total_bytes = 0;
  TP_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "memory of the device"));
  // What was given back stays in the pool: the next step takes it again without the driver.
  cudaMemPool_t pool = nullptr;
  TP_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetDefaultMemPool(&pool, ordinal), "memory pool"));
  uint64_t threshold = UINT64_MAX;
  TP_RETURN_IF_ERROR(
      CudaStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "memory pool"));
  cudaStream_t stream = nullptr;
  TP_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream of the memory"));
  const auto total = static_cast<int64_t>(total_bytes);
  return std::shared_ptr<Memory>(new Memory(ordinal, limit_bytes == 0 ? total : limit_bytes, stream));
}

Memory::~Memory() {
  if (!UseDevice(ordinal_).ok()) return;
  for (void* data : waiting_) cudaFreeAsync(data, stream_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> Memory::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  TP_RETURN_IF_ERROR(UseDevice(ordinal_));
  {
    const std::lock_guard lock(mutex_);
    if (bytes > limit_ - used_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory_limit_bytes: ", bytes, " bytes asked for, ", used_, " in use, limit ", limit_));
    }
    used_ += bytes;
  }
  void* data = nullptr;
  absl::Status status = CudaStatus(cudaMallocAsync(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_),
                                   absl::StrCat("no memory for ", bytes, " bytes"));
  if (status.ok()) status = CudaStatus(cudaStreamSynchronize(stream_), "memory");
  if (!status.ok()) {
    cudaGetLastError();  // running out of memory is no lasting error
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    return status;
  }
  return std::make_unique<Buffer>(shared_from_this(), data, bytes);
}

int64_t Memory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void Memory::AddStream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void Memory::RemoveStream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.erase(std::remove(streams_.begin(), streams_.end(), stream), streams_.end());
}

void Memory::BeginRecording() {
  const std::lock_guard lock(mutex_);
  ++recordings_;
}

void Memory::EndRecording() {
  const std::lock_guard lock(mutex_);
  if (--recordings_ > 0) return;
  for (void* data : std::exchange(waiting_, {})) FreeLocked(data);
}

void Memory::Give(void* data, int64_t bytes) {
  UseDevice(ordinal_).IgnoreError();
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  if (recordings_ > 0) {
    waiting_.push_back(data);
  } else {
    FreeLocked(data);
  }
}

void Memory::FreeLocked(void* data) {
  for (cudaStream_t stream : streams_) {
    cudaEvent_t event = nullptr;
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) continue;
    if (cudaEventRecord(event, stream) == cudaSuccess) cudaStreamWaitEvent(stream_, event, 0);
    cudaEventDestroy(event);  // lives until it is done
  }
  cudaFreeAsync(data, stream_);
}

absl::StatusOr<std::unique_ptr<PinnedBuffer>> PinnedBuffer::Create(int64_t bytes) {
  void* data = nullptr;
  TP_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault),
                                absl::StrCat(bytes, " bytes of pinned memory")));
  return std::unique_ptr<PinnedBuffer>(new PinnedBuffer(static_cast<char*>(data), bytes));
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

}  // namespace tp::worker::cuda
