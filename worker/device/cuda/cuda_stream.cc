#include "worker/device/cuda/cuda_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/cuda_status.h"

namespace tp::worker::cuda {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kPagePositions = 16;
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(20);
constexpr auto kDrain = std::chrono::seconds(30);

bool SameSpan(const SequenceSpan& a, const SequenceSpan& b) {
  return a.first_token == b.first_token && a.count == b.count && a.past == b.past && a.pages == b.pages;
}

int64_t TokensOf(absl::Span<const SequenceSpan> spans) {
  int64_t tokens = 0;
  for (const SequenceSpan& span : spans) tokens = std::max(tokens, span.first_token + span.count);
  return tokens;
}

int64_t PagesOf(absl::Span<const SequenceSpan> spans) {
  int64_t pages = 0;
  for (const SequenceSpan& span : spans) pages += static_cast<int64_t>(span.pages.size());
  return pages;
}

}  // namespace

int64_t LongestBucket(absl::Span<const SequenceSpan> spans) {
  int64_t longest = 64;
  for (const SequenceSpan& span : spans) {
    while (longest < span.past + span.count) longest *= 2;
  }
  return longest;
}

absl::StatusOr<std::unique_ptr<SequenceTable>> SequenceTable::Create(Memory& memory, int64_t sequences, int64_t tokens,
                                                                     int64_t pages) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, memory.Allocate(32 * sequences + 4 * pages + 4 * tokens));
  return std::unique_ptr<SequenceTable>(new SequenceTable(std::move(buffer), sequences, tokens, pages));
}

bool SequenceTable::Holds(absl::Span<const SequenceSpan> spans) const {
  return static_cast<int64_t>(spans.size()) <= sequences_ && TokensOf(spans) <= tokens_ && PagesOf(spans) <= pages_;
}

std::vector<char> SequenceTable::Encode(absl::Span<const SequenceSpan> spans) const {
  std::vector<char> bytes(static_cast<size_t>(32 * sequences_ + 4 * pages_ + 4 * tokens_));
  auto* table = reinterpret_cast<int64_t*>(bytes.data());
  auto* pages = reinterpret_cast<int32_t*>(bytes.data() + 32 * sequences_);
  int32_t* rows = pages + pages_;
  std::fill(rows, rows + tokens_, -1);  // tokens of no sequence
  int64_t page = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const SequenceSpan& span = spans[i];
    const int64_t entry[4] = {span.first_token, span.count, span.past, page};
    std::copy(entry, entry + 4, table + 4 * i);
    std::copy(span.pages.begin(), span.pages.end(), pages + page);
    page += static_cast<int64_t>(span.pages.size());
    std::fill(rows + span.first_token, rows + span.first_token + span.count, static_cast<int32_t>(i));
  }
  return bytes;
}

DeviceSequences SequenceTable::View(absl::Span<const SequenceSpan> spans, int64_t longest) const {
  const char* base = static_cast<const char*>(buffer_->data());
  DeviceSequences view;
  view.sequence_count = static_cast<int64_t>(spans.size());
  view.token_count = TokensOf(spans);
  view.longest = longest;
  view.table = reinterpret_cast<const int64_t*>(base);
  view.pages = reinterpret_cast<const int32_t*>(base + 32 * sequences_);
  view.rows = view.pages + pages_;
  return view;
}

absl::Status CudaStream::Open() {
  if (open_) return absl::OkStatus();
  if (stream_ == nullptr) {
    TP_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"));
  }
  if (fault_ == nullptr) {
    void* fault = nullptr;
    TP_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&fault, sizeof(KernelFault), cudaHostAllocMapped), "pinned memory"));
    fault_ = static_cast<KernelFault*>(fault);
    *fault_ = KernelFault();
  }
  void* seen = nullptr;
  TP_RETURN_IF_ERROR(CudaStatus(cudaHostGetDevicePointer(&seen, fault_, 0), "pinned memory"));
  device_fault_ = static_cast<KernelFault*>(seen);
  for (Staging* staging : {&in_[0], &in_[1], &out_}) {
    if (staging->event != nullptr) continue;
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&staging->event, cudaEventDisableTiming), "event"));
  }
  memory_->AddStream(stream_);
  open_ = true;
  return absl::OkStatus();
}

CudaStream::~CudaStream() {
  UseDevice(memory_->ordinal()).IgnoreError();
  if (open_) memory_->RemoveStream(stream_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  for (const Staging* staging : {&in_[0], &in_[1], &out_}) {
    if (staging->event != nullptr) cudaEventDestroy(staging->event);
  }
  if (fault_ != nullptr) cudaFreeHost(fault_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

template <class Done>
absl::Status CudaStream::Poll(const Done& done, absl::string_view what) {
  const auto begin = std::chrono::steady_clock::now();
  absl::Status watched;
  auto failed = begin;
  for (;;) {
    const cudaError_t code = done();
    if (code != cudaErrorNotReady) return watched.ok() ? CudaStatus(code, what) : watched;
    cudaGetLastError();  // not ready is no error to keep
    const auto now = std::chrono::steady_clock::now();
    if (watched.ok()) {
      watched = watches_->Poll();
      failed = now;
    } else if (now - failed > kDrain) {
      return Annotate(watched, absl::StrCat(what, " did not end after"));
    }
    if (now - begin > kSpin) std::this_thread::sleep_for(kPause);
  }
}

absl::StatusOr<char*> CudaStream::TakeIn(int64_t bytes) {
  Staging* staging = &in_[current_in_];
  if (staging->buffer != nullptr && staging->used + bytes > kPieceBytes) {
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(staging->event, stream_), "copy to the device"));
    staging->pending = true;
    current_in_ = 1 - current_in_;
    staging = &in_[current_in_];
    if (staging->pending) {
      TP_RETURN_IF_ERROR(Poll([&] { return cudaEventQuery(staging->event); }, "copy to the device"));
    }
    staging->pending = false;
    staging->used = 0;
  }
  if (staging->buffer == nullptr) {
    TP_ASSIGN_OR_RETURN(staging->buffer, PinnedBuffer::Create(kPieceBytes));
  }
  char* at = staging->buffer->data() + staging->used;
  staging->used += (bytes + 63) / 64 * 64;
  return at;
}

absl::Status CudaStream::CopyIn(const void* host, void* device, int64_t bytes) {
  if (recording()) return absl::InternalError("a copy from host memory in a recorded step");
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, bytes - at);
    TP_ASSIGN_OR_RETURN(char* pinned, TakeIn(piece));
    std::memcpy(pinned, static_cast<const char*>(host) + at, static_cast<size_t>(piece));
    TP_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(static_cast<char*>(device) + at, pinned, static_cast<size_t>(piece),
                                                  cudaMemcpyHostToDevice, stream_),
                                  "copy to the device"));
  }
  return absl::OkStatus();
}

absl::Status CudaStream::CopyOut(const void* device, void* host, int64_t bytes) {
  if (recording()) return absl::InternalError("a copy to host memory in a recorded step");
  if (bytes > 0 && out_.buffer == nullptr) {
    TP_ASSIGN_OR_RETURN(out_.buffer, PinnedBuffer::Create(kPieceBytes));
  }
  for (int64_t at = 0; at < bytes;) {
    if (out_.used == kPieceBytes) TP_RETURN_IF_ERROR(Wait());
    const int64_t piece = std::min(kPieceBytes - out_.used, bytes - at);
    char* pinned = out_.buffer->data() + out_.used;
    TP_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(pinned, static_cast<const char*>(device) + at,
                                                  static_cast<size_t>(piece), cudaMemcpyDeviceToHost, stream_),
                                  "copy from the device"));
    landings_.push_back({pinned, static_cast<char*>(host) + at, piece});
    out_.used = std::min(kPieceBytes, (out_.used + piece + 63) / 64 * 64);
    at += piece;
  }
  return absl::OkStatus();
}

absl::Status CudaStream::Wait() {
  if (recording()) return absl::InternalError("a wait in a recorded step");
  TP_RETURN_IF_ERROR(UseDevice(memory_->ordinal()));
  const absl::Status status = Poll([this] { return cudaStreamQuery(stream_); }, "stream");
  const std::vector<Landing> landings = std::exchange(landings_, {});
  out_.used = 0;
  if (!status.ok()) return status;
  for (const Landing& landing : landings) std::memcpy(landing.host, landing.pinned, static_cast<size_t>(landing.bytes));
  for (Staging& staging : in_) {
    staging.pending = false;
    staging.used = 0;
  }
  return FaultStatus();
}

absl::Status CudaStream::FaultStatus() {
  const KernelFault fault = std::exchange(*fault_, KernelFault());
  switch (fault.kind) {
    case KernelFault::kNone:
      return absl::OkStatus();
    case KernelFault::kIdOutside:
      return absl::InvalidArgumentError(
          absl::StrCat("id ", fault.value, " at position ", fault.position, " outside [0, ", fault.limit, ")"));
    case KernelFault::kIndexOutside:
      return absl::InvalidArgumentError(
          absl::StrCat("index ", fault.value, " at position ", fault.position, " outside [0, ", fault.limit, ")"));
    case KernelFault::kRowOutside:
      return absl::InvalidArgumentError(
          absl::StrCat("row ", fault.value, " at position ", fault.position, " outside [0, ", fault.limit, ")"));
    case KernelFault::kDivisionByZero:
      return absl::InvalidArgumentError(absl::StrCat("division by 0 at position ", fault.position));
    default:
      return absl::InternalError(absl::StrCat("a kernel's fault of kind ", fault.kind));
  }
}

absl::Status CudaStream::SendSequences(const SequenceTable& table, absl::Span<const SequenceSpan> spans) {
  const std::vector<char> bytes = table.Encode(spans);
  return CopyIn(bytes.data(), table.data(), static_cast<int64_t>(bytes.size()));
}

absl::StatusOr<DeviceSequences> CudaStream::Sequences(absl::Span<const SequenceSpan> spans) {
  if (recording_ != nullptr) {
    if (!std::equal(spans.begin(), spans.end(), recording_->spans.begin(), recording_->spans.end(), SameSpan)) {
      return absl::InternalError("an attention of other sequences in a recorded step");
    }
    return recording_->table->View(spans, recording_->longest);
  }
  if (!sent_valid_ || !std::equal(spans.begin(), spans.end(), sent_.begin(), sent_.end(), SameSpan)) {
    sent_valid_ = false;
    if (table_ == nullptr || !table_->Holds(spans)) {
      TP_ASSIGN_OR_RETURN(table_, SequenceTable::Create(*memory_, 2 * static_cast<int64_t>(spans.size()) + 8,
                                                        2 * TokensOf(spans) + 8, 2 * PagesOf(spans) + 64));
    }
    TP_RETURN_IF_ERROR(SendSequences(*table_, spans));
    sent_.assign(spans.begin(), spans.end());
    sent_valid_ = true;
  }
  return table_->View(spans, LongestBucket(spans));
}

absl::StatusOr<void*> CudaStream::ScratchOf(int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (scratch_ == nullptr || scratch_->size() < bytes) {
    if (recording_ != nullptr) return absl::InternalError("more scratch memory in a recorded step than before it");
    TP_ASSIGN_OR_RETURN(scratch_, memory_->Allocate(bytes));
  }
  if (recording_ != nullptr) recording_->scratch = scratch_;
  return scratch_->data();
}

absl::Status CudaStream::BeginRecording(absl::Span<const SequenceSpan> spans, int64_t longest) {
  if (recording_ != nullptr) return absl::InternalError("a recording inside a recording");
  const auto sequences = static_cast<int64_t>(spans.size());
  auto recording = std::make_unique<Recording>();
  recording->spans.assign(spans.begin(), spans.end());
  recording->longest = longest;
  TP_ASSIGN_OR_RETURN(recording->table,
                      SequenceTable::Create(*memory_, sequences, TokensOf(spans),
                                            sequences * ((longest + kPagePositions - 1) / kPagePositions)));
  TP_RETURN_IF_ERROR(UseDevice(memory_->ordinal()));
  memory_->BeginRecording();
  if (const absl::Status status =
          CudaStatus(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording of a step");
      !status.ok()) {
    memory_->EndRecording();
    return status;
  }
  recording_ = std::move(recording);
  return absl::OkStatus();
}

absl::StatusOr<std::pair<cudaGraphExec_t, CudaStream::Recording>> CudaStream::EndRecording() {
  if (recording_ == nullptr) return absl::InternalError("the end of no recording");
  const std::unique_ptr<Recording> recording = std::move(recording_);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  absl::Status status = CudaStatus(cudaStreamEndCapture(stream_, &graph), "recording of a step");
  memory_->EndRecording();
  if (status.ok()) status = CudaStatus(cudaGraphInstantiate(&exec, graph, 0), "recording of a step");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!status.ok()) {
    cudaGetLastError();
    return status;
  }
  return std::pair<cudaGraphExec_t, Recording>(exec, std::move(*recording));
}

}  // namespace tp::worker::cuda
