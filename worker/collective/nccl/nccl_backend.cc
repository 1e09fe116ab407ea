#include "worker/collective/nccl/nccl_backend.h"

#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/collective/nccl/nccl_address.h"
#include "worker/collective/nccl/nccl_communicator.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/memory.h"

namespace tp::worker {
namespace {

using cuda::CudaStatus;
using cuda::NcclStatus;

void LogAndExit(const std::string& why) {
  Log(LogLevel::kError, why);
  std::_Exit(1);
}

class NcclConnector : public Connector {
 public:
  NcclConnector(const NcclOptions& options, std::unique_ptr<Connector> host, NcclAddress address, int rank, int size)
      : options_(options),
        host_(std::move(host)),
        address_(FormatNcclAddress(address)),
        rank_(rank),
        size_(size),
        abort_(std::make_shared<AbortFlag>()) {}

  std::string Address() const override { return address_; }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::vector<std::string>& addresses,
                                                        absl::Time deadline) override {
    if (static_cast<int>(addresses.size()) != size_ || addresses[rank_] != address_) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " of ", size_, " is at ", address_, ", which the ",
                                                     addresses.size(), " addresses do not say"));
    }
    std::vector<NcclAddress> parsed;
    std::vector<std::string> hosts;
    for (const std::string& address : addresses) {
      TP_ASSIGN_OR_RETURN(NcclAddress one, ParseNcclAddress(address));
      hosts.push_back(one.host);
      parsed.push_back(std::move(one));
    }
    TP_RETURN_IF_ERROR(CheckNcclAddresses(parsed));
    ncclUniqueId id;
    if (parsed[0].id.size() != sizeof(id.internal)) {
      return absl::InvalidArgumentError(absl::StrCat("an NCCL id of ", parsed[0].id.size(), " bytes"));
    }
    std::memcpy(id.internal, parsed[0].id.data(), sizeof(id.internal));
    TP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host, host_->Connect(hosts, deadline));
    auto handles = std::make_unique<NcclHandles>(options_, abort_, std::move(host));
    TP_RETURN_IF_ERROR(handles->Connect(id, deadline));
    return CreateNcclCommunicator(options_, abort_, std::move(handles));
  }

  void Abort() override {
    abort_->Set("connecting was aborted");
    host_->Abort();
  }

 private:
  const NcclOptions options_;
  const std::unique_ptr<Connector> host_;
  const std::string address_;
  const int rank_, size_;
  const std::shared_ptr<AbortFlag> abort_;
};

class NcclBackend : public CollectiveBackend {
 public:
  NcclBackend(NcclOptions options, std::unique_ptr<CollectiveBackend> host, NcclAddress address)
      : options_(std::move(options)), host_(std::move(host)), address_(std::move(address)) {}

  std::string Describe() const override { return NcclVersionsText(address_); }
  absl::StatusOr<std::unique_ptr<Connector>> Listen(int rank, int size) override {
    TP_ASSIGN_OR_RETURN(std::unique_ptr<Connector> host, host_->Listen(rank, size));
    NcclAddress address = address_;
    address.host = host->Address();
    if (rank == 0) {
      ncclUniqueId id;
      TP_RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id), "an id of a group", ncclGetLastError(nullptr)));
      address.id.assign(id.internal, sizeof(id.internal));
    }
    return std::make_unique<NcclConnector>(options_, std::move(host), std::move(address), rank, size);
  }

 private:
  const NcclOptions options_;
  const std::unique_ptr<CollectiveBackend> host_;
  const NcclAddress address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveBackend>> CreateNcclBackend(NcclOptions options,
                                                                     std::unique_ptr<CollectiveBackend> host) {
  if (!options.end_process) options.end_process = LogAndExit;
  NcclAddress address;
  char bus[32] = "";
  TP_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetPCIBusId(bus, sizeof(bus), options.device), absl::StrCat("GPU ", options.device)));
  address.gpu = absl::StrCat(cuda::MachineId(), "/", bus);
  TP_RETURN_IF_ERROR(CudaStatus(cudaRuntimeGetVersion(&address.cuda), "CUDA's version"));
  TP_RETURN_IF_ERROR(NcclStatus(ncclGetVersion(&address.nccl), "NCCL's version"));
  return std::make_unique<NcclBackend>(std::move(options), std::move(host), std::move(address));
}

}  // namespace tp::worker
