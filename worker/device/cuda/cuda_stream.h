// A CUDA stream of one device with what goes with it: pinned staging for copies from and to pageable host memory, the
// fault that its kernels note, the sequences of its attentions. Example:
//   CudaStream stream(memory, watches);  TP_RETURN_IF_ERROR(stream.Open());
//   stream->CopyIn(host, device, bytes);  kernels::..(stream->handle(), ..);  TP_RETURN_IF_ERROR(stream->Wait());
#pragma once

#include <memory>
#include <vector>

#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/memory.h"
#include "worker/device/cuda/stream_watch.h"

namespace tp::worker::cuda {

// Sequences of a step as its attention kernels read them, in one device buffer at an address that stays.
class SequenceTable {
 public:
  // Room for `sequences` sequences of together `tokens` tokens and `pages` pages.
  static absl::StatusOr<std::unique_ptr<SequenceTable>> Create(Memory& memory, int64_t sequences, int64_t tokens,
                                                               int64_t pages);
  bool Holds(absl::Span<const SequenceSpan> spans) const;
  // The bytes for the buffer's begin. Must hold the spans.
  std::vector<char> Encode(absl::Span<const SequenceSpan> spans) const;
  void* data() const { return buffer_->data(); }
  // `longest`: an upper bound of past + count.
  DeviceSequences View(absl::Span<const SequenceSpan> spans, int64_t longest) const;

 private:
  SequenceTable(std::unique_ptr<DeviceBuffer> buffer, int64_t sequences, int64_t tokens, int64_t pages)
      : buffer_(std::move(buffer)), sequences_(sequences), tokens_(tokens), pages_(pages) {}
  const std::unique_ptr<DeviceBuffer> buffer_;  // table, page numbers, rows
  const int64_t sequences_, tokens_, pages_;
};

// The least power of two >= max(64, past + count) of the spans: what kernels are sized by, so that a recorded step
// serves many lengths.
int64_t LongestBucket(absl::Span<const SequenceSpan> spans);

// Thread-compatible: used by one thread at a time.
class CudaStream : public Stream {
 public:
  // `watches` outlives it.
  CudaStream(std::shared_ptr<Memory> memory, StreamWatches* watches) : memory_(std::move(memory)), watches_(watches) {}
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // Makes what it needs of CUDA, where that is not there yet; before any other call. After an error it may be tried
  // again.
  absl::Status Open();
  cudaStream_t handle() const { return stream_; }
  KernelFault* fault() const { return device_fault_; }
  // Host memory is read before it returns.
  absl::Status CopyIn(const void* host, void* device, int64_t bytes);
  // Host memory is written at the latest by the next Wait.
  absl::Status CopyOut(const void* device, void* host, int64_t bytes);
  // Until the stream is idle: the first error of it, of a watch (the stream drains then), or of the kernels' data.
  absl::Status Wait();

  // The sequences in device memory, sent there unless they are those of the last call. While recording: the recorded
  // table.
  absl::StatusOr<DeviceSequences> Sequences(absl::Span<const SequenceSpan> spans);
  // Memory for kernels of the calls that follow, until it is asked for again; `bytes` at least. While recording it is
  // what was there before.
  absl::StatusOr<void*> ScratchOf(int64_t bytes);

  // What a recording keeps alive.
  struct Recording {
    std::unique_ptr<SequenceTable> table;
    std::vector<SequenceSpan> spans;
    int64_t longest = 0;
    std::shared_ptr<DeviceBuffer> scratch;
  };
  absl::Status BeginRecording(absl::Span<const SequenceSpan> spans, int64_t longest);
  // The graph and what it needs. After an error the stream works as before.
  absl::StatusOr<std::pair<cudaGraphExec_t, Recording>> EndRecording();
  absl::Status SendSequences(const SequenceTable& table, absl::Span<const SequenceSpan> spans);
  bool recording() const { return recording_ != nullptr; }

 private:
  // Pieces of pinned memory for copies under way, taken one after the other.
  struct Staging {
    std::unique_ptr<PinnedBuffer> buffer;
    cudaEvent_t event = nullptr;  // after the copies of the piece
    int64_t used = 0;
    bool pending = false;
  };
  struct Landing {  // of a copy to the host that is under way
    const char* pinned;
    void* host;
    int64_t bytes;
  };

  // Until `done` does not answer cudaErrorNotReady, asking the watches meanwhile.
  template <class Done>
  absl::Status Poll(const Done& done, absl::string_view what);
  absl::StatusOr<char*> TakeIn(int64_t bytes);
  absl::Status FaultStatus();

  const std::shared_ptr<Memory> memory_;
  StreamWatches* const watches_;
  bool open_ = false;
  cudaStream_t stream_ = nullptr;
  KernelFault* fault_ = nullptr;         // as the host sees it
  KernelFault* device_fault_ = nullptr;  // as kernels do
  Staging in_[2];
  int current_in_ = 0;
  Staging out_;
  std::vector<Landing> landings_;
  std::unique_ptr<SequenceTable> table_;
  std::vector<SequenceSpan> sent_;
  bool sent_valid_ = false;
  std::shared_ptr<DeviceBuffer> scratch_;
  std::unique_ptr<Recording> recording_;
};

}  // namespace tp::worker::cuda
