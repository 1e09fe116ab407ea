#include <utility>

#include "common/base/check.h"
#include "tests/support/runtime_cluster.h"
#include "worker/device/cpu/cpu_device.h"

namespace tp::testing {
namespace {

std::vector<std::unique_ptr<worker::Device>> CpuDevices(int ranks, const RuntimeCluster::WrapDevice& wrap) {
  std::vector<std::unique_ptr<worker::Device>> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    absl::StatusOr<std::unique_ptr<worker::Device>> device = worker::CreateCpuDevice({.threads = 1});
    TP_CHECK(device.ok());
    devices.push_back(wrap ? wrap(rank, *std::move(device)) : *std::move(device));
  }
  return devices;
}

}  // namespace

RuntimeCluster::RuntimeCluster(int ranks, WrapDevice wrap, worker::WorkerRuntimeOptions options,
                               WrapBackend wrap_backend)
    : RuntimeCluster(CpuDevices(ranks, wrap), std::move(options), wrap_backend) {}

}  // namespace tp::testing
