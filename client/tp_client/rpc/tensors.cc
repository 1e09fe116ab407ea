// GrpcClient: meshes, and the calls on tensors that carry no values.
#include "client/tp_client/rpc/grpc_client.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"
#include "common/proto_convert/model.h"

namespace tp::client {
namespace {

absl::StatusOr<MeshInfo> ToMeshInfo(const v1::MeshDescription& proto) {
  MeshInfo mesh{.name = proto.name(),
                .state = StateName(v1::MeshState_Name(proto.state()), "MESH_STATE_"),
                .error = proto.error(),
                .workers = {proto.workers().begin(), proto.workers().end()},
                .epoch = static_cast<int64_t>(proto.epoch()),
                .tensors = {proto.tensors().begin(), proto.tensors().end()}};
  TP_ASSIGN_OR_RETURN(mesh.mesh, MeshFromProto(proto.mesh(), "mesh"));
  return mesh;
}

std::vector<RedistributeStepCount> ToSteps(const google::protobuf::RepeatedPtrField<v1::RedistributeStepCount>& from) {
  std::vector<RedistributeStepCount> steps;
  for (const v1::RedistributeStepCount& step : from)
    steps.push_back({step.op(), step.axis(), static_cast<int64_t>(step.bytes())});
  return steps;
}

absl::StatusOr<std::vector<TensorInfo>> ToTensorInfos(
    const google::protobuf::RepeatedPtrField<v1::TensorDescription>& from) {
  std::vector<TensorInfo> tensors;
  for (const v1::TensorDescription& proto : from) {
    TP_ASSIGN_OR_RETURN(TensorInfo tensor, ToTensorInfo(proto));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<TensorInfo> ToTensorInfo(const v1::TensorDescription& proto) {
  TensorInfo tensor{.name = proto.name(),
                    .mesh_name = proto.mesh(),
                    .state = StateName(v1::TensorState_Name(proto.state()), "TENSOR_STATE_"),
                    .error = proto.error()};
  TP_ASSIGN_OR_RETURN(tensor.mesh, MeshFromProto(proto.axes(), "tensor.axes"));
  TP_ASSIGN_OR_RETURN(tensor.dtype, DTypeFromProto(proto.dtype(), "tensor.dtype"));
  TP_ASSIGN_OR_RETURN(tensor.shape, ShapeFromProto(proto.shape(), "tensor.shape"));
  TP_ASSIGN_OR_RETURN(tensor.placements, CheckedPlacementsFromProto(proto.placements(), tensor.shape, tensor.dtype,
                                                                    tensor.mesh, "tensor.placements"));
  return tensor;
}

void PlacementsToMap(const NamedPlacements& placements, google::protobuf::Map<std::string, v1::Placement>* proto) {
  for (const auto& [axis, placement] : placements) PlacementToProto(placement, &(*proto)[axis]);
}

absl::StatusOr<MeshInfo> GrpcClient::CreateMesh(const std::string& name, const Mesh& mesh,
                                                const std::vector<std::string>& workers) {
  v1::CreateMeshRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(name);
  MeshToProto(mesh.axes(), request.mutable_mesh());
  request.mutable_workers()->Assign(workers.begin(), workers.end());
  v1::CreateMeshResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::CreateMesh, request, &response));
  return ToMeshInfo(response.mesh());
}

absl::StatusOr<std::vector<MeshInfo>> GrpcClient::ListMeshes() {
  v1::ListMeshesResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::ListMeshes, v1::ListMeshesRequest(), &response));
  std::vector<MeshInfo> meshes;
  for (const v1::MeshDescription& proto : response.meshes()) {
    TP_ASSIGN_OR_RETURN(MeshInfo mesh, ToMeshInfo(proto));
    meshes.push_back(std::move(mesh));
  }
  return meshes;
}

absl::Status GrpcClient::DeleteMesh(const std::string& name) {
  v1::DeleteMeshRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(name);
  v1::DeleteMeshResponse response;
  return Call(&v1::CoordinatorService::Stub::DeleteMesh, request, &response);
}

absl::StatusOr<TensorInfo> GrpcClient::CreateTensor(const CreateTensorOptions& options) {
  v1::CreateTensorRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(options.name);
  request.set_mesh(options.mesh);
  PlacementsToMap(options.placements, request.mutable_placements());
  request.set_dtype(DTypeToProto(options.dtype));
  ShapeToProto(options.shape, request.mutable_shape());
  InitializerToProto(options.initializer, request.mutable_initializer());
  request.set_seed(options.seed);
  v1::CreateTensorResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::CreateTensor, request, &response));
  return ToTensorInfo(response.tensor());
}

absl::StatusOr<RedistributeResult> GrpcClient::RedistributeTensor(const RedistributeOptions& options) {
  v1::RedistributeTensorRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(options.name);
  request.set_mesh(options.mesh);
  PlacementsToMap(options.placements, request.mutable_placements());
  request.set_as(options.as);
  v1::RedistributeTensorResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::RedistributeTensor, request, &response));
  RedistributeResult result{.tensor = {},
                            .steps = ToSteps(response.steps()),
                            .counted = ToSteps(response.counted()),
                            .wire_bytes = static_cast<int64_t>(response.wire_bytes()),
                            .duration_us = static_cast<int64_t>(response.duration_us())};
  TP_ASSIGN_OR_RETURN(result.tensor, ToTensorInfo(response.tensor()));
  return result;
}

absl::StatusOr<TensorDescription> GrpcClient::DescribeTensor(const std::string& name) {
  v1::DescribeTensorRequest request;
  request.set_name(name);
  v1::DescribeTensorResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::DescribeTensor, request, &response));
  TensorDescription description;
  TP_ASSIGN_OR_RETURN(description.tensor, ToTensorInfo(response.tensor()));
  for (const v1::TensorShard& shard : response.shards())
    description.shards.push_back({.rank = shard.rank(),
                                  .worker = shard.worker(),
                                  .offset = {shard.offset().begin(), shard.offset().end()},
                                  .shape = {shard.shape().begin(), shard.shape().end()},
                                  .bytes = static_cast<int64_t>(shard.size_bytes())});
  return description;
}

absl::StatusOr<std::vector<TensorInfo>> GrpcClient::ListTensors() {
  v1::ListTensorsResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::ListTensors, v1::ListTensorsRequest(), &response));
  return ToTensorInfos(response.tensors());
}

absl::Status GrpcClient::DeleteTensor(const std::string& name) {
  v1::DeleteTensorRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(name);
  v1::DeleteTensorResponse response;
  return Call(&v1::CoordinatorService::Stub::DeleteTensor, request, &response);
}

absl::StatusOr<SaveResult> GrpcClient::SaveTensors(const std::string& directory,
                                                   const std::vector<std::string>& names) {
  v1::SaveTensorsRequest request;
  request.set_request_id(NewRequestId());
  request.set_directory(directory);
  request.mutable_names()->Assign(names.begin(), names.end());
  v1::SaveTensorsResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::SaveTensors, request, &response));
  return SaveResult{{response.files().begin(), response.files().end()}, static_cast<int64_t>(response.size_bytes())};
}

absl::StatusOr<LoadResult> GrpcClient::LoadTensors(const LoadOptions& options) {
  v1::LoadTensorsRequest request;
  request.set_request_id(NewRequestId());
  request.set_directory(options.directory);
  request.set_mesh(options.mesh);
  PlacementsToMap(options.placements, request.mutable_placements());
  request.mutable_names()->Assign(options.names.begin(), options.names.end());
  v1::LoadTensorsResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::LoadTensors, request, &response));
  LoadResult result{.tensors = {}, .bytes_read = static_cast<int64_t>(response.bytes_read())};
  TP_ASSIGN_OR_RETURN(result.tensors, ToTensorInfos(response.tensors()));
  return result;
}

}  // namespace tp::client
