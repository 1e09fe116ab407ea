#include "client/tp_client/rpc/grpc_client.h"

#include <atomic>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace tp::client {
std::string NewRequestId() {
  static std::atomic<uint64_t> count{0};
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8), "-", ++count);
}

std::string StateName(const std::string& name, const char* prefix) {
  return std::string(absl::StripPrefix(name, prefix));
}

GrpcClient::GrpcClient(const ClientOptions& options)
    : options_(options), stub_(v1::CoordinatorService::NewStub(CreateChannel(options.server, {.tls = options.tls}))) {}

absl::StatusOr<std::vector<WorkerInfo>> GrpcClient::ListWorkers() {
  v1::ListWorkersResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::ListWorkers, v1::ListWorkersRequest(), &response));
  std::vector<WorkerInfo> workers;
  for (const v1::WorkerDescription& from : response.workers()) {
    WorkerInfo worker{.id = from.id(),
                      .host = from.host(),
                      .device = from.device(),
                      .reason = from.reason(),
                      .version = from.version(),
                      .healthy = from.healthy(),
                      .memory_limit_bytes = static_cast<int64_t>(from.memory_limit_bytes()),
                      .used_bytes = static_cast<int64_t>(from.used_bytes()),
                      .pid = from.pid()};
    for (int i = 0; i < from.models_size() && i < from.ranks_size(); ++i) {
      worker.models.push_back(from.models(i));
      worker.ranks.push_back(from.ranks(i));
    }
    for (int i = 0; i < from.meshes_size() && i < from.mesh_ranks_size(); ++i) {
      worker.meshes.push_back(from.meshes(i));
      worker.mesh_ranks.push_back(from.mesh_ranks(i));
    }
    workers.push_back(std::move(worker));
  }
  return workers;
}

absl::StatusOr<StatusInfo> GrpcClient::GetStatus() {
  v1::GetStatusResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::GetStatus, v1::GetStatusRequest(), &response));
  return StatusInfo{.version = response.version(),
                    .term = static_cast<int64_t>(response.term()),
                    .uptime_ms = static_cast<int64_t>(response.uptime_ms()),
                    .workers_healthy = response.workers_healthy(),
                    .workers = response.workers(),
                    .models_ready = response.models_ready(),
                    .models = response.models(),
                    .requests = response.requests(),
                    .meshes = response.meshes(),
                    .tensors = response.tensors()};
}

void GrpcClient::Prepare(grpc::ClientContext* context) const {
  if (options_.timeout == absl::InfiniteDuration()) return;
  context->set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
}

absl::Status GrpcClient::Finish(const grpc::Status& status) const {
  const absl::Status converted = FromGrpcStatus(status);
  if (absl::IsUnavailable(converted) && absl::StrContains(converted.message(), "failed to connect"))
    return WithTlsHint(
        absl::UnavailableError(absl::StrCat("no coordinator answers at ", options_.server, ": ", converted.message())),
        options_.tls);
  return converted;
}

std::unique_ptr<Client> Connect(const ClientOptions& options) { return std::make_unique<GrpcClient>(options); }

}  // namespace tp::client
