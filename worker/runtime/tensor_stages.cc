// Stages of named tensors: making, sending, and their files.
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/checkpoint/folder.h"
#include "worker/runtime/stages.h"
#include "worker/runtime/tensor_blocks.h"

namespace tp::worker {
namespace {

constexpr int64_t kProgressBytes = 1 << 20;

// What is put into file names.
absl::Status CheckTag(const std::string& tag) {
  for (const char c : tag) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_') continue;
    return absl::InvalidArgumentError(absl::StrCat("tag '", tag, "': allowed are letters, digits, '-' and '_'"));
  }
  return tag.empty() ? absl::InvalidArgumentError("tag '': must not be empty") : absl::OkStatus();
}

}  // namespace

void Stages::MakeTensors(const EntryPtr& entry, const StageTensors& tensors) {
  const uint64_t id = entry->stage.stage_id;
  const StagingEnvironment environment{
      options_.files, options_.device, options_.memory, &entry->cancelled,
      [this, id](int64_t done, int64_t total) { options_.sink->OnProgress(id, done, total); }};
  absl::StatusOr<std::shared_ptr<TensorStaging>> made = TensorStaging::Make(tensors, environment);
  if (!made.ok()) return Finish(entry, PlainResult(id, made.status()));
  std::shared_ptr<TensorStaging> staging = *std::move(made);
  StageResult result = PlainResult(id, absl::OkStatus());
  result.bytes_read = staging->bytes_read();
  const std::vector<TensorStaging::Transfer> transfers = staging->transfers();
  const bool waits = !transfers.empty();
  {
    const std::lock_guard lock(mutex_);
    if (entry->cancelled) {
      result.status = absl::CancelledError("the stage was dropped");
    } else if (waits) {
      entry->staging = staging;
    } else {
      entry->staged.tensors = staging->tensors();
    }
  }
  staging.reset();  // the entry's alone, so that a drop frees it
  if (!waits || !result.status.ok()) return Finish(entry, std::move(result));
  for (const TensorStaging::Transfer& transfer : transfers) {
    options_.sink->OnReceiveWanted(id, transfer.id, transfer.size_bytes);
  }
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    failed = entry->cancelled || (entry->finished && !entry->status.ok());
  }
  // Those that were wanted only after the stage had ended.
  if (failed) DropTransfers(transfers);
}

void Stages::Send(const EntryPtr& entry, const StageSend& send) {
  const absl::StatusOr<HeldTensorPtr> tensor = options_.tensors.Get(send.tensor_id);
  Finish(entry, PlainResult(entry->stage.stage_id, tensor.status()));
  if (tensor.ok()) options_.sink->OnResultData(send.transfer_id, BlocksOf(options_.device, *tensor));
}

StageResult Stages::Inspect(const StageInspect& inspect) {
  auto list = [&]() -> absl::StatusOr<std::vector<FoundTensor>> {
    TP_ASSIGN_OR_RETURN(const std::string path, options_.root.Resolve(inspect.path));
    TP_ASSIGN_OR_RETURN(const auto tensors, ListTensors(path));
    std::vector<FoundTensor> found;
    for (const auto& [name, tensor] : tensors) {
      // A link in the folder may lead out of the root.
      TP_RETURN_IF_ERROR(options_.root.Resolve(tensor.file).status());
      found.push_back({name, tensor.file, tensor.tensor.dtype, tensor.tensor.shape});
    }
    return found;
  };
  absl::StatusOr<std::vector<FoundTensor>> found = list();
  StageResult result = PlainResult(0, found.status());
  if (found.ok()) result.found = *std::move(found);
  return result;
}

StageResult Stages::Save(const EntryPtr& entry, const StageSave& save) {
  const uint64_t id = entry->stage.stage_id;
  std::shared_ptr<PartFiles> parts;
  int64_t done = 0, reported = 0, total = 0;
  const SaveOptions options{&entry->cancelled, [&](int64_t bytes) {
                              done += bytes;
                              if (done < total && done - reported < kProgressBytes) return;
                              reported = done;
                              options_.sink->OnProgress(id, done, total);
                            }};
  auto write = [&]() -> absl::Status {
    TP_RETURN_IF_ERROR(CheckTag(save.tag));
    TP_ASSIGN_OR_RETURN(std::string folder, options_.root.ResolveNew(save.directory));
    parts = std::make_shared<PartFiles>(std::move(folder), save.tag, save.files);
    std::vector<std::pair<const SavedTensor*, HeldTensorPtr>> owned;
    for (const SavedTensor& saved : save.tensors) {
      TP_ASSIGN_OR_RETURN(HeldTensorPtr tensor, options_.tensors.Get(saved.tensor_id));
      if (!saved.owner) continue;
      total += tensor->size_bytes();
      owned.emplace_back(&saved, std::move(tensor));
    }
    if (save.create) TP_RETURN_IF_ERROR(parts->Create());
    for (const auto& [saved, tensor] : owned) {
      TP_RETURN_IF_ERROR(SaveBlock(options_.device, *tensor, parts.get(), saved->file, saved->begin, options));
    }
    TP_RETURN_IF_ERROR(parts->Sync());
    return entry->cancelled ? absl::CancelledError("the save was dropped") : absl::OkStatus();
  };
  StageResult result = PlainResult(id, write());
  bool remove = parts != nullptr && !result.status.ok();
  if (!remove && save.create) {
    const std::lock_guard lock(mutex_);
    if (entry->cancelled) {
      remove = true;
    } else {
      entry->parts = parts;
    }
  }
  if (remove) parts->Remove();
  return result;
}

StageResult Stages::Seal(const StageSeal& seal) {
  auto rename = [&]() -> absl::Status {
    TP_RETURN_IF_ERROR(CheckTag(seal.tag));
    TP_ASSIGN_OR_RETURN(std::string folder, options_.root.Resolve(seal.directory));
    return PartFiles(std::move(folder), seal.tag, seal.files).Seal(seal.index);
  };
  return PlainResult(0, rename());
}

}  // namespace tp::worker
