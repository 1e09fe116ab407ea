#include "tests/device/bench.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/tensor/host_tensor.h"
#include "tests/device/check.h"
#include "worker/device/cuda/cuda_status.h"

namespace tp::testing {
namespace {

using worker::cuda::CudaStatus;

int Runs() { return Options().small ? 1 : 7; }

}  // namespace

absl::StatusOr<std::unique_ptr<Bench>> Bench::Create(bool tf32) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<worker::CudaDevice> device, OpenGpu(tf32));
  std::unique_ptr<worker::Stream> stream = device->CreateStream();
  cudaEvent_t begin = nullptr, end = nullptr;
  TP_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin), "event"));
  TP_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&end), "event"));
  return std::unique_ptr<Bench>(new Bench(std::move(device), std::move(stream), begin, end));
}

absl::StatusOr<worker::TensorView> Bench::Values(DType dtype, Shape shape) {
  TP_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(shape, dtype));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<worker::DeviceBuffer> buffer, device_->Allocate(bytes));
  const int64_t block = std::min(bytes, int64_t{1} << 20);
  std::mt19937 generator(static_cast<uint32_t>(buffers_.size()) + 1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(block / ItemSize(dtype)));
  for (float& value : values) value = uniform(generator);
  const auto count = static_cast<int64_t>(values.size());
  const HostTensor host = ConvertTo(MakeHostTensor<float>({count}, values), dtype);
  char* base = static_cast<char*>(buffer->data());
  TP_RETURN_IF_ERROR(device_->CopyToDevice(*stream_, host.bytes.data(), base, block));
  for (int64_t done = block; done < bytes; done *= 2) {
    TP_RETURN_IF_ERROR(device_->CopyOnDevice(*stream_, base, base + done, std::min(done, bytes - done)));
  }
  TP_RETURN_IF_ERROR(device_->Synchronize(*stream_));
  buffers_.push_back(std::move(buffer));
  return worker::TensorView{dtype, base, std::move(shape)};
}

absl::StatusOr<double> Bench::Least(int calls, const std::function<absl::Status()>& run) {
  double least = 0;
  for (int i = 0; i <= Runs(); ++i) {
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin_, handle()), "event"));
    TP_RETURN_IF_ERROR(run());
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end_, handle()), "event"));
    TP_RETURN_IF_ERROR(device_->Synchronize(*stream_));
    float ms = 0;
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&ms, begin_, end_), "event"));
    const double us = ms * 1000.0 / calls;
    if (i == 1 || us < least) least = us;  // the first one warms up
  }
  return std::max(least, 1e-3);
}

absl::StatusOr<double> Bench::Time(int calls, const std::function<absl::Status(int)>& call,
                                   absl::Span<const worker::SequenceSpan> sequences, int64_t longest) {
  for (int i = 0; i < calls; ++i) TP_RETURN_IF_ERROR(call(i));
  TP_RETURN_IF_ERROR(device_->Synchronize(*stream_));
  TP_RETURN_IF_ERROR(device_->BeginGraph(*stream_, sequences, longest));
  absl::Status recorded;
  for (int i = 0; i < calls && recorded.ok(); ++i) recorded = call(i);
  auto graph = device_->EndGraph(*stream_);
  TP_RETURN_IF_ERROR(recorded);
  TP_RETURN_IF_ERROR(graph.status());
  return Least(calls, [&] { return device_->RunGraph(*stream_, **graph, sequences); });
}

absl::StatusOr<double> Bench::TimePlain(int calls, const std::function<absl::Status(int)>& call) {
  return Least(calls, [&] {
    for (int i = 0; i < calls; ++i) TP_RETURN_IF_ERROR(call(i));
    return absl::OkStatus();
  });
}

}  // namespace tp::testing
