// Saves: every worker writes its own blocks at their places in the files, one worker makes the files and at the end
// gives them their names. Terms of P are reduced before.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/save_plan.h"

namespace tp::server {

void Core::Impl::On(SaveTensorsRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("save to '", event.directory, "'"));
  if (operation == 0) return;
  const absl::Status status = StartSave(operation, event);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartSave(uint64_t operation, const SaveTensorsRequested& event) {
  if (event.directory.empty()) return absl::InvalidArgumentError("directory: is required");
  if (event.names.empty()) return absl::InvalidArgumentError("names: at least one tensor is required");
  std::vector<std::string> names = event.names;
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("names: '", twice->substr(0, 256), "' is given twice"));
  }
  std::vector<TensorState> tensors;
  for (const std::string& name : names) {
    TP_ASSIGN_OR_RETURN(const TensorState* tensor, ReadyTensor(name, "names"));
    tensors.push_back(*tensor);
  }
  for (const TensorState& tensor : tensors) UseBlocks(operation, tensor.tensor_id);
  // As they are written: without P.
  struct Progress {
    std::vector<TensorState> whole;
    size_t missing = 0;
  };
  const auto progress = std::make_shared<Progress>();
  progress->whole = tensors;
  progress->missing = tensors.size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    TP_RETURN_IF_ERROR(ReducePartial(operation, tensors[i], [=, this](const TensorState& whole) {
      progress->whole[i] = whole;
      if (--progress->missing > 0) return absl::OkStatus();
      return WriteFiles(operation, event.directory, progress->whole, names);
    }));
  }
  return absl::OkStatus();
}

absl::Status Core::Impl::WriteFiles(uint64_t operation, const std::string& directory,
                                    const std::vector<TensorState>& tensors, const std::vector<std::string>& names) {
  std::vector<SaveItem> items;
  for (size_t i = 0; i < tensors.size(); ++i) items.push_back({names[i], tensors[i].dtype, tensors[i].shape});
  TP_ASSIGN_OR_RETURN(SavePlan plan, PlanSave(items, options_.max_file_bytes));
  Operation& running = operations_.at(operation);
  for (const SavedFile& file : plan.files) running.reply.files.push_back(file.name);
  running.reply.size_bytes = plan.size_bytes;

  // A worker may hold ranks of several meshes: one stage for each worker, with all that it holds.
  struct Writer {
    uint64_t mesh_id = 0;
    int rank = 0;
    std::vector<SavedTensor> tensors;
  };
  std::map<std::string, Writer> writers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorState& tensor = tensors[i];
    for (int rank = 0; rank < tensor.axes.rank_count(); ++rank) {
      Writer& writer = writers[meshes_.at(tensor.mesh_id).workers[rank]];
      writer.mesh_id = tensor.mesh_id;
      writer.rank = rank;
      const bool owner = IsOwner(tensor.placements, tensor.axes, tensor.axes.CoordinateOf(rank));
      writer.tensors.push_back({tensor.tensor_id, plan.places[i].file, plan.places[i].begin, owner});
    }
  }
  const Writer creator = writers.begin()->second;
  const std::string tag = absl::StrCat(options_.term, "-", operation);
  std::vector<SavedFile> unnamed = plan.files;  // headers are the creator's
  for (SavedFile& file : unnamed) file.header.clear();
  StageSeal seal{directory, tag, unnamed, plan.index};

  const auto open = [this, operation](const std::string& what, Done done) {
    const uint64_t group = OpenGroup(what, std::move(done));
    operations_.at(operation).groups.push_back(group);
    return group;
  };
  const auto finish = [this, operation] {
    EndOperation(operation, absl::OkStatus());
    return absl::OkStatus();
  };
  const auto seal_files = [=, this] {
    const uint64_t group = open("naming files", Then(operation, finish));
    AddStage(group, creator.mesh_id, creator.rank, seal);
    return absl::OkStatus();
  };
  const auto write = [=, this] {
    const uint64_t group = open("writing files", Then(operation, seal_files));
    for (const auto& [worker, writer] : writers) {
      AddStage(group, writer.mesh_id, writer.rank, StageSave{directory, tag, unnamed, writer.tensors, false});
    }
    return absl::OkStatus();
  };
  // First the files, then what goes into them.
  const uint64_t group = open("making files", Then(operation, write));
  AddStage(group, creator.mesh_id, creator.rank, StageSave{directory, tag, plan.files, {}, true});
  return absl::OkStatus();
}

}  // namespace tp::server
