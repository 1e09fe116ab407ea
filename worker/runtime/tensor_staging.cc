#include "worker/runtime/tensor_staging.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "worker/weights/weight_loader.h"

namespace tp::worker {
namespace {

constexpr int64_t kProgressBytes = 1 << 20;
constexpr int64_t kCopyBytes = 4 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<TensorStaging>> TensorStaging::Make(const StageTensors& stage,
                                                                   const StagingEnvironment& environment) {
  if (stage.rank < 0 || stage.rank >= stage.mesh.rank_count()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", stage.rank, " of a mesh of ", stage.mesh.rank_count()));
  }
  std::shared_ptr<TensorStaging> staging(new TensorStaging(environment));
  std::set<uint64_t> ids;
  for (const NewTensor& made : stage.tensors) {
    const LoadState& state = made.state;
    const std::string name = absl::StrCat("tensor '", state.path, "'");
    auto held = std::make_shared<HeldTensor>();
    held->id = made.tensor_id;
    held->mesh_id = stage.mesh_id;
    held->mesh = stage.mesh;
    held->rank = stage.rank;
    held->dtype = state.dtype;
    held->shape = state.shape;
    absl::StatusOr<Placements> placements =
        NormalizePlacements(state.placements, static_cast<int>(state.shape.size()), state.dtype, stage.mesh);
    if (!placements.ok()) return Annotate(placements.status(), name);
    held->placements = *std::move(placements);
    TP_RETURN_IF_ERROR(Annotate(CheckedBytes(state.shape, state.dtype).status(), name));
    TP_RETURN_IF_ERROR(Annotate(ValidateForShape(state.shape, held->placements, stage.mesh), name));
    const int64_t bytes = held->size_bytes();
    absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer = environment.memory.Allocate(bytes);
    if (!buffer.ok()) return Annotate(buffer.status(), name);
    held->buffer = *std::move(buffer);
    if (!ids.insert(made.tensor_id).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": id ", made.tensor_id, " comes twice"));
    }
    if (made.origin != NewTensor::Origin::kBroadcast) staging->total_ += bytes;
    if (made.origin == NewTensor::Origin::kTransfer && (made.transfer_id != 0 || bytes > 0)) {
      Incoming incoming{staging->tensors_.size(), bytes, environment.device.CreateStream()};
      if (!staging->incoming_.emplace(made.transfer_id, std::move(incoming)).second) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": transfer ", made.transfer_id, " comes twice"));
      }
      staging->wanted_.push_back({made.transfer_id, bytes});
    }
    staging->tensors_.push_back(std::move(held));
  }
  TP_RETURN_IF_ERROR(staging->Fill(stage));
  return staging;
}

absl::Status TensorStaging::Fill(const StageTensors& stage) {
  const std::unique_ptr<Stream> stream = environment_.device.CreateStream();
  WeightLoader loader(environment_.files, stage.mesh, stage.mesh.CoordinateOf(stage.rank), stage.seed,
                      {environment_.cancelled, nullptr});
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (stage.tensors[i].origin != NewTensor::Origin::kSource) continue;
    const auto take = [&](int64_t offset, const char* data, int64_t size) -> absl::Status {
      if (offset < 0 || size > tensors_[i]->buffer->size() - offset) {
        return absl::InternalError(
            absl::StrCat("byte ", offset + size, " of a block of ", tensors_[i]->buffer->size(), " bytes"));
      }
      TP_RETURN_IF_ERROR(Write(i, *stream, offset, data, size));
      Report(size);
      return absl::OkStatus();
    };
    TP_RETURN_IF_ERROR(loader.LoadInto(stage.tensors[i].state, take));
  }
  bytes_read_ = loader.bytes_read();
  return absl::OkStatus();
}

absl::Status TensorStaging::Write(size_t tensor, Stream& stream, int64_t offset, const char* data, int64_t size) {
  char* const base = static_cast<char*>(tensors_[tensor]->buffer->data());
  for (int64_t at = 0; at < size; at += kCopyBytes) {
    TP_RETURN_IF_ERROR(
        environment_.device.CopyToDevice(stream, data + at, base + offset + at, std::min(kCopyBytes, size - at)));
  }
  return environment_.device.Synchronize(stream);  // `data` is the caller's again
}

void TensorStaging::Report(int64_t bytes) {
  int64_t done = 0;
  {
    const std::lock_guard lock(mutex_);
    done = done_ += bytes;
    if (done < total_ && done - reported_ < kProgressBytes) return;
    reported_ = done;
  }
  if (environment_.progress) environment_.progress(done, total_);
}

absl::Status TensorStaging::Receive(uint64_t transfer_id, std::string_view bytes, bool last, bool* complete) {
  *complete = false;
  const auto it = incoming_.find(transfer_id);
  if (it == incoming_.end()) return absl::NotFoundError(absl::StrCat("transfer ", transfer_id, " is not expected"));
  Incoming& incoming = it->second;
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t now = incoming.received + size;
  if (now > incoming.size || (last && now != incoming.size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("transfer ", transfer_id, ": expected ", incoming.size, " bytes, got ", now));
  }
  if (size > 0) {
    TP_RETURN_IF_ERROR(Write(incoming.tensor, *incoming.stream, incoming.received, bytes.data(), size));
    incoming.received = now;
    Report(size);
  }
  if (!last) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  incoming.done = true;
  *complete = std::all_of(incoming_.begin(), incoming_.end(), [](const auto& entry) { return entry.second.done; });
  return absl::OkStatus();
}

}  // namespace tp::worker
