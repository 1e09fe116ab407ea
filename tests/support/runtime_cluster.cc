#include "tests/support/runtime_cluster.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"

namespace tp::testing {
namespace {

constexpr auto kPatience = std::chrono::minutes(1);
constexpr uint64_t kMesh = 7;

}  // namespace

template <typename Ready>
bool RecordingSink::WaitFor(std::unique_lock<std::mutex>& lock, Ready ready) {
  return wake_.wait_for(lock, kPatience, ready);
}

void RecordingSink::OnAck(Ack ack) {
  const std::lock_guard lock(mutex_);
  acks_.push_back(std::move(ack));
  wake_.notify_all();
}
void RecordingSink::OnStageResult(StageResult result) {
  const std::lock_guard lock(mutex_);
  results_[result.stage_id] = std::move(result);
  wake_.notify_all();
}
void RecordingSink::OnProgress(uint64_t, int64_t done_bytes, int64_t) {
  const std::lock_guard lock(mutex_);
  progress_ = done_bytes;
  wake_.notify_all();
}
void RecordingSink::OnResultData(uint64_t transfer_id, std::vector<worker::DataBlock> blocks) {
  const std::lock_guard lock(mutex_);
  data_[transfer_id] = std::move(blocks);
  wake_.notify_all();
}
void RecordingSink::OnReceiveWanted(uint64_t stage_id, uint64_t transfer_id, int64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  wanted_.push_back(stage_id);
  sizes_[transfer_id] = size_bytes;
  wake_.notify_all();
}
void RecordingSink::OnTransferDropped(uint64_t transfer_id) {
  const std::lock_guard lock(mutex_);
  dropped_.push_back(transfer_id);
}

Ack RecordingSink::NextAck() {
  std::unique_lock lock(mutex_);
  if (WaitFor(lock, [this] { return read_ < acks_.size(); })) return acks_[read_++];
  Ack late;
  late.status = absl::DeadlineExceededError("no answer");
  return late;
}
StageResult RecordingSink::ResultOf(uint64_t stage_id) {
  std::unique_lock lock(mutex_);
  if (WaitFor(lock, [&] { return results_.contains(stage_id); })) return results_[stage_id];
  StageResult late;
  late.status = absl::DeadlineExceededError("no result of the stage");
  return late;
}
std::vector<std::string> RecordingSink::DataOf(uint64_t transfer_id) {
  std::vector<worker::DataBlock> blocks;
  {
    std::unique_lock lock(mutex_);
    if (!WaitFor(lock, [&] { return data_.contains(transfer_id); })) return {};
    blocks = std::move(data_[transfer_id]);
  }
  std::vector<std::string> bytes;
  for (const worker::DataBlock& block : blocks) {
    bytes.emplace_back(static_cast<size_t>(block.size), '\0');
    // In pieces that do not fit rows, as a stream's do not.
    for (int64_t at = 0; at < block.size; at += 1000) {
      const absl::Status status = block.read(at, std::min<int64_t>(1000, block.size - at), bytes.back().data() + at);
      if (!status.ok()) bytes.back() = status.ToString();
      if (!status.ok()) break;
    }
  }
  return bytes;
}
int64_t RecordingSink::WantedSize(uint64_t transfer_id) {
  std::unique_lock lock(mutex_);
  return WaitFor(lock, [&] { return sizes_.contains(transfer_id); }) ? sizes_[transfer_id] : -1;
}
std::vector<uint64_t> RecordingSink::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}
int64_t RecordingSink::last_progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}
std::vector<uint64_t> RecordingSink::wanted() const {
  const std::lock_guard lock(mutex_);
  return wanted_;
}

RuntimeCluster::RuntimeCluster(std::vector<std::unique_ptr<worker::Device>> devices,
                               worker::WorkerRuntimeOptions options, const WrapBackend& wrap_backend) {
  sequences_.resize(devices.size(), 0);
  for (int rank = 0; rank < static_cast<int>(devices.size()); ++rank) {
    std::unique_ptr<worker::Device>& device = devices[static_cast<size_t>(rank)];
    std::unique_ptr<worker::CollectiveBackend> backend = worker::CreateInProcessBackend(hub_);
    if (wrap_backend) backend = wrap_backend(rank, *device, std::move(backend));
    sinks_.push_back(std::make_unique<RecordingSink>());
    runtimes_.push_back(std::make_unique<worker::WorkerRuntime>(std::move(device), std::move(backend), options, &clock_,
                                                                sinks_.back().get()));
    runtimes_.back()->Reset(1);
    all_.push_back(rank);
  }
}

std::vector<StageResult> RuntimeCluster::RunStages(const std::function<Stage(int rank)>& make) {
  return RunStagesOn(all_, make);
}

std::vector<StageResult> RuntimeCluster::RunStagesOn(const std::vector<int>& members,
                                                     const std::function<Stage(int rank)>& make) {
  const uint64_t id = NextStageId();
  std::vector<StageResult> results;
  for (size_t i = 0; i < members.size(); ++i) {
    Stage stage = make(static_cast<int>(i));
    stage.stage_id = id;
    stage.term = 1;
    runtime(members[i]).StartStage(std::move(stage));
  }
  for (const int member : members) results.push_back(sink(member).ResultOf(id));
  return results;
}

absl::Status RuntimeCluster::Connect() {
  ++epoch_;
  std::vector<std::string> addresses;
  for (const StageResult& result : RunStages([&](int rank) {
         return Stage{0, 0, StageListen{kMesh, epoch_, rank, ranks()}};
       })) {
    TP_RETURN_IF_ERROR(result.status);
    addresses.push_back(result.address);
  }
  const std::vector<StageResult> connected = RunStages([&](int) {
    return Stage{0, 0, StageConnect{kMesh, epoch_, addresses, absl::Seconds(30)}};
  });
  for (const StageResult& result : connected) TP_RETURN_IF_ERROR(result.status);
  Send([&](int) { return Commit{{connected[0].stage_id}}; });
  return Collect().status;
}

StageLoad RuntimeCluster::MakeLoad(const CompiledModel& model, const Submission& submission, int rank,
                                   int cache_pages) const {
  StageLoad load;
  load.model = submission.name;
  load.mesh_id = kMesh;
  load.epoch = epoch_;
  load.rank = rank;
  load.program = std::make_shared<ForwardProgram>(model.program);
  if (model.step_program.has_value()) load.step_program = std::make_shared<ForwardProgram>(*model.step_program);
  load.fingerprint = model.fingerprint;
  for (const PlacedState& placed : model.states) {
    LoadState state{placed.state.path, placed.state.shape, placed.state.dtype, placed.placements, {}, false, false};
    state.buffer = placed.state.buffer;
    if (placed.source.has_value()) {
      state.source = *placed.source;
    } else {
      state.source.kind = WeightSource::Kind::kInitializer;
      state.source.initializer = placed.state.initializer;
    }
    load.states.push_back(std::move(state));
  }
  load.seed = submission.seed;
  load.cache_pages = cache_pages;
  return load;
}

absl::Status RuntimeCluster::Load(const Submission& submission, int cache_pages, CompiledModel* compiled) {
  TP_ASSIGN_OR_RETURN(CompiledModel model, CompileForward(submission));
  const std::vector<StageResult> loaded = RunStages([&](int rank) {
    return Stage{0, 0, MakeLoad(model, submission, rank, cache_pages)};
  });
  for (const StageResult& result : loaded) TP_RETURN_IF_ERROR(result.status);
  Send([&](int) { return Commit{{loaded[0].stage_id}}; });
  TP_RETURN_IF_ERROR(Collect().status);
  if (compiled != nullptr) *compiled = model;
  models_[submission.name] = std::move(model);
  return absl::OkStatus();
}

void RuntimeCluster::Send(const std::function<Kind(int rank)>& make) { SendTo(kMesh, epoch_, all_, make); }

void RuntimeCluster::SendTo(uint64_t mesh_id, uint64_t epoch, const std::vector<int>& members,
                            const std::function<Kind(int rank)>& make) {
  ++order_;
  for (size_t i = 0; i < members.size(); ++i) {
    Command command;
    command.term = 1;
    command.sequence = ++sequences_[static_cast<size_t>(members[i])];
    command.order = 1000 + order_;
    command.mesh_id = mesh_id;
    command.epoch = epoch;
    command.kind = make(static_cast<int>(i));
    runtime(members[i]).Enqueue(std::move(command));
  }
}

ClusterAnswer RuntimeCluster::Collect() { return CollectFrom(all_); }

ClusterAnswer RuntimeCluster::CollectFrom(const std::vector<int>& members) {
  ClusterAnswer answer;
  const int size = static_cast<int>(members.size());
  for (const int member : members) answer.acks.push_back(sink(member).NextAck());
  for (int rank = size; rank-- > 0;) {
    if (!answer.acks[rank].status.ok()) answer.status = answer.acks[rank].status;
  }
  const int failed = answer.acks[0].failed_rank;
  if (failed >= 0) answer.status = answer.acks[failed].status;
  if (!answer.status.ok()) return answer;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> streamed;
    size_t next = 0;
    for (const ResultBlock& block : answer.acks[rank].run.blocks) {
      if (block.streamed && streamed.empty()) streamed = sink(members[rank]).DataOf(answer.acks[rank].order);
      const std::string& data = block.streamed ? streamed[next++] : block.data;
      HostTensor& output = answer.outputs[block.output];
      output.dtype = block.dtype;
      output.shape = block.global_shape;
      output.bytes.resize(static_cast<size_t>(ElementCount(output.shape) * ItemSize(output.dtype)));
      CopyBox(data.data(), block.shape, Shape(block.shape.size(), 0), output.bytes.data(), output.shape, block.offset,
              block.shape, ItemSize(block.dtype));
    }
  }
  return answer;
}

ClusterAnswer RuntimeCluster::Forward(const std::string& model, const std::map<std::string, HostTensor>& inputs) {
  const ForwardProgram& program = models_.at(model).program;
  const uint64_t transfer = 1000 + order_ + 1;  // the command's order
  Send([&](int rank) {
    Run run{model, {}, transfer};
    for (const Operand& operand : program.operands) {
      if (operand.kind != OperandKind::kInput || !inputs.contains(operand.name)) continue;
      const HostTensor& whole = inputs.at(operand.name);
      const DTensorSpec& spec = program.values[operand.value].spec;
      const Coordinate coordinate = program.mesh.CoordinateOf(rank);
      const Shape local = LocalShape(whole.shape, spec.placements, program.mesh, coordinate);
      const Shape offset = LocalOffset(whole.shape, spec.placements, program.mesh, coordinate);
      RunInput input{operand.name, whole.shape, {}, 0};
      input.data.resize(static_cast<size_t>(ElementCount(local) * ItemSize(whole.dtype)));
      if (!input.data.empty()) {
        CopyBox(whole.bytes.data(), whole.shape, offset, input.data.data(), local, Shape(local.size(), 0), local,
                ItemSize(whole.dtype));
      }
      run.inputs.push_back(std::move(input));
    }
    return run;
  });
  return Collect();
}

ClusterAnswer RuntimeCluster::Decode(tp::Decode decode) {
  Send([&](int) { return decode; });
  return Collect();
}

}  // namespace tp::testing
