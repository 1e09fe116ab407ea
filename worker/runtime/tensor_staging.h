// The blocks of a StageTensors while they are made: allocated all at once, then filled from their sources or by data
// streams, whose bytes go straight into device memory. Example:
//   auto staging = TensorStaging::Make(stage, environment);  for (auto& t : staging->transfers()) Open(t);
//   staging->Receive(transfer_id, bytes, last, &complete);  if (complete) Publish(staging->tensors());
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "common/program/command.h"
#include "worker/runtime/tensor_table.h"
#include "worker/weights/weight_file.h"

namespace tp::worker {

struct StagingEnvironment {
  WeightFiles& files;
  Device& device;
  TensorMemory& memory;
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // any thread
};

// Receive is thread-safe between transfers.
class TensorStaging {
 public:
  struct Transfer {
    uint64_t id = 0;
    int64_t size_bytes = 0;
  };

  // Blocks on files. RESOURCE_EXHAUSTED where there is no memory; INVALID_ARGUMENT for repeated ids, a rank outside the
  // mesh and placements that do not fit; errors of WeightLoader. A failure frees all. `environment` must outlive the
  // result, but for `files`.
  static absl::StatusOr<std::shared_ptr<TensorStaging>> Make(const StageTensors& stage,
                                                             const StagingEnvironment& environment);

  // What is to be received. Id 0 in a tensor without bytes asks for nothing.
  const std::vector<Transfer>& transfers() const { return wanted_; }
  // INVALID_ARGUMENT "expected N bytes, got M" for too many, or too few with `last`; NOT_FOUND for another transfer.
  // `complete`: all transfers have had all their bytes; true once.
  absl::Status Receive(uint64_t transfer_id, std::string_view bytes, bool last, bool* complete);
  const std::vector<HeldTensorPtr>& tensors() const { return tensors_; }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Incoming {
    size_t tensor = 0;
    int64_t size = 0;
    std::unique_ptr<Stream> stream;
    int64_t received = 0;
    bool done = false;
  };
  explicit TensorStaging(const StagingEnvironment& environment) : environment_(environment) {}
  absl::Status Fill(const StageTensors& stage);
  absl::Status Write(size_t tensor, Stream& stream, int64_t offset, const char* data, int64_t size);
  void Report(int64_t bytes);

  const StagingEnvironment environment_;
  std::vector<HeldTensorPtr> tensors_;
  std::vector<Transfer> wanted_;
  std::map<uint64_t, Incoming> incoming_;
  int64_t total_ = 0, bytes_read_ = 0;
  std::mutex mutex_;  // guards done_, reported_ and Incoming::done
  int64_t done_ = 0, reported_ = 0;
};

}  // namespace tp::worker
