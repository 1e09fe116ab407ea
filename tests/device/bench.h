// Times of calls on the GPU, without the time that launching takes: calls are recorded in one graph, which is timed by
// events. Example:
//   TP_ASSIGN_OR_RETURN(double us, bench.Time(8, [&](int i) { return device.Linear(stream, x, *w[i], nullptr, y); }));
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/device/cuda/cuda_device.h"

namespace tp::testing {

class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(bool tf32 = false);

  worker::Device& device() { return *device_; }
  worker::Stream& stream() { return *stream_; }
  cudaStream_t handle() { return worker::StreamHandle(*stream_); }

  // Device memory that holds values in [-1, 1) of a floating dtype; it stays as long as the bench.
  absl::StatusOr<worker::TensorView> Values(DType dtype, Shape shape);
  // Drops the memory of Values.
  void Drop() { buffers_.clear(); }

  // Microseconds of one of `calls` calls, call(0) to call(calls - 1); the least of some runs. `sequences`: of
  // attentions, with at most `longest` positions each.
  absl::StatusOr<double> Time(int calls, const std::function<absl::Status(int)>& call,
                              absl::Span<const worker::SequenceSpan> sequences = {}, int64_t longest = 64);
  // The same of work that can't be recorded.
  absl::StatusOr<double> TimePlain(int calls, const std::function<absl::Status(int)>& call);

 private:
  Bench(std::unique_ptr<worker::CudaDevice> device, std::unique_ptr<worker::Stream> stream, cudaEvent_t begin,
        cudaEvent_t end)
      : device_(std::move(device)), stream_(std::move(stream)), begin_(begin), end_(end) {}
  absl::StatusOr<double> Least(int calls, const std::function<absl::Status()>& run);

  const std::unique_ptr<worker::CudaDevice> device_;
  const std::unique_ptr<worker::Stream> stream_;
  const cudaEvent_t begin_, end_;
  std::vector<std::unique_ptr<worker::DeviceBuffer>> buffers_;
};

}  // namespace tp::testing
