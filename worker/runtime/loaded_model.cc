#include "worker/runtime/loaded_model.h"

#include <cstdlib>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "worker/weights/weight_loader.h"

namespace tp::worker {
namespace {

// How the programs use a state.
struct Use {
  bool packed = false;  // as a linear's weight
  bool plain = false;
};

std::map<std::string, Use> UsesOf(const ForwardProgram& program) {
  std::map<int, Use> by_value;
  for (const Instruction& instruction : program.instructions) {
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      Use& use = by_value[instruction.inputs[i]];
      (instruction.function == "linear" && i == 1 ? use.packed : use.plain) = true;
    }
  }
  for (const NamedValue& output : program.outputs) by_value[output.value].plain = true;
  std::map<std::string, Use> uses;
  for (const Operand& operand : program.operands) {
    if (operand.kind == OperandKind::kParameter || operand.kind == OperandKind::kBuffer) {
      uses[operand.name] = by_value[operand.value];
    }
  }
  return uses;
}

// The state that a chain of aliases ends at.
absl::StatusOr<const LoadState*> Resolve(const std::map<std::string, const LoadState*>& by_path,
                                         const LoadState& state) {
  const LoadState* current = &state;
  for (size_t hops = 0; current->source.kind == WeightSource::Kind::kAlias; ++hops) {
    const auto it = by_path.find(current->source.path);
    if (it == by_path.end() || hops > by_path.size()) {
      return absl::InvalidArgumentError(absl::StrCat(state.path, ": alias of '", current->source.path,
                                                     it == by_path.end() ? "', which is no state" : "' goes round"));
    }
    current = it->second;
  }
  if (current->shape != state.shape || current->dtype != state.dtype || current->placements != state.placements) {
    return absl::InvalidArgumentError(
        absl::StrCat(state.path, ": differs in shape, dtype or placements from '", current->path, "', its alias"));
  }
  return current;
}

class Loading {
 public:
  Loading(const StageLoad& load, const LoadEnvironment& environment)
      : load_(load), environment_(environment), model_(std::make_unique<LoadedModel>()) {}

  absl::StatusOr<std::unique_ptr<LoadedModel>> Run() {
    TP_RETURN_IF_ERROR(CheckPrograms());
    model_->name = load_.model;
    model_->mesh_id = load_.mesh_id;
    model_->rank = load_.rank;
    coordinate_ = load_.program->mesh.CoordinateOf(load_.rank);
    TP_RETURN_IF_ERROR(LoadStates());
    TP_RETURN_IF_ERROR(environment_.on_device([this] { return AllocateCaches(); }));
    model_->sequences = std::make_unique<SequenceTable>(load_.step_program == nullptr ? 0 : load_.cache_pages);
    TP_ASSIGN_OR_RETURN(model_->forward, ProgramExecutor::Create(load_.program, coordinate_, &model_->states, {}));
    if (load_.step_program != nullptr) {
      TP_ASSIGN_OR_RETURN(model_->step,
                          ProgramExecutor::Create(load_.step_program, coordinate_, &model_->states, model_->caches));
    }
    return std::move(model_);
  }

 private:
  absl::Status CheckPrograms() {
    if (load_.program == nullptr) return absl::InvalidArgumentError("load: has no program");
    TP_RETURN_IF_ERROR(ValidateProgram(*load_.program));
    if (load_.step_program != nullptr) {
      TP_RETURN_IF_ERROR(ValidateProgram(*load_.step_program));
      if (!(load_.step_program->mesh == load_.program->mesh)) {
        return absl::InvalidArgumentError("load: the programs are for different meshes");
      }
    }
    if (load_.rank < 0 || load_.rank >= load_.program->mesh.rank_count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("load: rank ", load_.rank, " of mesh ", load_.program->mesh.ToString()));
    }
    if (load_.cache_pages < 0) return absl::InvalidArgumentError("load: cache_pages is negative");
    const std::string own = CombinedFingerprint(*load_.program, load_.step_program.get());
    if (own != load_.fingerprint) {
      return absl::InternalError(
          absl::StrCat("fingerprint mismatch: the program sent has ", own, ", expected ", load_.fingerprint));
    }
    model_->fingerprint = std::strtoull(own.substr(0, 16).c_str(), nullptr, 16);
    return absl::OkStatus();
  }

  absl::Status LoadStates() {
    std::map<std::string, Use> uses = UsesOf(*load_.program);
    if (load_.step_program != nullptr) {
      for (const auto& [name, use] : UsesOf(*load_.step_program)) {
        uses[name].packed |= use.packed;
        uses[name].plain |= use.plain;
      }
    }
    std::map<std::string, const LoadState*> by_path;
    for (const LoadState& state : load_.states) {
      if (!by_path.emplace(state.path, &state).second) {
        return absl::InvalidArgumentError(absl::StrCat("load: state '", state.path, "' is listed twice"));
      }
    }
    // Tied states are one storage: `users` of each state that has values of its own.
    std::map<const LoadState*, std::vector<const LoadState*>> users;
    for (const LoadState& state : load_.states) {
      TP_ASSIGN_OR_RETURN(const LoadState* source, Resolve(by_path, state));
      users[source].push_back(&state);
    }
    int64_t total = 0;
    WeightLoader loader(environment_.files, load_.program->mesh, coordinate_, load_.seed,
                        {environment_.cancelled, [this, &total](int64_t done) {
                           if (environment_.progress) environment_.progress(done, total);
                         }});
    for (const LoadState& state : load_.states) {
      if (state.source.kind == WeightSource::Kind::kAlias || state.tensor_id != 0) continue;
      TP_ASSIGN_OR_RETURN(const int64_t bytes, loader.PlannedBytes(state));
      total += bytes;
    }
    for (const LoadState& state : load_.states) {
      if (state.source.kind == WeightSource::Kind::kAlias) continue;
      if (environment_.cancelled != nullptr && *environment_.cancelled) {
        return absl::CancelledError("the load was dropped");
      }
      Use use;
      for (const LoadState* user : users[&state]) {
        use.packed |= uses[user->path].packed;
        use.plain |= uses[user->path].plain;
      }
      use.plain |= !use.packed;
      DeviceState stored;
      int64_t bytes = 0;
      absl::Status status;
      if (state.tensor_id != 0) {
        absl::StatusOr<HeldTensorPtr> held = TakeTensor(state);
        if (!held.ok()) return Annotate(held.status(), state.path);
        bytes = (*held)->size_bytes();
        status = environment_.on_device([&] { return Adopt(std::exchange(*held, nullptr), use, &stored); });
      } else {
        TP_ASSIGN_OR_RETURN(const HostTensor block, loader.Load(state));
        bytes = static_cast<int64_t>(block.bytes.size());
        status = environment_.on_device([&] { return Store(block, use, &stored); });
      }
      if (!status.ok()) return Annotate(status, state.path);
      if (!state.buffer) model_->parameter_bytes += bytes;
      for (const LoadState* user : users[&state]) model_->states[user->path] = stored;
    }
    model_->bytes_read = loader.bytes_read();
    return absl::OkStatus();
  }

  // The block that the state's values are; it is the model's from now on.
  absl::StatusOr<HeldTensorPtr> TakeTensor(const LoadState& state) {
    TP_ASSIGN_OR_RETURN(HeldTensorPtr held, environment_.tensors.Get(state.tensor_id));
    const Mesh& mesh = load_.program->mesh;
    if (held->dtype != state.dtype || held->shape != state.shape || held->placements != state.placements ||
        held->rank != load_.rank || !(held->mesh == mesh)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", held->id, " is ", std::string(DTypeName(held->dtype)), ShapeText(held->shape), " ",
                       PlacementsText(held->mesh, held->placements), " on rank ", held->rank, ", the state is ",
                       std::string(DTypeName(state.dtype)), ShapeText(state.shape), " ",
                       PlacementsText(mesh, state.placements), " on rank ", load_.rank));
    }
    environment_.tensors.Drop({state.tensor_id});
    return held;
  }

  // On the executor thread.
  absl::Status Adopt(HeldTensorPtr held, Use use, DeviceState* stored) {
    stored->dtype = held->dtype;
    stored->shape = held->LocalShape();
    if (use.packed) TP_RETURN_IF_ERROR(Pack(*held->buffer, stored));
    TP_RETURN_IF_ERROR(environment_.device.Synchronize(environment_.stream));
    if (use.plain) stored->plain = held->buffer;
    return absl::OkStatus();
  }

  absl::Status Pack(DeviceBuffer& buffer, DeviceState* stored) {
    TP_ASSIGN_OR_RETURN(stored->packed, environment_.device.PackWeight(environment_.stream,
                                                                       {stored->dtype, buffer.data(), stored->shape}));
    model_->device_bytes += stored->packed->memory_bytes();
    return absl::OkStatus();
  }

  // On the executor thread.
  absl::Status Store(const HostTensor& block, Use use, DeviceState* stored) {
    Device& device = environment_.device;
    stored->dtype = block.dtype;
    stored->shape = block.shape;
    const auto bytes = static_cast<int64_t>(block.bytes.size());
    TP_ASSIGN_OR_RETURN(std::shared_ptr<DeviceBuffer> buffer, environment_.memory.Allocate(bytes));
    if (bytes > 0) {
      TP_RETURN_IF_ERROR(device.CopyToDevice(environment_.stream, block.bytes.data(), buffer->data(), bytes));
    }
    if (use.packed) TP_RETURN_IF_ERROR(Pack(*buffer, stored));
    TP_RETURN_IF_ERROR(device.Synchronize(environment_.stream));
    if (use.plain) stored->plain = std::move(buffer);
    return absl::OkStatus();
  }

  // On the executor thread.
  absl::Status AllocateCaches() {
    if (load_.step_program == nullptr) return absl::OkStatus();
    const ForwardProgram& program = *load_.step_program;
    for (const CacheSpec& spec : program.caches) {
      const Shape heads = LocalShape({spec.kv_heads}, spec.heads_placements, program.mesh, coordinate_);
      PagedCache cache{spec.dtype, nullptr, load_.cache_pages, heads[0], spec.head_dim};
      TP_ASSIGN_OR_RETURN(const int64_t bytes,
                          CheckedBytes({cache.page_count, 2, cache.kv_heads, kPageSize, cache.head_dim}, spec.dtype));
      absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffer = environment_.device.Allocate(bytes);
      if (!buffer.ok()) return Annotate(buffer.status(), absl::StrCat("cache of ", load_.cache_pages, " pages"));
      cache.base = (*buffer)->data();
      model_->device_bytes += bytes;
      model_->caches.push_back(cache);
      model_->cache_buffers.push_back(*std::move(buffer));
    }
    return absl::OkStatus();
  }

  const StageLoad& load_;
  const LoadEnvironment& environment_;
  std::unique_ptr<LoadedModel> model_;
  Coordinate coordinate_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const StageLoad& load, const LoadEnvironment& environment) {
  return Loading(load, environment).Run();
}

}  // namespace tp::worker
