#include "server/rpc/describe.h"

#include "absl/strings/str_cat.h"
#include "common/program/memory.h"
#include "common/proto_convert/command.h"
#include "common/proto_convert/layout.h"

namespace tp::server {
namespace {

v1::ModelState PhaseToProto(ModelPhase phase) {
  switch (phase) {
    case ModelPhase::kCreated:
      return v1::MODEL_STATE_CREATED;
    case ModelPhase::kLoading:
      return v1::MODEL_STATE_LOADING;
    case ModelPhase::kReady:
      return v1::MODEL_STATE_READY;
    case ModelPhase::kFailed:
      return v1::MODEL_STATE_FAILED;
    case ModelPhase::kDeleting:
      return v1::MODEL_STATE_DELETING;
  }
  return v1::MODEL_STATE_UNSPECIFIED;
}

void DescribeState(const PlacedState& placed, const Mesh& mesh, v1::ParameterDescription* proto) {
  proto->set_name(placed.state.path);
  ShapeToProto(placed.state.shape, proto->mutable_shape());
  proto->set_dtype(DTypeToProto(placed.state.dtype));
  PlacementsToProto(placed.placements, proto->mutable_placements());
  proto->set_buffer(placed.state.buffer);
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    const Coordinate coordinate = mesh.CoordinateOf(rank);
    v1::LocalBlock* block = proto->add_local();
    block->set_rank(rank);
    ShapeToProto(LocalShape(placed.state.shape, placed.placements, mesh, coordinate), block->mutable_shape());
    ShapeToProto(LocalOffset(placed.state.shape, placed.placements, mesh, coordinate), block->mutable_offset());
  }
}

}  // namespace

v1::ModelSummary Summary(const ModelState& model) {
  v1::ModelSummary summary;
  summary.set_name(model.name);
  summary.set_state(PhaseToProto(model.phase));
  if (model.compiled != nullptr) {
    MeshToProto(model.compiled->mesh.axes(), summary.mutable_mesh());
    summary.set_fingerprint(model.compiled->fingerprint);
  }
  if (!model.error.ok()) {
    summary.set_error(CutStatusText(
        absl::StrCat(absl::StatusCodeToString(model.error.code()), ": ", std::string(model.error.message()))));
  }
  int64_t parameters = 0, done = 0, total = 0;
  for (const ModelRank& rank : model.ranks) {
    parameters += rank.parameter_bytes;
    done += rank.done_bytes;
    total += rank.total_bytes;
  }
  summary.set_parameter_bytes(static_cast<uint64_t>(parameters));
  summary.set_loaded_bytes(static_cast<uint64_t>(done));
  summary.set_total_bytes(static_cast<uint64_t>(total));
  return summary;
}

v1::ModelSummary DryRunSummary(const Submission& submission, const CompiledModel& compiled) {
  v1::ModelSummary summary;
  summary.set_name(submission.name);
  summary.set_state(v1::MODEL_STATE_CREATED);
  MeshToProto(compiled.mesh.axes(), summary.mutable_mesh());
  summary.set_fingerprint(compiled.fingerprint);
  int64_t parameters = 0;
  for (const PlacedState& placed : compiled.states) {
    if (placed.state.buffer) continue;
    for (int rank = 0; rank < compiled.mesh.rank_count(); ++rank) {
      parameters += ElementCount(LocalShape(placed.state.shape, placed.placements, compiled.mesh,
                                            compiled.mesh.CoordinateOf(rank))) *
                    ItemSize(placed.state.dtype);
    }
  }
  summary.set_parameter_bytes(static_cast<uint64_t>(parameters));
  return summary;
}

void Describe(const ModelState& model, v1::GetModelResponse* response) {
  if (model.compiled != nullptr) {
    for (const PlacedState& placed : model.compiled->states) {
      DescribeState(placed, model.compiled->mesh, response->add_parameters());
    }
    for (const PlacedModule& module : model.compiled->modules) {
      v1::ModuleDescription* added = response->add_modules();
      added->set_path(module.path);
      added->set_kind(module.type_name);
      added->set_style(module.style);
      for (const std::string& input : module.inputs) added->add_inputs(input);
      for (const std::string& output : module.outputs) added->add_outputs(output);
    }
  }
  for (size_t rank = 0; rank < model.ranks.size(); ++rank) {
    v1::ModelWorker* worker = response->add_workers();
    worker->set_id(model.ranks[rank].worker);
    worker->set_rank(static_cast<int32_t>(rank));
    worker->set_bytes_read(static_cast<uint64_t>(model.ranks[rank].bytes_read));
    worker->set_parameter_bytes(static_cast<uint64_t>(model.ranks[rank].parameter_bytes));
  }
  if (model.submission != nullptr) {
    for (const ModelInput& input : model.submission->model.inputs) {
      response->add_input_names(input.name);
      v1::TensorType* type = response->add_input_types();
      type->set_dtype(DTypeToProto(input.dtype));
      for (const Dim& dim : input.shape) type->add_shape(dim.ToString());
    }
    response->set_generates(model.submission->model.generation.has_value());
  }
}

v1::WorkerDescription DescribeWorker(const WorkerState& worker, const Core& core) {
  v1::WorkerDescription proto;
  proto.set_id(worker.description.id);
  proto.set_host(worker.description.host);
  proto.set_device(worker.description.device);
  proto.set_healthy(worker.healthy);
  proto.set_reason(worker.reason);
  proto.set_memory_limit_bytes(static_cast<uint64_t>(worker.description.memory_limit_bytes));
  proto.set_used_bytes(static_cast<uint64_t>(worker.used_bytes));
  proto.set_pid(worker.description.pid);
  proto.set_version(worker.description.version);
  for (const auto& [name, model] : core.models()) {
    for (size_t rank = 0; rank < model.ranks.size(); ++rank) {
      if (model.ranks[rank].worker != worker.description.id) continue;
      proto.add_models(name);
      proto.add_ranks(static_cast<int32_t>(rank));
    }
  }
  return proto;
}

}  // namespace tp::server
