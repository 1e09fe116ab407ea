#include "worker/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/cuda_stream.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/memory.h"
#include "worker/device/cuda/product.h"

namespace tp::worker {
namespace {

using cuda::CudaStatus;
using cuda::CudaStream;

CudaStream& Of(Stream& stream) { return static_cast<CudaStream&>(stream); }

class Graph : public DeviceGraph {
 public:
  Graph(int ordinal, cudaGraphExec_t exec, CudaStream::Recording recording)
      : ordinal_(ordinal), exec_(exec), recording_(std::move(recording)) {}
  ~Graph() override {
    cuda::UseDevice(ordinal_).IgnoreError();
    cudaGraphExecDestroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }
  const CudaStream::Recording& recording() const { return recording_; }

 private:
  const int ordinal_;
  const cudaGraphExec_t exec_;
  const CudaStream::Recording recording_;
};

class Event : public DeviceEvent {
 public:
  explicit Event(cudaEvent_t event) : event_(event) {}
  ~Event() override { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t handle() const { return event_; }

 private:
  const cudaEvent_t event_;
};

// Owned by one thread, but for Allocate and copies on other streams.
class Impl : public CudaDevice {
 public:
  Impl(const CudaDeviceOptions& options, std::string name, std::string bus_id, std::shared_ptr<cuda::Memory> memory)
      : options_(options), name_(std::move(name)), bus_id_(std::move(bus_id)), memory_(std::move(memory)) {}
  absl::Status Init() {
    cuda::LtPlans::Wait wait = nullptr;
    if (options_.time_products) {
      wait = [](cudaEvent_t event) { return CudaStatus(cudaEventSynchronize(event), "timing a product"); };
    }
    TP_ASSIGN_OR_RETURN(products_,
                        cuda::Products::Create(
                            options_.tf32, [this](int64_t bytes) { return memory_->Allocate(bytes); }, wait));
    return absl::OkStatus();
  }

  int ordinal() const override { return options_.ordinal; }
  int64_t memory_limit_bytes() const override { return memory_->limit_bytes(); }
  std::string bus_id() const override { return bus_id_; }
  cuda::StreamWatches& watches() override { return watches_; }
  std::string Describe() const override { return name_; }
  std::string Identity() const override { return absl::StrCat(cuda::MachineId(), "/", bus_id_); }
  bool HasProduct(DType dtype) const override {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  }

  std::unique_ptr<Stream> CreateStream() override { return std::make_unique<CudaStream>(memory_, &watches_); }
  absl::Status Synchronize(Stream& stream) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return Of(stream).Wait();
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override { return memory_->Allocate(bytes); }

  absl::Status CopyToDevice(Stream& stream, const void* host, void* device, int64_t bytes) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return Of(stream).CopyIn(host, device, bytes);
  }
  absl::Status CopyToHost(Stream& stream, const void* device, void* host, int64_t bytes) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return Of(stream).CopyOut(device, host, bytes);
  }
  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, int64_t bytes) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    if (bytes <= 0) return absl::OkStatus();
    return CudaStatus(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, Of(stream).handle()), "copy");
  }
  absl::Status FillZero(Stream& stream, void* device, int64_t bytes) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    if (bytes <= 0) return absl::OkStatus();
    return CudaStatus(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), Of(stream).handle()), "fill");
  }
  absl::Status CopyBox(Stream& stream, const ConstTensorView& from, absl::Span<const int64_t> from_offset,
                       const TensorView& to, absl::Span<const int64_t> to_offset,
                       absl::Span<const int64_t> sizes) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::CopyBox(Of(stream).handle(), from, from_offset, to, to_offset, sizes);
  }
  absl::Status CopyStrided(Stream& stream, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                           const TensorView& to, absl::Span<const int64_t> to_strides,
                           absl::Span<const int64_t> sizes) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::CopyStrided(Of(stream).handle(), from, from_strides, to, to_strides, sizes);
  }
  absl::Status Arange(Stream& stream, int64_t start, int64_t step, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Arange(Of(stream).handle(), start, step, output);
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(Stream& stream, const ConstTensorView& weight) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return products_->Pack(Of(stream).handle(), weight);
  }
  absl::Status UnpackWeight(Stream& stream, const PackedWeight& weight, const TensorView& plain) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return products_->Unpack(Of(stream).handle(), weight, plain);
  }
  absl::Status Linear(Stream& stream, const ConstTensorView& input, const PackedWeight& weight,
                      const ConstTensorView* bias, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return products_->Linear(Of(stream).handle(), input, weight, bias, output);
  }
  absl::Status MatMul(Stream& stream, const ConstTensorView& a, const ConstTensorView& b,
                      const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return products_->MatMul(Of(stream).handle(), a, b, output);
  }
  absl::Status Convolution(Stream& stream, const ConvolutionArguments& arguments) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Convolution(Of(stream).handle(), arguments);
  }

  absl::Status Embedding(Stream& stream, const ConstTensorView& ids, const ConstTensorView& table, int64_t row_begin,
                         int64_t vocabulary, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Embedding(Of(stream).handle(), Of(stream).fault(), ids, table, row_begin, vocabulary, output);
  }
  absl::Status RmsNorm(Stream& stream, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                       const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::RmsNorm(Of(stream).handle(), input, weight, eps, output);
  }
  absl::Status LayerNorm(Stream& stream, const ConstTensorView& input, const ConstTensorView* weight,
                         const ConstTensorView* bias, int dims, double eps, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::LayerNorm(Of(stream).handle(), input, weight, bias, dims, eps, output);
  }
  absl::Status Rotary(Stream& stream, const ConstTensorView& input, const ConstTensorView& positions, double theta,
                      const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Rotary(Of(stream).handle(), input, positions, theta, output);
  }
  absl::Status Attention(Stream& stream, const AttentionArguments& arguments) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    TP_ASSIGN_OR_RETURN(const cuda::DeviceSequences sequences, Of(stream).Sequences(arguments.sequences));
    TP_ASSIGN_OR_RETURN(void* scratch, Of(stream).ScratchOf(cuda::AttentionScratchBytes(arguments, sequences)));
    return cuda::Attention(Of(stream).handle(), arguments, sequences, scratch);
  }

  absl::Status Unary(Stream& stream, UnaryOp op, const ConstTensorView& input, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Unary(Of(stream).handle(), op, input, output);
  }
  absl::Status Binary(Stream& stream, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                      const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Binary(Of(stream).handle(), Of(stream).fault(), op, a, b, output);
  }
  absl::Status BinaryScalar(Stream& stream, BinaryOp op, const ConstTensorView& a, double b,
                            const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::BinaryScalar(Of(stream).handle(), Of(stream).fault(), op, a, b, output);
  }
  absl::Status Where(Stream& stream, const ConstTensorView& condition, const ConstTensorView& a,
                     const ConstTensorView& b, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Where(Of(stream).handle(), condition, a, b, output);
  }
  absl::Status MaskedFill(Stream& stream, const ConstTensorView& input, const ConstTensorView& mask, double value,
                          const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::MaskedFill(Of(stream).handle(), input, mask, value, output);
  }
  absl::Status Scale(Stream& stream, const ConstTensorView& input, double factor, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Scale(Of(stream).handle(), input, factor, output);
  }
  absl::Status Cast(Stream& stream, const ConstTensorView& input, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Cast(Of(stream).handle(), input, output);
  }
  absl::Status Softmax(Stream& stream, const ConstTensorView& input, int dim, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Softmax(Of(stream).handle(), input, dim, /*log=*/false, output);
  }
  absl::Status LogSoftmax(Stream& stream, const ConstTensorView& input, int dim, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Softmax(Of(stream).handle(), input, dim, /*log=*/true, output);
  }
  absl::Status Reduce(Stream& stream, Reduction op, const ConstTensorView& input, absl::Span<const int> dims,
                      double divisor, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Reduce(Of(stream).handle(), op, input, dims, divisor, output);
  }
  absl::Status ArgExtreme(Stream& stream, Extreme which, const ConstTensorView& input, int dim,
                          const TensorView* values, const TensorView& indices) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::ArgExtreme(Of(stream).handle(), which, input, dim, values, indices);
  }
  absl::Status TopK(Stream& stream, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                    const TensorView& indices) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::TopK(Of(stream).handle(), input, k, dim, values, indices);
  }
  absl::Status Gather(Stream& stream, const ConstTensorView& input, const ConstTensorView& index, int dim,
                      int64_t begin, int64_t limit, std::optional<int64_t> ignored, const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Gather(Of(stream).handle(), Of(stream).fault(), input, index, dim, begin, limit, ignored, output);
  }
  absl::Status Transpose(Stream& stream, const ConstTensorView& input, absl::Span<const int> permutation,
                         const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::Transpose(Of(stream).handle(), input, permutation, output);
  }
  absl::Status SelectRows(Stream& stream, const ConstTensorView& input, const ConstTensorView& rows,
                          const TensorView& output) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return cuda::SelectRows(Of(stream).handle(), Of(stream).fault(), input, rows, output);
  }

  bool HasSampling() const override { return true; }
  absl::Status SampleTokens(Stream& stream, const ConstTensorView& logits, absl::Span<const SamplingRow> rows,
                            int64_t* tokens) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    if (logits.shape.size() != 2 || logits.shape[0] != static_cast<int64_t>(rows.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits ", ShapeText(logits.shape), " for ", rows.size(), " rows"));
    }
    if (rows.empty()) return absl::OkStatus();
    std::vector<cuda::SampleParameters> parameters;
    int64_t most_kept = 1;
    bool all = false;
    for (const SamplingRow& row : rows) {
      const bool greedy = !(row.temperature > 0);
      parameters.push_back({row.temperature, row.top_p, row.seed, row.position, greedy ? 1 : row.top_k});
      all |= parameters.back().top_k <= 0;
      most_kept = std::max(most_kept, parameters.back().top_k);
    }
    if (all) most_kept = 0;
    // One piece of scratch: parameters, tokens, the kernel's.
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t parameter_bytes = (count * static_cast<int64_t>(sizeof(cuda::SampleParameters)) + 63) / 64 * 64;
    const int64_t token_bytes = (count * 8 + 63) / 64 * 64;
    TP_ASSIGN_OR_RETURN(void* scratch,
                        Of(stream).ScratchOf(parameter_bytes + token_bytes +
                                             cuda::SampleScratchBytes(count, logits.shape[1], most_kept)));
    char* base = static_cast<char*>(scratch);
    TP_RETURN_IF_ERROR(
        Of(stream).CopyIn(parameters.data(), base, count * static_cast<int64_t>(sizeof(cuda::SampleParameters))));
    TP_RETURN_IF_ERROR(cuda::SampleTokens(
        Of(stream).handle(), logits, reinterpret_cast<const cuda::SampleParameters*>(base), most_kept,
        {DType::kI64, base + parameter_bytes, {count}}, base + parameter_bytes + token_bytes));
    return Of(stream).CopyOut(base + parameter_bytes, tokens, count * 8);
  }

  std::unique_ptr<DeviceEvent> CreateEvent() override {
    cudaEvent_t event = nullptr;
    const bool made = cuda::UseDevice(options_.ordinal).ok() &&
                      cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess;
    return made ? std::make_unique<Event>(event) : nullptr;
  }
  absl::Status RecordEvent(Stream& stream, DeviceEvent& event) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return CudaStatus(cudaEventRecord(static_cast<Event&>(event).handle(), Of(stream).handle()), "event");
  }
  absl::Status WaitEvent(Stream& stream, DeviceEvent& event) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return CudaStatus(cudaStreamWaitEvent(Of(stream).handle(), static_cast<Event&>(event).handle(), 0), "event");
  }

  bool HasGraphs() const override { return true; }
  absl::Status BeginGraph(Stream& stream, absl::Span<const SequenceSpan> sequences, int64_t longest) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    return Of(stream).BeginRecording(sequences, longest);
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndGraph(Stream& stream) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    TP_ASSIGN_OR_RETURN(auto recorded, Of(stream).EndRecording());
    return std::make_unique<Graph>(options_.ordinal, recorded.first, std::move(recorded.second));
  }
  absl::Status RunGraph(Stream& stream, DeviceGraph& graph, absl::Span<const SequenceSpan> sequences) override {
    TP_RETURN_IF_ERROR(Ready(stream));
    const auto& recorded = static_cast<const Graph&>(graph);
    const CudaStream::Recording& recording = recorded.recording();
    bool same = sequences.size() == recording.spans.size() && recording.table->Holds(sequences);
    for (size_t i = 0; same && i < sequences.size(); ++i) {
      same = sequences[i].first_token == recording.spans[i].first_token &&
             sequences[i].count == recording.spans[i].count &&
             sequences[i].past + sequences[i].count <= recording.longest;
    }
    if (!same) return absl::InternalError("a recorded step with sequences that it was not recorded for");
    TP_RETURN_IF_ERROR(Of(stream).SendSequences(*recording.table, sequences));
    return CudaStatus(cudaGraphLaunch(recorded.exec(), Of(stream).handle()), "recorded step");
  }

 private:
  // Streams are made at their first use, which may fail and be tried again.
  absl::Status Ready(Stream& stream) const {
    TP_RETURN_IF_ERROR(cuda::UseDevice(options_.ordinal));
    return Of(stream).Open();
  }

  const CudaDeviceOptions options_;
  const std::string name_, bus_id_;
  const std::shared_ptr<cuda::Memory> memory_;
  cuda::StreamWatches watches_;
  std::unique_ptr<cuda::Products> products_;
};

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CreateCudaDevice(const CudaDeviceOptions& options) {
  int count = 0, driver = 0, runtime = 0;
  TP_RETURN_IF_ERROR(CudaStatus(cudaDriverGetVersion(&driver), "CUDA driver"));
  TP_RETURN_IF_ERROR(CudaStatus(cudaRuntimeGetVersion(&runtime), "CUDA"));
  if (driver / 1000 < runtime / 1000) {
    return absl::FailedPreconditionError(driver == 0 ? "no NVIDIA driver is installed on this host"
                                                     : absl::StrCat("the driver serves CUDA ", VersionText(driver),
                                                                    ", this build needs CUDA ",
                                                                    VersionText(runtime / 1000 * 1000), " or later"));
  }
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess && code != cudaErrorNoDevice) {
    return CudaStatus(code, "GPUs of this host");
  }
  cudaGetLastError();
  if (options.ordinal < 0 || options.ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", options.ordinal, " is not there: this host has ", count, count == 1 ? " GPU" : " GPUs"));
  }
  cudaDeviceProp properties = {};
  TP_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, options.ordinal), "properties of the GPU"));
  char bus_id[32] = {};
  TP_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), options.ordinal), "bus of the GPU"));
  TP_ASSIGN_OR_RETURN(std::shared_ptr<cuda::Memory> memory,
                      cuda::Memory::Create(options.ordinal, options.memory_limit_bytes));
  std::string name = absl::StrCat("cuda:", options.ordinal, " (", properties.name, ", sm_", properties.major,
                                  properties.minor, ", CUDA ", VersionText(runtime), ", ", bus_id, ")");
  auto device = std::make_unique<Impl>(options, std::move(name), bus_id, std::move(memory));
  TP_RETURN_IF_ERROR(device->Init());
  return device;
}

cudaStream_t StreamHandle(Stream& stream) { return Of(stream).handle(); }

}  // namespace tp::worker
