#include "common/proto_convert/layout.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {

absl::Status FieldError(const std::string& field, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", text));
}

absl::Status AtField(const absl::Status& status, const std::string& field) { return Annotate(status, field); }

std::string Indexed(const std::string& name, int index) { return absl::StrCat(name, "[", index, "]"); }

absl::StatusOr<DType> DTypeFromProto(v1::DataType dtype, const std::string& field) {
  switch (dtype) {
    case v1::F32:
      return DType::kF32;
    case v1::BF16:
      return DType::kBF16;
    case v1::F16:
      return DType::kF16;
    case v1::F64:
      return DType::kF64;
    case v1::I64:
      return DType::kI64;
    case v1::I32:
      return DType::kI32;
    case v1::U8:
      return DType::kU8;
    case v1::BOOL:
      return DType::kBool;
    case v1::DATA_TYPE_UNSPECIFIED:
      return FieldError(field, "an element type is required (F32, BF16, F16, F64, I64, I32, U8 or BOOL)");
    default:
      return FieldError(field, absl::StrCat("unknown element type ", static_cast<int>(dtype),
                                            "; known are F32, BF16, F16, F64, I64, I32, U8 and BOOL"));
  }
}

v1::DataType DTypeToProto(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::F32;
    case DType::kBF16:
      return v1::BF16;
    case DType::kF16:
      return v1::F16;
    case DType::kF64:
      return v1::F64;
    case DType::kI64:
      return v1::I64;
    case DType::kI32:
      return v1::I32;
    case DType::kU8:
      return v1::U8;
    case DType::kBool:
      return v1::BOOL;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

constexpr int kMaxDims = 64;  // of a tensor

absl::StatusOr<Shape> ShapeFromProto(const google::protobuf::RepeatedField<int64_t>& shape, const std::string& field) {
  if (shape.size() > kMaxDims)
    return FieldError(field, absl::StrCat("has ", shape.size(), " dims; at most ", kMaxDims));
  Shape result(shape.begin(), shape.end());
  absl::StatusOr<int64_t> count = CheckedElementCount(result);
  if (!count.ok()) return AtField(count.status(), field);
  return result;
}

void ShapeToProto(const Shape& shape, google::protobuf::RepeatedField<int64_t>* proto) {
  proto->Assign(shape.begin(), shape.end());
}

absl::StatusOr<SymShape> SymShapeFromProto(const google::protobuf::RepeatedPtrField<std::string>& shape,
                                           const std::string& field) {
  SymShape result;
  for (int i = 0; i < shape.size(); ++i) {
    absl::StatusOr<Dim> dim = ParseDim(shape[i]);
    if (!dim.ok()) return AtField(dim.status(), Indexed(field, i));
    result.push_back(*std::move(dim));
  }
  return result;
}

absl::StatusOr<Mesh> MeshFromProto(const v1::Mesh& mesh, const std::string& field) {
  std::vector<MeshAxis> axes;
  for (const v1::MeshAxis& axis : mesh.axes()) axes.push_back({axis.name(), axis.size()});
  absl::StatusOr<Mesh> result = Mesh::Create(std::move(axes));
  if (!result.ok()) return AtField(result.status(), field);
  return result;
}

void MeshToProto(const std::vector<MeshAxis>& axes, v1::Mesh* proto) {
  proto->clear_axes();
  for (const MeshAxis& axis : axes) {
    v1::MeshAxis* added = proto->add_axes();
    added->set_name(axis.name);
    added->set_size(axis.size);
  }
}

namespace {

absl::StatusOr<ReduceOp> ReduceOpFromProto(v1::Placement::Partial::Op op, const std::string& field) {
  switch (op) {
    case v1::Placement::Partial::OP_SUM:
      return ReduceOp::kSum;
    case v1::Placement::Partial::OP_AVG:
      return ReduceOp::kAvg;
    case v1::Placement::Partial::OP_MIN:
      return ReduceOp::kMin;
    case v1::Placement::Partial::OP_MAX:
      return ReduceOp::kMax;
    case v1::Placement::Partial::OP_PRODUCT:
      return ReduceOp::kProduct;
    default:
      return FieldError(field, absl::StrCat("unknown reduction ", static_cast<int>(op),
                                            "; known are OP_SUM, OP_AVG, OP_MIN, OP_MAX and OP_PRODUCT"));
  }
}

v1::Placement::Partial::Op ReduceOpToProto(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return v1::Placement::Partial::OP_SUM;
    case ReduceOp::kAvg:
      return v1::Placement::Partial::OP_AVG;
    case ReduceOp::kMin:
      return v1::Placement::Partial::OP_MIN;
    case ReduceOp::kMax:
      return v1::Placement::Partial::OP_MAX;
    case ReduceOp::kProduct:
      return v1::Placement::Partial::OP_PRODUCT;
  }
  return v1::Placement::Partial::OP_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<Placement> PlacementFromProto(const v1::Placement& placement, const std::string& field) {
  switch (placement.kind_case()) {
    case v1::Placement::kReplicate:
      return Placement::Replicate();
    case v1::Placement::kShard:
      return Placement::Shard(placement.shard().dim());
    case v1::Placement::kPartial: {
      TP_ASSIGN_OR_RETURN(ReduceOp op, ReduceOpFromProto(placement.partial().op(), field + ".partial.op"));
      return Placement::Partial(op);
    }
    case v1::Placement::kStridedShard: {
      const auto& strided = placement.strided_shard();
      if (strided.split_factor() < 1) {
        return FieldError(field + ".strided_shard.split_factor",
                          absl::StrCat("is ", strided.split_factor(), "; must be at least 1"));
      }
      return Placement::StridedShard(strided.dim(), strided.split_factor());
    }
    case v1::Placement::kInterleavedShard: {
      const auto& interleaved = placement.interleaved_shard();
      const std::string parts_field = field + ".interleaved_shard.parts";
      if (interleaved.parts().empty()) return FieldError(parts_field, "at least one part is required");
      int64_t sum = 0;
      for (int i = 0; i < interleaved.parts_size(); ++i) {
        if (interleaved.parts(i) < 1 || __builtin_add_overflow(sum, interleaved.parts(i), &sum)) {
          return FieldError(Indexed(parts_field, i), absl::StrCat("is ", interleaved.parts(i), "; must be at least 1"));
        }
      }
      return Placement::InterleavedShard(interleaved.dim(),
                                         std::vector<int64_t>(interleaved.parts().begin(), interleaved.parts().end()));
    }
    case v1::Placement::kGroupShard:
      if (placement.group_shard().groups() < 1) {
        return FieldError(field + ".group_shard.groups",
                          absl::StrCat("is ", placement.group_shard().groups(), "; must be at least 1"));
      }
      return Placement::GroupShard(placement.group_shard().dim(), placement.group_shard().groups());
    case v1::Placement::KIND_NOT_SET:
      break;
  }
  return FieldError(field,
                    "exactly one of replicate, shard, partial, strided_shard, interleaved_shard and group_shard "
                    "must be set");
}

void PlacementToProto(const Placement& placement, v1::Placement* proto) {
  switch (placement.kind) {
    case PlacementKind::kReplicate:
      proto->mutable_replicate();
      break;
    case PlacementKind::kShard:
      proto->mutable_shard()->set_dim(placement.dim);
      break;
    case PlacementKind::kPartial:
      proto->mutable_partial()->set_op(ReduceOpToProto(placement.op));
      break;
    case PlacementKind::kStridedShard:
      proto->mutable_strided_shard()->set_dim(placement.dim);
      proto->mutable_strided_shard()->set_split_factor(placement.split_factor);
      break;
    case PlacementKind::kInterleavedShard:
      proto->mutable_interleaved_shard()->set_dim(placement.dim);
      proto->mutable_interleaved_shard()->mutable_parts()->Assign(placement.parts.begin(), placement.parts.end());
      break;
    case PlacementKind::kGroupShard:
      proto->mutable_group_shard()->set_dim(placement.dim);
      proto->mutable_group_shard()->set_groups(placement.groups);
      break;
  }
}

absl::StatusOr<Placements> PlacementsFromProto(const google::protobuf::RepeatedPtrField<v1::Placement>& placements,
                                               const std::string& field) {
  Placements result;
  for (int i = 0; i < placements.size(); ++i) {
    TP_ASSIGN_OR_RETURN(Placement placement, PlacementFromProto(placements[i], Indexed(field, i)));
    result.push_back(std::move(placement));
  }
  return result;
}

absl::StatusOr<Placements> CheckedPlacementsFromProto(
    const google::protobuf::RepeatedPtrField<v1::Placement>& placements, absl::Span<const int64_t> shape, DType dtype,
    const Mesh& mesh, const std::string& field) {
  TP_ASSIGN_OR_RETURN(Placements given, PlacementsFromProto(placements, field + ".placements"));
  absl::StatusOr<Placements> result = NormalizePlacements(given, static_cast<int>(shape.size()), dtype, mesh);
  if (!result.ok()) return AtField(result.status(), field);
  TP_RETURN_IF_ERROR(AtField(ValidateForShape(shape, *result, mesh), field));
  return result;
}

absl::StatusOr<Placements> NamedPlacementsFromProto(const google::protobuf::Map<std::string, v1::Placement>& placements,
                                                    const Mesh& mesh, const Placements& absent,
                                                    const std::string& field) {
  Placements result = absent;
  for (const auto& [axis, placement] : placements) {
    absl::StatusOr<int> index = mesh.AxisIndex(axis);
    if (!index.ok()) return AtField(index.status(), field);
    TP_ASSIGN_OR_RETURN(result[static_cast<size_t>(*index)],
                        PlacementFromProto(placement, absl::StrCat(field, "[", axis, "]")));
  }
  return result;
}

void PlacementsToProto(const Placements& placements, google::protobuf::RepeatedPtrField<v1::Placement>* proto) {
  proto->Clear();
  for (const Placement& placement : placements) PlacementToProto(placement, proto->Add());
}

absl::StatusOr<DTensorSpec> SpecFromProto(const v1::DTensorSpec& spec, const std::string& field) {
  DTensorSpec result;
  TP_ASSIGN_OR_RETURN(result.dtype, DTypeFromProto(spec.type().dtype(), field + ".type.dtype"));
  TP_ASSIGN_OR_RETURN(result.shape, SymShapeFromProto(spec.type().shape(), field + ".type.shape"));
  TP_ASSIGN_OR_RETURN(result.placements, PlacementsFromProto(spec.placements(), field + ".placements"));
  return result;
}

void SpecToProto(const DTensorSpec& spec, v1::DTensorSpec* proto) {
  proto->mutable_type()->set_dtype(DTypeToProto(spec.dtype));
  for (const Dim& dim : spec.shape) proto->mutable_type()->add_shape(dim.ToString());
  PlacementsToProto(spec.placements, proto->mutable_placements());
}

}  // namespace tp
