// The demo model on one GPU: a worker runtime with the CUDA device and NCCL. Example:
//   TP_ASSIGN_OR_RETURN(auto cluster, StartDemo(/*graphs=*/true, DType::kF32));
//   TP_ASSIGN_OR_RETURN(Tokens tokens, Generate(*cluster, 1, prompt, 64));
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"
#include "tests/support/runtime_cluster.h"

namespace tp::testing {

inline constexpr char kDemoModel[] = "kjv";

absl::StatusOr<std::unique_ptr<RuntimeCluster>> StartDemo(bool graphs, DType compute_dtype);

struct DemoCase {
  std::vector<int64_t> ids, greedy;
};
// Those of deploy/demo/kjv/reference.json.
absl::StatusOr<std::vector<DemoCase>> DemoCases();

struct Generated {
  std::vector<int64_t> tokens;
  std::vector<double> step_us;  // of each command of eight steps
};
// `count` greedy tokens that follow the prompt, whatever they are.
absl::StatusOr<Generated> Generate(RuntimeCluster& cluster, uint64_t sequence, const std::vector<int64_t>& prompt,
                                   int count);

}  // namespace tp::testing
