// Tensors whose ranks make their blocks by themselves: from an initializer, or from files.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {
namespace {

constexpr char kMakesNoTerms[] =
    "neither initializers nor files give terms; put takes P for local blocks, redistribute makes P of another layout";

// Names of a few, for a text.
std::string Few(std::vector<std::string> texts) {
  const size_t count = texts.size();
  texts.resize(std::min<size_t>(count, 5));
  return absl::StrCat(absl::StrJoin(texts, "; "),
                      count > texts.size() ? absl::StrCat("; and ", count - 5, " more") : "");
}

}  // namespace

void Core::Impl::On(CreateTensorRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("creation of tensor '", event.name, "'"));
  if (operation == 0) return;
  const absl::Status status = StartCreate(operation, event);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartCreate(uint64_t operation, const CreateTensorRequested& event) {
  TP_RETURN_IF_ERROR(CheckTensorName(event.name, "name"));
  TP_ASSIGN_OR_RETURN(const NamedMesh* named, ReadyMesh(event.mesh, "mesh"));
  const uint64_t mesh_id = named->mesh_id;
  const Mesh& mesh = meshes_.at(mesh_id).mesh;
  const TensorType type{event.dtype, event.shape};
  const absl::StatusOr<int64_t> size = CheckedBytes(event.shape, event.dtype);
  if (!size.ok()) return Annotate(size.status(), "shape");
  TP_ASSIGN_OR_RETURN(const Placements placements,
                      ResolvePlacements(mesh, type, event.placements, Placements(mesh.axis_count())));
  TP_RETURN_IF_ERROR(RefusePartial(placements, mesh, kMakesNoTerms));
  TensorState tensor;
  tensor.name = event.name;
  tensor.mesh = event.mesh;
  tensor.mesh_id = mesh_id;
  tensor.axes = mesh;
  tensor.dtype = event.dtype;
  tensor.shape = event.shape;
  tensor.placements = placements;
  TP_ASSIGN_OR_RETURN(tensor.tensor_id, NewBlocks(mesh_id, absl::StrCat("tensor '", event.name, "'"),
                                                  BlockBytes(mesh, type, placements)));
  NewTensor block;
  block.tensor_id = tensor.tensor_id;
  block.state.path = event.name;
  block.state.shape = event.shape;
  block.state.dtype = event.dtype;
  block.state.placements = placements;
  block.state.source.kind = WeightSource::Kind::kInitializer;
  block.state.source.initializer = event.initializer;
  EnterTensor(operation, std::move(tensor));
  const auto group = std::make_shared<uint64_t>(0);
  const auto publish = [this, operation, name = event.name] {
    PublishTensor(operation, name);
    EndOperation(operation, absl::OkStatus());
    return absl::OkStatus();
  };
  const auto commit = [=, this, id = block.tensor_id] {
    CommitBlocks(operation, mesh_id, *group, {id}, Then(operation, publish));
    return absl::OkStatus();
  };
  *group = StageBlocks(
      operation, mesh_id, "making a tensor", event.seed, [&](int) { return std::vector<NewTensor>{block}; },
      Then(operation, commit));
  return absl::OkStatus();
}

void Core::Impl::On(LoadTensorsRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("load of '", event.directory, "'"));
  if (operation == 0) return;
  const absl::Status status = StartLoad(operation, event);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartLoad(uint64_t operation, const LoadTensorsRequested& event) {
  if (event.directory.empty()) return absl::InvalidArgumentError("directory: is required");
  TP_ASSIGN_OR_RETURN(const NamedMesh* named, ReadyMesh(event.mesh, "mesh"));
  const uint64_t mesh_id = named->mesh_id;
  operations_.at(operation).meshes.insert(mesh_id);
  const auto found = std::make_shared<std::vector<FoundTensor>>();
  const uint64_t group =
      OpenGroup("reading a folder",
                Then(operation, [this, operation, event, found] { return LoadFound(operation, event, *found); }));
  operations_.at(operation).groups.push_back(group);
  groups_.at(group).each = [found](const StageRecord&, const StageResult& result) { *found = result.found; };
  AddStage(group, mesh_id, 0, StageInspect{event.directory});
  return absl::OkStatus();
}

absl::Status Core::Impl::LoadFound(uint64_t operation, const LoadTensorsRequested& event,
                                   const std::vector<FoundTensor>& found) {
  TP_ASSIGN_OR_RETURN(const NamedMesh* named, FindMesh(event.mesh, "mesh"));
  TP_RETURN_IF_ERROR(CheckUsable(*named));
  const uint64_t mesh_id = named->mesh_id;
  const Mesh& mesh = meshes_.at(mesh_id).mesh;
  std::map<std::string, const FoundTensor*> chosen;
  for (const FoundTensor& tensor : found) chosen[tensor.name] = &tensor;
  std::vector<std::string> problems;
  absl::StatusCode code = absl::StatusCode::kOk;
  const auto problem = [&](const absl::Status& status) {
    if (code == absl::StatusCode::kOk) code = status.code();
    problems.push_back(std::string(status.message()));
  };
  if (!event.names.empty()) {
    std::vector<std::string> known;
    for (const auto& [name, tensor] : chosen) known.push_back(name);
    std::map<std::string, const FoundTensor*> wanted;
    for (const std::string& name : event.names) {
      const auto it = chosen.find(name);
      if (it != chosen.end()) {
        wanted[name] = it->second;
        continue;
      }
      problem(absl::NotFoundError(absl::StrCat("names: '", event.directory, "' has no tensor '", name.substr(0, 256),
                                               "'; nearest: ", JoinNames(NearestNames(name.substr(0, 256), known)))));
    }
    chosen = std::move(wanted);
  }
  std::vector<TensorState> tensors;
  for (const auto& [name, tensor] : chosen) {
    const TensorType type{tensor->dtype, tensor->shape};
    const absl::Status named_well = CheckTensorName(name, "names");
    if (!named_well.ok()) problem(named_well);
    absl::StatusOr<Placements> placements =
        ResolvePlacements(mesh, type, event.placements, Placements(mesh.axis_count()));
    const absl::Status partial =
        placements.ok() ? RefusePartial(*placements, mesh, kMakesNoTerms) : placements.status();
    if (!partial.ok()) problem(Annotate(partial, absl::StrCat("tensor '", name.substr(0, 256), "'")));
    if (!partial.ok()) continue;
    TensorState state;
    state.name = name;
    state.mesh = event.mesh;
    state.mesh_id = mesh_id;
    state.axes = mesh;
    state.dtype = tensor->dtype;
    state.shape = tensor->shape;
    state.placements = *std::move(placements);
    tensors.push_back(std::move(state));
  }
  if (!problems.empty()) return absl::Status(code, Few(std::move(problems)));

  std::vector<NewTensor> blocks;
  std::vector<uint64_t> ids;
  std::vector<std::string> names;
  for (TensorState& tensor : tensors) {
    const TensorType type{tensor.dtype, tensor.shape};
    TP_ASSIGN_OR_RETURN(tensor.tensor_id, NewBlocks(mesh_id, absl::StrCat("tensor '", tensor.name, "'"),
                                                    BlockBytes(mesh, type, tensor.placements)));
    NewTensor block;
    block.tensor_id = tensor.tensor_id;
    block.state.path = tensor.name;
    block.state.shape = tensor.shape;
    block.state.dtype = tensor.dtype;
    block.state.placements = tensor.placements;
    block.state.source.kind = WeightSource::Kind::kFile;
    block.state.source.path = chosen.at(tensor.name)->file;
    block.state.source.tensor = tensor.name;
    blocks.push_back(std::move(block));
    ids.push_back(tensor.tensor_id);
    names.push_back(tensor.name);
    EnterTensor(operation, std::move(tensor));
  }
  const auto publish = [this, operation, names] {
    for (const std::string& name : names) PublishTensor(operation, name);
    EndOperation(operation, absl::OkStatus());
    return absl::OkStatus();
  };
  const auto group = std::make_shared<uint64_t>(0);
  *group = StageBlocks(
      operation, mesh_id, "loading tensors", 0, [&](int) { return blocks; }, Then(operation, [=, this] {
        CommitBlocks(operation, mesh_id, *group, ids, Then(operation, publish));
        return absl::OkStatus();
      }));
  groups_.at(*group).each = [this, operation](const StageRecord&, const StageResult& result) {
    if (Operation* running = FindOperation(operation)) running->reply.size_bytes += result.bytes_read;
  };
  return absl::OkStatus();
}

}  // namespace tp::server
