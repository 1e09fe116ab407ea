// Named tensors: their names and states, deletion, and what is lost with a worker.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

absl::Status Core::Impl::CheckTensorName(const std::string& name, const std::string& field) const {
  const auto good = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (name.empty() || name.size() > 256 || !absl::ascii_isalnum(static_cast<unsigned char>(name[0])) ||
      !std::all_of(name.begin(), name.end(), good)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": '", name.substr(0, 300),
                     "': a tensor's name is 1 to 256 letters, digits, '.', '_', '-' and '/', and begins with a letter "
                     "or digit"));
  }
  if (tensors_.count(name) == 0) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(field, ": tensor '", name, "' exists; deleting it frees the name"));
}

absl::StatusOr<TensorState*> Core::Impl::FindTensor(const std::string& name, const std::string& field) {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return &it->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  return absl::NotFoundError(
      absl::StrCat(field, ": no tensor '", name.substr(0, 256), "'; ",
                   names.empty() ? "there are none"
                                 : absl::StrCat("nearest: ", JoinNames(NearestNames(name.substr(0, 256), names)))));
}

absl::StatusOr<TensorState*> Core::Impl::ReadyTensor(const std::string& name, const std::string& field) {
  TP_ASSIGN_OR_RETURN(TensorState * tensor, FindTensor(name, field));
  if (tensor->phase == TensorPhase::kCreating) {
    return absl::FailedPreconditionError(absl::StrCat(field, ": tensor '", name, "' is still being made"));
  }
  if (tensor->phase == TensorPhase::kLost) return Annotate(tensor->error, absl::StrCat("tensor '", name, "' is LOST"));
  TP_RETURN_IF_ERROR(Annotate(CheckNotDraining(tensor->mesh_id), absl::StrCat("tensor '", name, "'")));
  return tensor;
}

TensorState* Core::Impl::EnterTensor(uint64_t operation, TensorState state) {
  const std::string name = state.name;
  operations_.at(operation).names.push_back(name);
  operations_.at(operation).made.push_back(state.tensor_id);
  TensorState& entered = tensors_[name];
  entered = std::move(state);
  return &entered;
}

void Core::Impl::PublishTensor(uint64_t operation, const std::string& name) {
  TensorState& tensor = tensors_.at(name);
  tensor.phase = TensorPhase::kReady;
  operations_.at(operation).reply.tensors.push_back(tensor);
}

void Core::Impl::On(DeleteTensorRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("deletion of tensor '", event.name, "'"));
  if (operation == 0) return;
  const absl::Status status = StartTensorDeletion(operation, event.name);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartTensorDeletion(uint64_t operation, const std::string& name) {
  TP_ASSIGN_OR_RETURN(const TensorState* tensor, FindTensor(name, "name"));
  if (tensor->phase == TensorPhase::kCreating) {
    return absl::FailedPreconditionError(absl::StrCat("name: tensor '", name, "' is still being made"));
  }
  if (tensor->moving) {
    return absl::FailedPreconditionError(absl::StrCat("name: tensor '", name, "' is being redistributed"));
  }
  const uint64_t blocks = tensor->tensor_id;
  // The name is free at once; operations that read the blocks finish before these go.
  tensors_.erase(name);
  operations_.at(operation).goes_on = true;
  DropBlocks(blocks, Then(operation, [this, operation] {
               EndOperation(operation, absl::OkStatus());
               return absl::OkStatus();
             }));
  return absl::OkStatus();
}

void Core::Impl::LoseTensors(uint64_t mesh_id, const std::string& cause) {
  for (auto& [name, tensor] : tensors_) {
    if (tensor.mesh_id != mesh_id || tensor.phase != TensorPhase::kReady) continue;
    tensor.phase = TensorPhase::kLost;
    tensor.error = absl::DataLossError(cause);
  }
}

}  // namespace tp::server
