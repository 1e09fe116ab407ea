// Messages <-> values of types, shapes, meshes and placements. This folder is the only translation between both; every
// enum, size and name from the wire is checked, and errors name the field. Example:
//   TP_ASSIGN_OR_RETURN(Mesh mesh, MeshFromProto(header.mesh(), "header.mesh"));
// Pure. All errors are INVALID_ARGUMENT with `field` in front.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/spec.h"
#include "common/mesh/mesh.h"
#include "common/tensor/dim.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "tp/v1/mesh.pb.h"
#include "tp/v1/placement.pb.h"
#include "tp/v1/tensor.pb.h"

namespace tp {

// "field: text" as INVALID_ARGUMENT.
absl::Status FieldError(const std::string& field, const std::string& text);
// `status` with "field: " in front.
absl::Status AtField(const absl::Status& status, const std::string& field);
// "name[index]".
std::string Indexed(const std::string& name, int index);

// DATA_TYPE_UNSPECIFIED and unknown values are refused.
absl::StatusOr<DType> DTypeFromProto(v1::DataType dtype, const std::string& field);
v1::DataType DTypeToProto(DType dtype);

// More than 64 dims, negative sizes and products over 2^62 are refused.
absl::StatusOr<Shape> ShapeFromProto(const google::protobuf::RepeatedField<int64_t>& shape, const std::string& field);
void ShapeToProto(const Shape& shape, google::protobuf::RepeatedField<int64_t>* proto);
absl::StatusOr<SymShape> SymShapeFromProto(const google::protobuf::RepeatedPtrField<std::string>& shape,
                                           const std::string& field);

// No axes give a mesh of one rank.
absl::StatusOr<Mesh> MeshFromProto(const v1::Mesh& mesh, const std::string& field);
void MeshToProto(const std::vector<MeshAxis>& axes, v1::Mesh* proto);

// Dims stay as written (negative ones too); split factors, groups and parts below 1 are refused.
absl::StatusOr<Placement> PlacementFromProto(const v1::Placement& placement, const std::string& field);
void PlacementToProto(const Placement& placement, v1::Placement* proto);
absl::StatusOr<Placements> PlacementsFromProto(const google::protobuf::RepeatedPtrField<v1::Placement>& placements,
                                               const std::string& field);
// Normalised and checked against the tensor and its mesh.
absl::StatusOr<Placements> CheckedPlacementsFromProto(
    const google::protobuf::RepeatedPtrField<v1::Placement>& placements, absl::Span<const int64_t> shape, DType dtype,
    const Mesh& mesh, const std::string& field);
// Axis name -> placement. INVALID_ARGUMENT for a name that the mesh has not; an axis that is not named gets `absent`'s.
absl::StatusOr<Placements> NamedPlacementsFromProto(const google::protobuf::Map<std::string, v1::Placement>& placements,
                                                    const Mesh& mesh, const Placements& absent,
                                                    const std::string& field);
void PlacementsToProto(const Placements& placements, google::protobuf::RepeatedPtrField<v1::Placement>* proto);

absl::StatusOr<DTensorSpec> SpecFromProto(const v1::DTensorSpec& spec, const std::string& field);
void SpecToProto(const DTensorSpec& spec, v1::DTensorSpec* proto);

}  // namespace tp
