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
    case ModelPhase::kInitialised:
      return v1::MODEL_STATE_INITIALISED;
    case ModelPhase::kParallelized:
      return v1::MODEL_STATE_PARALLELIZED;
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

void DescribeTakenOver(const ModelState& model, v1::TakenOver* proto) {
  proto->set_states(model.taken_over.states);
  proto->set_size_bytes(static_cast<uint64_t>(model.taken_over.bytes));
  proto->set_wire_bytes(static_cast<uint64_t>(model.taken_over.wire_bytes));
  int64_t read = 0;
  for (const ModelRank& rank : model.ranks) read += rank.bytes_read;
  proto->set_bytes_read(static_cast<uint64_t>(read));
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
  for (const auto& [name, mesh] : core.named_meshes()) {
    const std::vector<std::string>& workers = core.meshes().at(mesh.mesh_id).workers;
    for (size_t rank = 0; rank < workers.size(); ++rank) {
      if (workers[rank] != worker.description.id) continue;
      proto.add_meshes(name);
      proto.add_mesh_ranks(static_cast<int32_t>(rank));
    }
  }
  return proto;
}

v1::MeshDescription DescriptionOf(const NamedMesh& mesh, const Core& core) {
  const MeshState& state = core.meshes().at(mesh.mesh_id);
  v1::MeshDescription proto;
  proto.set_name(mesh.name);
  MeshToProto(state.mesh.axes(), proto.mutable_mesh());
  for (const std::string& worker : state.workers) proto.add_workers(worker);
  switch (mesh.phase) {
    case NamedMeshPhase::kConnecting:
      proto.set_state(v1::MESH_STATE_CONNECTING);
      break;
    case NamedMeshPhase::kReady:
      proto.set_state(v1::MESH_STATE_READY);
      break;
    case NamedMeshPhase::kBroken:
      proto.set_state(v1::MESH_STATE_BROKEN);
      break;
  }
  proto.set_epoch(state.epoch);
  proto.set_error(CutStatusText(std::string(mesh.error.message())));
  for (const auto& [name, tensor] : core.tensors()) {
    if (tensor.mesh_id == mesh.mesh_id) proto.add_tensors(name);
  }
  return proto;
}

v1::TensorDescription DescriptionOf(const TensorState& tensor) {
  v1::TensorDescription proto;
  proto.set_name(tensor.name);
  proto.set_mesh(tensor.mesh);
  proto.set_dtype(DTypeToProto(tensor.dtype));
  ShapeToProto(tensor.shape, proto.mutable_shape());
  PlacementsToProto(tensor.placements, proto.mutable_placements());
  switch (tensor.phase) {
    case TensorPhase::kCreating:
      proto.set_state(v1::TENSOR_STATE_CREATING);
      break;
    case TensorPhase::kReady:
      proto.set_state(v1::TENSOR_STATE_READY);
      break;
    case TensorPhase::kLost:
      proto.set_state(v1::TENSOR_STATE_LOST);
      break;
  }
  proto.set_error(CutStatusText(std::string(tensor.error.message())));
  MeshToProto(tensor.axes.axes(), proto.mutable_axes());
  return proto;
}

void DescribeShards(const TensorState& tensor, const Core& core, v1::DescribeTensorResponse* response) {
  const auto mesh = core.meshes().find(tensor.mesh_id);
  for (int rank = 0; rank < tensor.axes.rank_count(); ++rank) {
    const Coordinate coordinate = tensor.axes.CoordinateOf(rank);
    const Shape shape = LocalShape(tensor.shape, tensor.placements, tensor.axes, coordinate);
    v1::TensorShard* shard = response->add_shards();
    shard->set_rank(rank);
    if (mesh != core.meshes().end()) shard->set_worker(mesh->second.workers[rank]);
    ShapeToProto(LocalOffset(tensor.shape, tensor.placements, tensor.axes, coordinate), shard->mutable_offset());
    ShapeToProto(shape, shard->mutable_shape());
    shard->set_size_bytes(static_cast<uint64_t>(ElementCount(shape) * ItemSize(tensor.dtype)));
  }
}

}  // namespace tp::server
