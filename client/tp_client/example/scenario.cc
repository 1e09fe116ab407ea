// The whole of the API in one run: submit, watch, describe, forward, put, redistribute, get, generate, delete. Prints
// the same lines as client/python/examples/scenario.py and client/go/scenario; a test compares them. Usage: scenario
// HOST:PORT MLP_SUBMISSION LM_SUBMISSION X PROMPT     (X: 8 numbers with commas between them)
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "client/tp_client/client.h"
#include "client/tp_client/submission_file.h"

namespace {

using tp::Placement;
using tp::Shape;

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::string ShapeText(const Shape& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

void PrintValues(const char* what, const tp::HostTensor& tensor) {
  std::printf("%s %s", what, ShapeText(tensor.shape).c_str());
  for (int64_t i = 0; i < tp::ElementCount(tensor.shape); ++i) std::printf(" %.6f", tensor.data<float>()[i]);
  std::printf("\n");
}

void PrintModel(const char* what, const tp::client::ModelSummary& model) {
  std::printf("%s %s %s %s %lld\n", what, model.name.c_str(), model.state.c_str(), model.mesh.ToString().c_str(),
              static_cast<long long>(model.parameter_bytes));
}

void Models(tp::client::Client* client, const std::string& file, const std::string& numbers) {
  PrintModel("submit", Must(client->Submit(Must(tp::client::ReadSubmissionFile(file)), {.name = "mlp"})).model);
  Must(client->WatchModel("mlp", [](const tp::client::ModelSummary& model) {
    PrintModel("watch", model);
    return false;
  }));
  const tp::client::ModelDescription told = Must(client->GetModel("mlp", false));
  for (const auto& parameter : told.parameters) {
    std::printf("parameter %s %s %s", parameter.name.c_str(), ShapeText(parameter.shape).c_str(),
                tp::PlacementsText(told.summary.mesh, parameter.placements).c_str());
    for (const auto& local : parameter.local)
      std::printf(" %d:%s@%s", local.rank, ShapeText(local.shape).c_str(), ShapeText(local.offset).c_str());
    std::printf("\n");
  }
  std::vector<float> x;
  std::stringstream in(numbers);
  for (std::string number; std::getline(in, number, ',');) x.push_back(std::strtof(number.c_str(), nullptr));
  const auto answer = Must(client->Forward("mlp", {{"x", tp::MakeHostTensor<float>({1, 8}, x)}}));
  for (const auto& output : answer.outputs) PrintValues(("forward " + output.name).c_str(), output.tensor);
  for (const auto& count : answer.collectives)
    std::printf("collective %s %s %s %lld\n", count.module.c_str(), count.op.c_str(), count.axis.c_str(),
                static_cast<long long>(count.bytes));
}

void Tensors(tp::client::Client* client) {
  const auto mesh = Must(client->CreateMesh("m", Must(tp::Mesh::Parse("tp=2")), {}));
  std::printf("mesh %s %s %s\n", mesh.name.c_str(), mesh.mesh.ToString().c_str(), mesh.state.c_str());
  std::vector<float> values(15);
  for (int i = 0; i < 15; ++i) values[i] = i / 8.0f;
  const auto put = Must(client->PutTensor({.name = "w", .mesh = "m", .placements = {{"tp", Placement::Shard(0)}}},
                                          tp::MakeHostTensor<float>({5, 3}, values)));
  std::printf("put %s %s\n", put.name.c_str(), tp::PlacementsText(put.mesh, put.placements).c_str());
  for (const auto& local : Must(client->GetLocalBlocks("w"))) PrintValues("local", local);
  const auto moved =
      Must(client->RedistributeTensor({.name = "w", .placements = {{"tp", Placement::StridedShard(0, 2)}}}));
  std::printf("redistribute %s", tp::PlacementsText(moved.tensor.mesh, moved.tensor.placements).c_str());
  for (const auto& step : moved.counted)
    std::printf(" %s/%s/%lld", step.op.c_str(), step.axis.c_str(), static_cast<long long>(step.bytes));
  std::printf("\n");
  for (const auto& local : Must(client->GetLocalBlocks("w"))) PrintValues("local", local);
  PrintValues("get", Must(client->GetTensor("w")));
}

void Generate(tp::client::Client* client, const std::string& file, const std::string& prompt) {
  Must(client->Submit(Must(tp::client::ReadSubmissionFile(file)), {.name = "lm"}));
  std::string ids, text, reason;
  tp::client::GenerateOptions options;
  options.model = "lm";
  options.prompt = prompt;
  options.max_new_tokens = 24;
  options.ignore_eos = true;
  Must(client->Generate(options, [&](const tp::client::GenerateChunk& chunk) {
    for (const int64_t id : chunk.token_ids) ids += " " + std::to_string(id);
    text += chunk.text;
    reason = chunk.finish_reason;
    return true;
  }));
  std::printf("generate%s\ntext %s\nfinish %s\n", ids.c_str(), text.c_str(), reason.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: scenario HOST:PORT MLP_SUBMISSION LM_SUBMISSION X PROMPT\n");
    return 2;
  }
  const auto client = tp::client::Connect({.server = argv[1], .timeout = absl::Seconds(120)});
  Models(client.get(), argv[2], argv[4]);
  Tensors(client.get());
  Generate(client.get(), argv[3], argv[5]);
  const absl::Status error = client->GetModel("nobody", false).status();
  std::printf("error %s: %s\n", absl::StatusCodeToString(error.code()).c_str(), std::string(error.message()).c_str());
  Must(client->DeleteTensor("w"));
  Must(client->DeleteMesh("m"));
  for (const char* name : {"mlp", "lm"}) Must(client->DeleteModel(name));
  const auto status = Must(client->GetStatus());
  std::printf("left %d models %d meshes %d tensors\n", status.models, status.meshes, status.tensors);
  return 0;
}
