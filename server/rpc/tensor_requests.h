// Requests about named meshes and tensors: messages -> events of the core. Errors are INVALID_ARGUMENT with the field's
// path; what needs the mesh or the tensor is checked by the core. Example:
//   TP_ASSIGN_OR_RETURN(CreateMeshRequested event, RequestFromProto(*request));
// Pure; RequestHead::call is set by the caller.
#pragma once

#include "absl/status/statusor.h"
#include "server/coordinator/events.h"
#include "tp/v1/coordinator.pb.h"

namespace tp::server {

// Axis name -> placement; whether a mesh has the axes is not checked.
absl::StatusOr<NamedPlacements> PlacementsOf(const google::protobuf::Map<std::string, v1::Placement>& placements,
                                             const std::string& field);

absl::StatusOr<CreateMeshRequested> RequestFromProto(const v1::CreateMeshRequest& request);
absl::StatusOr<DeleteMeshRequested> RequestFromProto(const v1::DeleteMeshRequest& request);
absl::StatusOr<PutTensorRequested> RequestFromProto(const v1::PutTensorHeader& header);
absl::StatusOr<CreateTensorRequested> RequestFromProto(const v1::CreateTensorRequest& request);
absl::StatusOr<RedistributeTensorRequested> RequestFromProto(const v1::RedistributeTensorRequest& request);
absl::StatusOr<GetTensorRequested> RequestFromProto(const v1::GetTensorRequest& request);
absl::StatusOr<DeleteTensorRequested> RequestFromProto(const v1::DeleteTensorRequest& request);
absl::StatusOr<SaveTensorsRequested> RequestFromProto(const v1::SaveTensorsRequest& request);
absl::StatusOr<LoadTensorsRequested> RequestFromProto(const v1::LoadTensorsRequest& request);

}  // namespace tp::server
