#include "tests/device/check.h"

#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "worker/collective/nccl/nccl_backend.h"

namespace tp::testing {

CheckOptions& Options() {
  static CheckOptions options;
  return options;
}

absl::StatusOr<std::unique_ptr<worker::CudaDevice>> OpenGpu(bool tf32) {
  return worker::CreateCudaDevice({.ordinal = 0, .tf32 = tf32});
}

absl::StatusOr<std::unique_ptr<worker::CollectiveBackend>> OpenNccl(worker::Device& device,
                                                                    std::unique_ptr<worker::CollectiveBackend> host) {
  auto& gpu = static_cast<worker::CudaDevice&>(device);
  return worker::CreateNcclBackend(
      {.device = gpu.ordinal(), .stream_of = worker::StreamHandle, .watches = &gpu.watches()}, std::move(host));
}

void Report(const Row& row) {
  const std::string number = absl::StrFormat("%.6g", row.number);
  const std::string share = row.ceiling.empty() ? "" : absl::StrFormat("%.4f", row.share);
  if (row.result == "measured") {
    std::printf("%s: %s %s%s\n", row.name.c_str(), number.c_str(), row.unit.c_str(),
                share.empty() ? "" : absl::StrFormat(" (%s of %s)", share, row.ceiling).c_str());
    std::fflush(stdout);
  }
  if (Options().rows.empty()) return;
  std::ofstream file(Options().rows, std::ios::app);
  file << row.part << '\t' << row.name << '\t' << row.result << '\t' << number << '\t' << row.unit << '\t' << share
       << '\t' << row.ceiling << '\n';
}

}  // namespace tp::testing
