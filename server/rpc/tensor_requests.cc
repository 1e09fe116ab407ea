#include "server/rpc/tensor_requests.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"
#include "common/proto_convert/model.h"

namespace tp::server {
namespace {

// Id and digest of a request: equal for equal content, whatever the order of maps.
template <typename Request>
RequestHead HeadOf(const Request& request) {
  RequestHead head;
  head.request_id = request.request_id();
  Request content = request;
  content.clear_request_id();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    content.SerializeToCodedStream(&coded);
  }
  head.digest = absl::StrCat(std::string(Request::descriptor()->name()), " ", Sha256Hex(bytes));
  return head;
}

}  // namespace

absl::StatusOr<NamedPlacements> PlacementsOf(const google::protobuf::Map<std::string, v1::Placement>& placements,
                                             const std::string& field) {
  NamedPlacements named;
  for (const auto& [axis, placement] : placements) {
    TP_ASSIGN_OR_RETURN(named[axis], PlacementFromProto(placement, absl::StrCat(field, "[", axis.substr(0, 64), "]")));
  }
  return named;
}

absl::StatusOr<CreateMeshRequested> RequestFromProto(const v1::CreateMeshRequest& request) {
  CreateMeshRequested event;
  event.head = HeadOf(request);
  event.name = request.name();
  TP_ASSIGN_OR_RETURN(event.mesh, MeshFromProto(request.mesh(), "mesh"));
  event.workers.assign(request.workers().begin(), request.workers().end());
  return event;
}

absl::StatusOr<DeleteMeshRequested> RequestFromProto(const v1::DeleteMeshRequest& request) {
  return DeleteMeshRequested{HeadOf(request), request.name()};
}

absl::StatusOr<PutTensorRequested> RequestFromProto(const v1::PutTensorHeader& header) {
  PutTensorRequested event;
  event.head = HeadOf(header);
  event.name = header.name();
  event.mesh = header.mesh();
  TP_ASSIGN_OR_RETURN(event.placements, PlacementsOf(header.placements(), "placements"));
  TP_ASSIGN_OR_RETURN(event.dtype, DTypeFromProto(header.dtype(), "dtype"));
  TP_ASSIGN_OR_RETURN(event.shape, ShapeFromProto(header.shape(), "shape"));
  for (int i = 0; i < header.locals_size(); ++i) {
    LocalBlockShape local;
    local.rank = header.locals(i).rank();
    TP_ASSIGN_OR_RETURN(local.shape, ShapeFromProto(header.locals(i).shape(), Indexed("locals", i) + ".shape"));
    const absl::StatusOr<int64_t> bytes = CheckedBytes(local.shape, event.dtype);
    if (!bytes.ok()) return AtField(bytes.status(), Indexed("locals", i) + ".shape");
    event.locals.push_back(std::move(local));
  }
  event.infer_shape = header.infer_shape();
  if (header.infer_shape() && !header.shape().empty()) {
    return FieldError("infer_shape", "the shape is given, too; leave one out");
  }
  if (header.no_src_data_rank() && header.has_src_data_rank()) {
    return FieldError("no_src_data_rank", "src_data_rank is given, too; leave one out");
  }
  event.src_data_rank = header.src_data_rank();
  event.no_src_data_rank = header.no_src_data_rank();
  return event;
}

absl::StatusOr<CreateTensorRequested> RequestFromProto(const v1::CreateTensorRequest& request) {
  CreateTensorRequested event;
  event.head = HeadOf(request);
  event.name = request.name();
  event.mesh = request.mesh();
  TP_ASSIGN_OR_RETURN(event.placements, PlacementsOf(request.placements(), "placements"));
  TP_ASSIGN_OR_RETURN(event.dtype, DTypeFromProto(request.dtype(), "dtype"));
  TP_ASSIGN_OR_RETURN(event.shape, ShapeFromProto(request.shape(), "shape"));
  TP_ASSIGN_OR_RETURN(event.initializer, InitializerFromProto(request.initializer(), "initializer"));
  event.seed = request.seed();
  return event;
}

absl::StatusOr<RedistributeTensorRequested> RequestFromProto(const v1::RedistributeTensorRequest& request) {
  RedistributeTensorRequested event;
  event.head = HeadOf(request);
  event.name = request.name();
  event.mesh = request.mesh();
  TP_ASSIGN_OR_RETURN(event.placements, PlacementsOf(request.placements(), "placements"));
  event.as = request.as();
  return event;
}

absl::StatusOr<GetTensorRequested> RequestFromProto(const v1::GetTensorRequest& request) {
  GetTensorRequested event;
  event.name = request.name();
  event.local_blocks = request.local_blocks();
  return event;
}

absl::StatusOr<DeleteTensorRequested> RequestFromProto(const v1::DeleteTensorRequest& request) {
  return DeleteTensorRequested{HeadOf(request), request.name()};
}

absl::StatusOr<SaveTensorsRequested> RequestFromProto(const v1::SaveTensorsRequest& request) {
  SaveTensorsRequested event;
  event.head = HeadOf(request);
  event.directory = request.directory();
  event.names.assign(request.names().begin(), request.names().end());
  return event;
}

absl::StatusOr<LoadTensorsRequested> RequestFromProto(const v1::LoadTensorsRequest& request) {
  LoadTensorsRequested event;
  event.head = HeadOf(request);
  event.directory = request.directory();
  event.mesh = request.mesh();
  TP_ASSIGN_OR_RETURN(event.placements, PlacementsOf(request.placements(), "placements"));
  event.names.assign(request.names().begin(), request.names().end());
  return event;
}

}  // namespace tp::server
