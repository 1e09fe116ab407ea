// GrpcClient: models.
#include "client/tp_client/rpc/grpc_client.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"
#include "common/proto_convert/model.h"

namespace tp::client {
namespace {

absl::StatusOr<ModelSummary> ToSummary(const v1::ModelSummary& proto) {
  ModelSummary summary{.name = proto.name(),
                       .state = StateName(v1::ModelState_Name(proto.state()), "MODEL_STATE_"),
                       .error = proto.error(),
                       .fingerprint = proto.fingerprint(),
                       .parameter_bytes = static_cast<int64_t>(proto.parameter_bytes()),
                       .loaded_bytes = static_cast<int64_t>(proto.loaded_bytes()),
                       .total_bytes = static_cast<int64_t>(proto.total_bytes())};
  if (!proto.has_mesh()) return summary;  // not parallelized yet
  TP_ASSIGN_OR_RETURN(summary.mesh, MeshFromProto(proto.mesh(), "mesh"));
  return summary;
}

absl::StatusOr<ModelDescription> ToDescription(const v1::GetModelResponse& proto) {
  ModelDescription model;
  TP_ASSIGN_OR_RETURN(model.summary, ToSummary(proto.model()));
  for (const v1::ParameterDescription& from : proto.parameters()) {
    ParameterDescription parameter{.name = from.name(), .buffer = from.buffer()};
    TP_ASSIGN_OR_RETURN(parameter.shape, ShapeFromProto(from.shape(), "shape"));
    TP_ASSIGN_OR_RETURN(parameter.dtype, DTypeFromProto(from.dtype(), "dtype"));
    TP_ASSIGN_OR_RETURN(parameter.placements, PlacementsFromProto(from.placements(), "placements"));
    for (const v1::LocalBlock& block : from.local())
      parameter.local.push_back({block.rank(), Shape(block.shape().begin(), block.shape().end()),
                                 Shape(block.offset().begin(), block.offset().end())});
    model.parameters.push_back(std::move(parameter));
  }
  for (const v1::ModuleDescription& from : proto.modules())
    model.modules.push_back({from.path(), from.kind(), from.style(),
                             std::vector<std::string>(from.inputs().begin(), from.inputs().end()),
                             std::vector<std::string>(from.outputs().begin(), from.outputs().end())});
  for (const v1::ModelWorker& from : proto.workers())
    model.workers.push_back({from.id(), from.rank(), static_cast<int64_t>(from.bytes_read()),
                             static_cast<int64_t>(from.parameter_bytes())});
  for (int i = 0; i < proto.input_types_size() && i < proto.input_names_size(); ++i) {
    InputType input{.name = proto.input_names(i)};
    TP_ASSIGN_OR_RETURN(input.dtype, DTypeFromProto(proto.input_types(i).dtype(), "dtype"));
    TP_ASSIGN_OR_RETURN(input.shape, SymShapeFromProto(proto.input_types(i).shape(), "shape"));
    model.inputs.push_back(std::move(input));
  }
  model.generates = proto.generates();
  model.submission = proto.submission();
  return model;
}

// Completes the header, sends it and the submission's chunks, and ends the call.
template <typename Request>
grpc::Status Upload(grpc::ClientWriter<Request>* writer, Request* first, const std::string& submission) {
  first->mutable_header()->set_request_id(NewRequestId());
  first->mutable_header()->set_size_bytes(submission.size());
  if (writer->Write(*first)) {
    WriteChunks(0, submission, [&](v1::Chunk chunk) {
      Request request;
      *request.mutable_chunk() = std::move(chunk);
      return writer->Write(request);
    });
  }
  writer->WritesDone();
  return writer->Finish();
}

}  // namespace

absl::StatusOr<SubmitResult> GrpcClient::Submit(const std::string& submission, const SubmitOptions& options) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::SubmitResponse response;
  auto writer = stub_->Submit(&context, &response);
  v1::SubmitRequest first;
  v1::SubmitHeader* header = first.mutable_header();
  header->set_name(options.name);
  if (!options.mesh.empty()) MeshToProto(options.mesh, header->mutable_mesh());
  header->set_dry_run(options.dry_run);
  header->set_replace(options.replace);
  TP_RETURN_IF_ERROR(Finish(Upload(writer.get(), &first, submission)));
  SubmitResult result;
  TP_ASSIGN_OR_RETURN(result.model, ToSummary(response.model()));
  result.warnings.assign(response.warnings().begin(), response.warnings().end());
  if (response.has_taken_over()) {
    const v1::TakenOver& taken = response.taken_over();
    result.taken_over = {taken.states(), static_cast<int64_t>(taken.size_bytes()),
                         static_cast<int64_t>(taken.wire_bytes()), static_cast<int64_t>(taken.bytes_read())};
  }
  return result;
}

absl::StatusOr<ModelSummary> GrpcClient::CreateModel(const std::string& submission, const std::string& name) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::CreateModelResponse response;
  auto writer = stub_->CreateModel(&context, &response);
  v1::CreateModelRequest first;
  first.mutable_header()->set_name(name);
  TP_RETURN_IF_ERROR(Finish(Upload(writer.get(), &first, submission)));
  return ToSummary(response.model());
}

absl::StatusOr<ModelSummary> GrpcClient::InitStates(const std::string& name, bool buffers_on_cpu) {
  v1::InitStatesRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(name);
  request.set_buffer_device(buffers_on_cpu ? v1::BUFFER_DEVICE_CPU : v1::BUFFER_DEVICE_DEVICE);
  v1::InitStatesResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::InitStates, request, &response));
  return ToSummary(response.model());
}

absl::StatusOr<SubmitResult> GrpcClient::Parallelize(const std::string& name, const ParallelizeOptions& options) {
  v1::ParallelizeRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(name);
  if (!options.own_plan) PlanToProto(options.plan, request.mutable_plan());
  if (!options.mesh.empty()) MeshToProto(options.mesh, request.mutable_mesh());
  v1::ParallelizeResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::Parallelize, request, &response));
  SubmitResult result;
  TP_ASSIGN_OR_RETURN(result.model, ToSummary(response.model()));
  result.warnings.assign(response.warnings().begin(), response.warnings().end());
  return result;
}

absl::StatusOr<std::vector<ModelSummary>> GrpcClient::ListModels() {
  v1::ListModelsResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::ListModels, v1::ListModelsRequest(), &response));
  std::vector<ModelSummary> models;
  for (const v1::ModelSummary& proto : response.models()) {
    TP_ASSIGN_OR_RETURN(ModelSummary summary, ToSummary(proto));
    models.push_back(std::move(summary));
  }
  return models;
}

absl::StatusOr<ModelDescription> GrpcClient::GetModel(const std::string& name, bool include_submission) {
  v1::GetModelRequest request;
  request.set_name(name);
  request.set_include_submission(include_submission);
  v1::GetModelResponse response;
  TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::GetModel, request, &response));
  return ToDescription(response);
}

absl::Status GrpcClient::DeleteModel(const std::string& name) {
  v1::DeleteModelRequest request;
  request.set_request_id(NewRequestId());
  request.set_name(name);
  v1::DeleteModelResponse response;
  return Call(&v1::CoordinatorService::Stub::DeleteModel, request, &response);
}

absl::Status GrpcClient::WatchModel(const std::string& name,
                                    const std::function<bool(const ModelSummary&)>& on_change) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::WatchModelRequest request;
  request.set_name(name);
  auto reader = stub_->WatchModel(&context, request);
  v1::WatchModelResponse response;
  while (reader->Read(&response)) {
    TP_ASSIGN_OR_RETURN(ModelSummary summary, ToSummary(response.model()));
    if (on_change(summary)) continue;
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    (void)reader->Finish();
    return absl::OkStatus();
  }
  return Finish(reader->Finish());
}

}  // namespace tp::client
