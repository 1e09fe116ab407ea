// Client over gRPC. Each file here holds a part of its methods: models.cc, forward.cc, generate.cc, tensors.cc,
// tensor_streams.cc, grpc_client.cc (the rest). Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/tp_client/client.h"
#include "common/rpc/chunk.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::client {

// A request id that no other request has.
std::string NewRequestId();

// "READY" of "MODEL_STATE_READY"; unchanged without the prefix.
std::string StateName(const std::string& name, const char* prefix);

// Values of messages.
absl::StatusOr<TensorInfo> ToTensorInfo(const v1::TensorDescription& proto);
void PlacementsToMap(const NamedPlacements& placements, google::protobuf::Map<std::string, v1::Placement>* proto);

// Calls `write` with the pieces of `bytes`; stops where it returns false.
template <typename Write>
bool WriteChunks(uint32_t index, const std::string& bytes, const Write& write) {
  for (size_t offset = 0; offset < bytes.size(); offset += kChunkBytes) {
    if (!write(MakeChunk(index, bytes, offset))) return false;
  }
  return true;
}

class GrpcClient : public Client {
 public:
  using Client::Forward;
  using TensorClient::GetTensor;
  using TensorClient::PutTensor;

  explicit GrpcClient(const ClientOptions& options);

  absl::StatusOr<SubmitResult> Submit(const std::string& submission, const SubmitOptions& options) override;
  absl::StatusOr<ModelSummary> CreateModel(const std::string& submission, const std::string& name) override;
  absl::StatusOr<ModelSummary> InitStates(const std::string& name, bool buffers_on_cpu) override;
  absl::StatusOr<SubmitResult> Parallelize(const std::string& name, const ParallelizeOptions& options) override;
  absl::StatusOr<std::vector<ModelSummary>> ListModels() override;
  absl::StatusOr<ModelDescription> GetModel(const std::string& name, bool include_submission) override;
  absl::Status DeleteModel(const std::string& name) override;
  absl::Status WatchModel(const std::string& name, const std::function<bool(const ModelSummary&)>& on_change) override;
  absl::StatusOr<ForwardResult> Forward(const ForwardRequest& request) override;
  absl::Status Generate(const GenerateOptions& options,
                        const std::function<bool(const GenerateChunk&)>& on_chunk) override;
  absl::StatusOr<std::vector<WorkerInfo>> ListWorkers() override;
  absl::StatusOr<StatusInfo> GetStatus() override;

  absl::StatusOr<MeshInfo> CreateMesh(const std::string& name, const Mesh& mesh,
                                      const std::vector<std::string>& workers) override;
  absl::StatusOr<std::vector<MeshInfo>> ListMeshes() override;
  absl::Status DeleteMesh(const std::string& name) override;
  absl::StatusOr<TensorInfo> PutTensor(const PutTensorOptions& options, const ReadTensorBytes& read) override;
  absl::StatusOr<TensorInfo> CreateTensor(const CreateTensorOptions& options) override;
  absl::StatusOr<RedistributeResult> RedistributeTensor(const RedistributeOptions& options) override;
  absl::Status GetTensor(const std::string& name, bool local_blocks, TensorSink* sink) override;
  absl::StatusOr<TensorDescription> DescribeTensor(const std::string& name) override;
  absl::StatusOr<std::vector<TensorInfo>> ListTensors() override;
  absl::Status DeleteTensor(const std::string& name) override;
  absl::StatusOr<SaveResult> SaveTensors(const std::string& directory, const std::vector<std::string>& names) override;
  absl::StatusOr<LoadResult> LoadTensors(const LoadOptions& options) override;

 private:
  // Sets the deadline.
  void Prepare(grpc::ClientContext* context) const;
  // Names the address where nobody answers.
  absl::Status Finish(const grpc::Status& status) const;
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    Prepare(&context);
    return Finish((stub_.get()->*method)(&context, request, response));
  }

  const ClientOptions options_;
  const std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

}  // namespace tp::client
