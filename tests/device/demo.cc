#include "tests/device/demo.h"

#include <utility>

#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/hugging_face.h"
#include "common/checkpoint/json.h"
#include "tests/device/check.h"

namespace tp::testing {
namespace {

constexpr int kSteps = 8;  // of a command, as many as there may be

std::string Folder() { return Options().tree + "/deploy/demo/kjv"; }

std::vector<int64_t> Numbers(const Json* list) {
  std::vector<int64_t> numbers;
  if (list == nullptr || list->array() == nullptr) return numbers;
  for (const Json& number : *list->array()) numbers.push_back(number.integer().value_or(-1));
  return numbers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RuntimeCluster>> StartDemo(bool graphs, DType compute_dtype) {
  ImportOptions import;
  import.compute_dtype = compute_dtype;
  import.name = kDemoModel;
  TP_ASSIGN_OR_RETURN(const Submission submission, ImportHuggingFace(Folder(), import));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<worker::CudaDevice> device, OpenGpu());
  std::vector<std::unique_ptr<worker::Device>> devices;
  devices.push_back(std::move(device));
  absl::Status nccl;
  worker::WorkerRuntimeOptions options;
  options.model_root = "/";
  options.graphs = graphs;
  auto cluster = std::make_unique<RuntimeCluster>(
      std::move(devices), options, [&nccl](int, worker::Device& gpu, std::unique_ptr<worker::CollectiveBackend> host) {
        auto backend = OpenNccl(gpu, std::move(host));
        nccl = backend.status();
        return backend.ok() ? *std::move(backend) : nullptr;
      });
  TP_RETURN_IF_ERROR(nccl);
  TP_RETURN_IF_ERROR(cluster->Connect());
  TP_RETURN_IF_ERROR(cluster->Load(submission, /*cache_pages=*/40));
  return cluster;
}

absl::StatusOr<std::vector<DemoCase>> DemoCases() {
  TP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(Folder() + "/reference.json", 1 << 20));
  TP_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  const Json* cases = json.Find("cases");
  if (cases == nullptr || cases->array() == nullptr) return absl::DataLossError("reference.json has no cases");
  std::vector<DemoCase> all;
  for (const Json& one : *cases->array()) all.push_back({Numbers(one.Find("ids")), Numbers(one.Find("greedy"))});
  return all;
}

absl::StatusOr<Generated> Generate(RuntimeCluster& cluster, uint64_t sequence, const std::vector<int64_t>& prompt,
                                   int count) {
  Generated generated;
  Decode decode{kDemoModel, kSteps, {}, {{sequence, {}, count, {}}}, {{sequence, prompt, true}}, {}};
  bool first = true;
  while (static_cast<int>(generated.tokens.size()) < count) {
    const ClusterAnswer answer = cluster.Decode(decode);
    TP_RETURN_IF_ERROR(answer.status);
    const size_t before = generated.tokens.size();
    for (const SequenceTokens& found : answer.acks[0].decode.sequences) {
      generated.tokens.insert(generated.tokens.end(), found.token_ids.begin(), found.token_ids.end());
    }
    const size_t made = generated.tokens.size() - before;
    if (made == 0) return absl::InternalError("a command of steps gave no token");
    if (!first && made == kSteps) {
      generated.step_us.push_back(static_cast<double>(answer.acks[0].decode.duration_us) / kSteps);
    }
    first = false;
    decode = {kDemoModel, kSteps, {}, {}, {}, {}};
  }
  return generated;
}

}  // namespace tp::testing
