// Drives a Core with a fake time and hand-made events, and keeps what its workers were sent. Example:
//   Driver d;  d.Join("a");  d.Join("b");  d.Deploy("m", 2);  d.Forward(7, "m", inputs);  d.AckAll();
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/coordinator/core.h"

namespace tp::server {

inline DTensorSpec Spec(DType dtype, SymShape shape, Placement placement) {
  return {dtype, std::move(shape), {std::move(placement)}};
}

// x F32[batch, 10] cut S(1), y F32[batch, 10] whole, w F32[257, 4] cut S(0).
inline CompiledModel SmallModel(int degree) {
  CompiledModel model;
  model.mesh = *Mesh::Create({{"tp", degree}});
  model.program.mesh = model.mesh;
  const Dim batch = Dim::Symbol("batch");
  model.program.values = {{"x", Spec(DType::kF32, {batch, 10}, Placement::Shard(1))},
                          {"ids", Spec(DType::kI64, {batch, 4}, Placement::Replicate())},
                          {"y", Spec(DType::kF32, {batch, 10}, Placement::Replicate())}};
  model.program.operands = {{OperandKind::kInput, "x", 0}, {OperandKind::kInput, "ids", 1}};
  Instruction instruction;
  instruction.function = "relu";
  instruction.inputs = {0};
  instruction.outputs = {2};
  model.program.instructions = {instruction};
  model.program.outputs = {{"y", 2}};
  model.program.input_checks = {{"ids", 257}};
  PlacedState state;
  state.state.path = "w";
  state.state.shape = {257, 4};
  state.placements = {Placement::Shard(0)};
  model.states = {state};
  model.fingerprint = "f";
  return model;
}

// With a cache of 4 heads of 8: on tp=2 a page is 2 * 2 * 16 * 8 * 4 = 2048 bytes.
inline CompiledModel LanguageModel(int degree) {
  CompiledModel model = SmallModel(degree);
  model.step_program = model.program;
  CacheSpec cache;
  cache.kv_heads = 4;
  cache.head_dim = 8;
  cache.heads_placements = {Placement::Shard(0)};
  model.step_program->caches = {cache};
  return model;
}

inline std::shared_ptr<Submission> SubmissionOf(const std::string& name, bool language = false) {
  auto submission = std::make_shared<Submission>();
  submission->name = name;
  submission->model.inputs = {{"x", DType::kF32, {Dim::Symbol("batch"), 10}},
                              {"ids", DType::kI64, {Dim::Symbol("batch"), 4}}};
  if (language) {
    GenerationConfig config;
    config.vocab_size = 257;
    config.max_positions = 512;
    config.eos_token_ids = {256};
    submission->model.generation = config;
  }
  return submission;
}

class Driver {
 public:
  explicit Driver(CoreOptions options = {})
      : core([&] {
          options.version = "1";
          return options;
        }()) {}

  template <typename T>
  std::vector<T> Of(const std::vector<Action>& actions) {
    std::vector<T> found;
    for (const Action& action : actions) {
      if (const T* what = std::get_if<T>(&action)) found.push_back(*what);
    }
    return found;
  }
  // Applies an event and files what goes to workers. The answer is also in `last`.
  std::vector<Action> Do(Event event) {
    std::vector<Action> actions = core.Apply(std::move(event), now);
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendCommand>(&action)) {
        commands[send->worker].push_back(send->command);
        history[send->worker].push_back(send->command);
      }
      if (const auto* send = std::get_if<SendStage>(&action)) stages.emplace_back(send->worker, send->stage);
      if (const auto* lost = std::get_if<SendFence>(&action)) commands[lost->worker].clear();
      all.push_back(action);
    }
    return last = std::move(actions);
  }
  std::string collectives = "gloo", identity;  // of the workers that join
  std::vector<Action> Join(const std::string& id, int64_t memory_limit = 0) {
    WorkerDescription worker;
    worker.id = id;
    worker.incarnation = incarnations[id] = id + std::to_string(++joins);
    worker.version = "1";
    worker.host = "h";
    worker.memory_limit_bytes = memory_limit;
    worker.collectives = collectives;
    worker.identity = identity;
    worker.device = "cuda:0";
    commands[id].clear();
    history[id].clear();
    return Do(WorkerJoined{worker});
  }
  std::vector<Action> Lose(const std::string& id, const std::string& reason = "gone") {
    return Do(WorkerLost{id, incarnations[id], reason});
  }
  SubmitRequested Request(CallId call, const std::string& name, int degree, bool language = false) {
    SubmitRequested request;
    request.call = call;
    request.digest = name;
    request.submission = SubmissionOf(name, language);
    request.compiled = std::make_shared<CompiledModel>(language ? LanguageModel(degree) : SmallModel(degree));
    request.blob = "blob of " + name;
    return request;
  }
  // Answers the newest StoreSubmission or EraseSubmission.
  void Stored(absl::Status status = absl::OkStatus()) {
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      uint64_t token = 0;
      if (const auto* store = std::get_if<StoreSubmission>(&*it)) token = store->token;
      if (const auto* erase = std::get_if<EraseSubmission>(&*it)) token = erase->token;
      if (token == 0) continue;
      Do(StoreFinished{token, std::move(status)});
      return;
    }
  }
  void FinishStage(const std::string& worker, const Stage& stage, absl::Status status = absl::OkStatus()) {
    StageResult result;
    if (std::holds_alternative<StageInspect>(stage.kind)) result.found = found_tensors;
    if (std::holds_alternative<StageTensors>(stage.kind)) result.bytes_read = 10;
    result.stage_id = stage.stage_id;
    result.status = std::move(status);
    if (std::holds_alternative<StageListen>(stage.kind)) result.address = "at " + worker;
    if (std::holds_alternative<StageLoad>(stage.kind)) result.bytes_read = 100;
    Do(StageFinished{worker, incarnations[worker], result});
  }
  void FinishStages() {
    while (!stages.empty()) {
      const auto [worker, stage] = stages.front();
      stages.pop_front();
      FinishStage(worker, stage);
    }
  }
  using Answer = std::function<void(const std::string& worker, const Command&, Ack*)>;
  // Answers the oldest command of one worker.
  std::vector<Action> AckOne(const std::string& worker, const Answer& answer = {}) {
    const Command command = commands[worker].front();
    commands[worker].pop_front();
    Ack ack;
    ack.sequence = command.sequence;
    ack.order = command.order;
    if (answer) answer(worker, command, &ack);
    return Do(AckReceived{worker, incarnations[worker], ack});
  }
  // Answers everything on all workers.
  void AckAll(const Answer& answer = {}) {
    for (bool any = true; any;) {
      any = false;
      for (auto& [worker, queue] : commands) {
        if (queue.empty()) continue;
        AckOne(worker, answer);
        any = true;
      }
    }
  }
  void Deploy(const std::string& name, int degree, bool language = false) {
    Do(Request(1000, name, degree, language));
    Stored();
    FinishStages();
    AckAll();
    ASSERT_EQ(Phase(name), "READY");
  }
  // --- Named meshes and tensors.
  RequestHead Head(CallId call, const std::string& request_id = "") { return {call, request_id, "digest"}; }
  void MakeMesh(const std::string& name, const std::string& axes, std::vector<std::string> workers = {}) {
    CreateMeshRequested request;
    request.head = Head(++calls);
    request.name = name;
    request.mesh = *Mesh::Parse(axes);
    request.workers = std::move(workers);
    Do(request);
    FinishStages();
    AckAll();
    ASSERT_EQ(MeshPhase(name), "READY");
  }
  std::string MeshPhase(const std::string& name) {
    const auto it = core.named_meshes().find(name);
    if (it == core.named_meshes().end()) return "absent";
    if (it->second.phase == NamedMeshPhase::kConnecting) return "CONNECTING";
    return it->second.phase == NamedMeshPhase::kReady ? "READY" : "BROKEN";
  }
  std::string TensorPhaseOf(const std::string& name) {
    const auto it = core.tensors().find(name);
    if (it == core.tensors().end()) return "absent";
    if (it->second.phase == TensorPhase::kCreating) return "CREATING";
    return it->second.phase == TensorPhase::kReady ? "READY" : "LOST";
  }
  CreateTensorRequested Creation(CallId call, const std::string& name, const std::string& mesh, Shape shape,
                                 NamedPlacements placements) {
    CreateTensorRequested request;
    request.head = Head(call);
    request.name = name;
    request.mesh = mesh;
    request.shape = std::move(shape);
    request.placements = std::move(placements);
    return request;
  }
  // A READY F32 tensor.
  void MakeTensor(const std::string& name, const std::string& mesh, Shape shape, NamedPlacements placements) {
    Do(Creation(++calls, name, mesh, std::move(shape), std::move(placements)));
    FinishStages();
    AckAll();
    ASSERT_EQ(TensorPhaseOf(name), "READY");
  }
  // A READY F32 tensor of local blocks of the layout's shapes, as P needs.
  void MakeLocalTensor(const std::string& name, const std::string& mesh, Shape shape, NamedPlacements placements,
                       std::vector<Shape> locals) {
    PutTensorRequested request;
    request.head = Head(++calls);
    request.name = name;
    request.mesh = mesh;
    request.shape = std::move(shape);
    request.placements = std::move(placements);
    for (size_t i = 0; i < locals.size(); ++i) request.locals.push_back({static_cast<int>(i), locals[i]});
    Do(request);
    Do(PutSent{calls});
    FinishStages();
    AckAll();
    ASSERT_EQ(TensorPhaseOf(name), "READY");
  }
  // The newest command of a kind that a worker was sent; nullptr where there is none.
  template <typename Kind>
  const Kind* LastCommand(const std::string& worker) {
    for (auto it = history[worker].rbegin(); it != history[worker].rend(); ++it) {
      if (const auto* kind = std::get_if<Kind>(&it->kind)) return kind;
    }
    return nullptr;
  }
  // Stages of a kind that wait for their result, with their workers.
  template <typename Kind>
  std::vector<std::pair<std::string, Kind>> Waiting() {
    std::vector<std::pair<std::string, Kind>> waiting;
    for (const auto& [worker, stage] : stages) {
      if (const auto* kind = std::get_if<Kind>(&stage.kind)) waiting.emplace_back(worker, *kind);
    }
    return waiting;
  }
  int64_t Reserved(const std::string& worker) { return core.reserved_bytes(worker); }

  std::string Phase(const std::string& name) {
    const auto it = core.models().find(name);
    return it == core.models().end() ? "absent" : std::string(ModelPhaseName(it->second.phase));
  }
  std::map<std::string, HostTensor> Inputs(int64_t batch) {
    std::vector<float> x;
    for (int64_t i = 0; i < batch * 10; ++i) x.push_back(static_cast<float>(i));
    return {{"x", MakeHostTensor<float>({batch, 10}, x)},
            {"ids", MakeHostTensor<int64_t>({batch, 4}, std::vector<int64_t>(static_cast<size_t>(batch) * 4, 1))}};
  }
  std::vector<Action> Forward(CallId call, const std::string& model, int64_t batch = 2) {
    ForwardRequested request;
    request.call = call;
    request.model = model;
    request.inputs = Inputs(batch);
    return Do(request);
  }
  std::vector<Action> Generate(CallId call, const std::string& model, size_t prompt, int new_tokens) {
    GenerateRequested request;
    request.call = call;
    request.model = model;
    request.token_ids.assign(prompt, 65);
    request.max_new_tokens = new_tokens;
    return Do(request);
  }
  // Heartbeats of all but `silent`, then a tick, every half second.
  void Pass(absl::Duration time, const std::string& silent = "") {
    for (const absl::Time end = now + time; now < end;) {
      now += absl::Milliseconds(500);
      for (const auto& [id, incarnation] : incarnations) {
        if (id != silent) Do(WorkerHeartbeat{id, incarnation, 0, 0});
      }
      Do(Tick{});
    }
  }

  Core core;
  absl::Time now = absl::FromUnixSeconds(1000);
  int joins = 0;
  CallId calls = 10000;                    // of the helpers above
  std::vector<FoundTensor> found_tensors;  // answer to an inspect
  std::map<std::string, std::string> incarnations;
  std::map<std::string, std::deque<Command>> commands;
  std::map<std::string, std::vector<Command>> history;
  std::deque<std::pair<std::string, Stage>> stages;
  std::vector<Action> last, all;
};

// The reply of a kind to a call, among all actions so far; fails where there are more or none.
template <typename T>
T ReplyTo(Driver& driver, CallId call) {
  T reply;
  int count = 0;
  for (const T& candidate : driver.Of<T>(driver.all)) {
    if (candidate.call != call) continue;
    reply = candidate;
    ++count;
  }
  EXPECT_EQ(count, 1) << "replies to call " << call;
  return reply;
}
template <typename T>
int Replies(Driver& driver, CallId call) {
  int count = 0;
  for (const T& candidate : driver.Of<T>(driver.all)) count += candidate.call == call ? 1 : 0;
  return count;
}
inline std::string Text(const absl::Status& status) { return status.ToString(); }

}  // namespace tp::server
