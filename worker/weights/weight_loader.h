// Loads a rank's block of a state: executes its WeightSource (file tensor, slice, transpose, concatenation,
// initializer) by byte ranges, so that only the rank's own slice is read, and converts it to the state's dtype.
// Example:
//   WeightLoader loader(*files, mesh, coordinate, seed, {});
//   HostTensor block = *loader.Load(state);   // [64, 256] of a [128, 256] state with S(0) on tp=2
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mesh/mesh.h"
#include "common/program/command.h"
#include "common/tensor/host_tensor.h"
#include "worker/weights/weight_file.h"

namespace tp::worker {

struct WeightLoaderOptions {
  const std::atomic<bool>* cancelled = nullptr;      // checked between reads of at most 4 MiB
  std::function<void(int64_t bytes_read)> progress;  // after each read, the sum so far
};

// Thread-compatible; keeps files open. `files`, `mesh` and what the options point to must outlive it.
class WeightLoader {
 public:
  WeightLoader(WeightFiles& files, const Mesh& mesh, std::vector<int> coordinate, uint64_t seed,
               WeightLoaderOptions options)
      : files_(files), mesh_(mesh), coordinate_(std::move(coordinate)), seed_(seed), options_(std::move(options)) {}

  // This rank's block, dense, in state.dtype. Blocks on the files. Errors name the state, the file, the tensor and the
  // reason: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (shapes that do not fit), DATA_LOSS, UNAVAILABLE; CANCELLED;
  // UNIMPLEMENTED for an initializer inside a slice, transpose or concatenation. An alias is the caller's work.
  absl::StatusOr<HostTensor> Load(const LoadState& state);
  // The same block, given to `write` piece by piece as it is read or made: a piece is at most 4 MiB where the state is
  // a file tensor of its dtype or an initializer, so that the block is in memory once, at its destination. Pieces cover
  // the block once; no call for a block without elements. Errors of Load and of `write`.
  using WriteBlock = std::function<absl::Status(int64_t offset, const char* data, int64_t size)>;
  absl::Status LoadInto(const LoadState& state, const WriteBlock& write);
  // Bytes that Load will read of files. Opens the files, reads nothing else. Same errors.
  absl::StatusOr<int64_t> PlannedBytes(const LoadState& state);
  // Of tensors' data so far, headers apart.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  using Region = std::vector<std::vector<Interval>>;  // by dim

  absl::StatusOr<const WeightFile*> FileAt(const std::string& path);
  // Global shape and dtype of a source; checks its parts.
  struct Type {
    DType dtype;
    Shape shape;
  };
  absl::StatusOr<Type> TypeOf(const WeightSource& source);
  // The block of `source` that `region` names; with `count` set, adds the bytes to read to it and reads nothing.
  absl::StatusOr<HostTensor> Evaluate(const WeightSource& source, const Region& region, int64_t* count);
  absl::StatusOr<HostTensor> EvaluateFile(const WeightSource& source, const Region& region, int64_t* count);
  // To `block` where it is not nullptr, else piece by piece to `write`.
  absl::Status ReadFile(const WeightSource& source, const Region& region, char* block, const WriteBlock& write);
  absl::StatusOr<HostTensor> EvaluateTranspose(const WeightSource& source, const Region& region, int64_t* count);
  absl::StatusOr<HostTensor> EvaluateConcat(const WeightSource& source, const Region& region, int64_t* count);
  absl::Status Initial(const LoadState& state, const Region& region, const WriteBlock& write) const;
  absl::StatusOr<Region> RegionOf(const LoadState& state) const;
  absl::StatusOr<Type> CheckedTypeOf(const LoadState& state);
  absl::StatusOr<HostTensor> EvaluateState(const LoadState& state);
  absl::Status CheckCancelled() const;

  WeightFiles& files_;
  const Mesh& mesh_;
  const std::vector<int> coordinate_;
  const uint64_t seed_;
  const WeightLoaderOptions options_;
  std::map<std::string, std::unique_ptr<WeightFile>> open_;
  int64_t bytes_read_ = 0;
};

}  // namespace tp::worker
