#include "client/tp_client/client.h"

#include <atomic>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/layout/spec.h"
#include "common/program/command.h"
#include "common/proto_convert/layout.h"
#include "common/rpc/channel.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::client {
namespace {

// A request id that no other request has.
std::string NewRequestId() {
  static std::atomic<uint64_t> count{0};
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8), "-", ++count);
}

absl::StatusOr<ModelSummary> ToSummary(const v1::ModelSummary& proto) {
  ModelSummary summary{.name = proto.name(),
                       .state = v1::ModelState_Name(proto.state()),
                       .error = proto.error(),
                       .fingerprint = proto.fingerprint(),
                       .parameter_bytes = static_cast<int64_t>(proto.parameter_bytes()),
                       .loaded_bytes = static_cast<int64_t>(proto.loaded_bytes()),
                       .total_bytes = static_cast<int64_t>(proto.total_bytes())};
  constexpr size_t kPrefix = sizeof("MODEL_STATE_") - 1;
  if (summary.state.size() > kPrefix) summary.state.erase(0, kPrefix);
  TP_ASSIGN_OR_RETURN(summary.mesh, MeshFromProto(proto.mesh(), "mesh"));
  return summary;
}

absl::StatusOr<ModelDescription> ToDescription(const v1::GetModelResponse& proto) {
  ModelDescription model;
  TP_ASSIGN_OR_RETURN(model.summary, ToSummary(proto.model()));
  for (const v1::ParameterDescription& from : proto.parameters()) {
    ParameterDescription parameter{.name = from.name(), .buffer = from.buffer()};
    TP_ASSIGN_OR_RETURN(parameter.shape, ShapeFromProto(from.shape(), "shape"));
    TP_ASSIGN_OR_RETURN(parameter.dtype, DTypeFromProto(from.dtype(), "dtype"));
    TP_ASSIGN_OR_RETURN(parameter.placements, PlacementsFromProto(from.placements(), "placements"));
    for (const v1::LocalBlock& block : from.local())
      parameter.local.push_back({block.rank(), Shape(block.shape().begin(), block.shape().end()),
                                 Shape(block.offset().begin(), block.offset().end())});
    model.parameters.push_back(std::move(parameter));
  }
  for (const v1::ModuleDescription& from : proto.modules())
    model.modules.push_back({from.path(), from.kind(), from.style(),
                             std::vector<std::string>(from.inputs().begin(), from.inputs().end()),
                             std::vector<std::string>(from.outputs().begin(), from.outputs().end())});
  for (const v1::ModelWorker& from : proto.workers())
    model.workers.push_back({from.id(), from.rank(), static_cast<int64_t>(from.bytes_read()),
                             static_cast<int64_t>(from.parameter_bytes())});
  for (int i = 0; i < proto.input_types_size() && i < proto.input_names_size(); ++i) {
    InputType input{.name = proto.input_names(i)};
    TP_ASSIGN_OR_RETURN(input.dtype, DTypeFromProto(proto.input_types(i).dtype(), "dtype"));
    TP_ASSIGN_OR_RETURN(input.shape, SymShapeFromProto(proto.input_types(i).shape(), "shape"));
    model.inputs.push_back(std::move(input));
  }
  model.generates = proto.generates();
  model.submission = proto.submission();
  return model;
}

// Calls `write` with the pieces of `bytes`; stops where it returns false.
template <typename Write>
bool WriteChunks(uint32_t index, const std::string& bytes, const Write& write) {
  for (size_t offset = 0; offset < bytes.size(); offset += kChunkBytes) {
    if (!write(MakeChunk(index, bytes, offset))) return false;
  }
  return true;
}

// Puts the blocks of a forward's answer together as they come.
class Assembler {
 public:
  absl::Status Begin(const v1::ForwardResponseHeader& header) {
    for (const v1::ForwardOutput& output : header.outputs()) {
      NamedTensor tensor{output.name(), {}};
      TP_ASSIGN_OR_RETURN(tensor.tensor.dtype, DTypeFromProto(output.dtype(), "outputs.dtype"));
      TP_ASSIGN_OR_RETURN(tensor.tensor.shape, ShapeFromProto(output.shape(), "outputs.shape"));
      TP_ASSIGN_OR_RETURN(int64_t bytes, CheckedBytes(tensor.tensor.shape, tensor.tensor.dtype));
      tensor.tensor.bytes.assign(static_cast<size_t>(bytes), '\0');
      outputs_.push_back(std::move(tensor));
    }
    for (const v1::OutputBlock& from : header.blocks()) {
      Block block{from.output(), Shape(from.offset().begin(), from.offset().end()),
                  Shape(from.shape().begin(), from.shape().end()), ""};
      if (block.output >= outputs_.size()) return absl::InternalError("an answer's block names no output");
      const HostTensor& whole = outputs_[block.output].tensor;
      bool inside = block.offset.size() == whole.shape.size() && block.shape.size() == whole.shape.size();
      for (size_t i = 0; inside && i < whole.shape.size(); ++i)
        inside = block.offset[i] >= 0 && block.shape[i] >= 0 && block.offset[i] <= whole.shape[i] - block.shape[i];
      if (!inside) return absl::InternalError("an answer's block lies outside its output");
      blocks_.push_back(std::move(block));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const v1::Chunk& chunk) {
    if (chunk.index() >= blocks_.size()) return absl::InternalError("a chunk names no block");
    TP_RETURN_IF_ERROR(CheckChunk(chunk));
    Block& block = blocks_[chunk.index()];
    if (chunk.offset() != block.bytes.size()) return absl::InternalError("the answer's chunks are out of order");
    block.bytes += chunk.data();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<NamedTensor>> Finish() {
    for (const Block& block : blocks_) {
      HostTensor& whole = outputs_[block.output].tensor;
      const int64_t expected = ElementCount(block.shape) * ItemSize(whole.dtype);
      if (static_cast<int64_t>(block.bytes.size()) != expected)
        return absl::DataLossError(absl::StrCat("output '", outputs_[block.output].name, "': expected ", expected,
                                                " bytes of a block, got ", block.bytes.size()));
      const Shape origin(block.shape.size(), 0);
      CopyBox(block.bytes.data(), block.shape, origin, whole.bytes.data(), whole.shape, block.offset, block.shape,
              ItemSize(whole.dtype));
    }
    return std::move(outputs_);
  }

 private:
  struct Block {
    size_t output;
    Shape offset, shape;
    std::string bytes;
  };
  std::vector<NamedTensor> outputs_;
  std::vector<Block> blocks_;
};

class GrpcClient : public Client {
 public:
  explicit GrpcClient(const ClientOptions& options)
      : options_(options), stub_(v1::CoordinatorService::NewStub(CreateChannel(options.server))) {}

  absl::StatusOr<SubmitResult> Submit(const std::string& submission, const SubmitOptions& options) override {
    grpc::ClientContext context;
    Prepare(&context);
    v1::SubmitResponse response;
    auto writer = stub_->Submit(&context, &response);
    v1::SubmitRequest first;
    v1::SubmitHeader* header = first.mutable_header();
    header->set_request_id(NewRequestId());
    header->set_size_bytes(submission.size());
    header->set_name(options.name);
    if (!options.mesh.empty()) MeshToProto(options.mesh, header->mutable_mesh());
    header->set_dry_run(options.dry_run);
    if (writer->Write(first)) {
      WriteChunks(0, submission, [&](v1::Chunk chunk) {
        v1::SubmitRequest request;
        *request.mutable_chunk() = std::move(chunk);
        return writer->Write(request);
      });
    }
    writer->WritesDone();
    TP_RETURN_IF_ERROR(Finish(writer->Finish()));
    SubmitResult result;
    TP_ASSIGN_OR_RETURN(result.model, ToSummary(response.model()));
    result.warnings.assign(response.warnings().begin(), response.warnings().end());
    return result;
  }

  absl::StatusOr<std::vector<ModelSummary>> ListModels() override {
    v1::ListModelsResponse response;
    TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::ListModels, v1::ListModelsRequest(), &response));
    std::vector<ModelSummary> models;
    for (const v1::ModelSummary& proto : response.models()) {
      TP_ASSIGN_OR_RETURN(ModelSummary summary, ToSummary(proto));
      models.push_back(std::move(summary));
    }
    return models;
  }

  absl::StatusOr<ModelDescription> GetModel(const std::string& name, bool include_submission) override {
    v1::GetModelRequest request;
    request.set_name(name);
    request.set_include_submission(include_submission);
    v1::GetModelResponse response;
    TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::GetModel, request, &response));
    return ToDescription(response);
  }

  absl::Status DeleteModel(const std::string& name) override {
    v1::DeleteModelRequest request;
    request.set_request_id(NewRequestId());
    request.set_name(name);
    v1::DeleteModelResponse response;
    return Call(&v1::CoordinatorService::Stub::DeleteModel, request, &response);
  }

  absl::Status WatchModel(const std::string& name, const std::function<bool(const ModelSummary&)>& on_change) override {
    grpc::ClientContext context;
    Prepare(&context);
    v1::WatchModelRequest request;
    request.set_name(name);
    auto reader = stub_->WatchModel(&context, request);
    v1::WatchModelResponse response;
    while (reader->Read(&response)) {
      TP_ASSIGN_OR_RETURN(ModelSummary summary, ToSummary(response.model()));
      if (on_change(summary)) continue;
      context.TryCancel();
      while (reader->Read(&response)) {
      }
      (void)reader->Finish();
      return absl::OkStatus();
    }
    return Finish(reader->Finish());
  }

  absl::StatusOr<ForwardResult> Forward(const std::string& model, const std::vector<NamedTensor>& inputs) override {
    grpc::ClientContext context;
    Prepare(&context);
    auto stream = stub_->Forward(&context);
    v1::ForwardRequest first;
    first.mutable_header()->set_request_id(NewRequestId());
    first.mutable_header()->set_model(model);
    for (const NamedTensor& input : inputs) {
      v1::ForwardInput* proto = first.mutable_header()->add_inputs();
      proto->set_name(input.name);
      proto->set_dtype(DTypeToProto(input.tensor.dtype));
      ShapeToProto(input.tensor.shape, proto->mutable_shape());
    }
    bool open = stream->Write(first);
    for (size_t i = 0; open && i < inputs.size(); ++i) {
      open = WriteChunks(static_cast<uint32_t>(i), inputs[i].tensor.bytes, [&](v1::Chunk chunk) {
        v1::ForwardRequest request;
        *request.mutable_chunk() = std::move(chunk);
        return stream->Write(request);
      });
    }
    stream->WritesDone();
    ForwardResult result;
    Assembler assembler;
    absl::Status assembled;
    v1::ForwardResponse response;
    while (stream->Read(&response)) {
      if (!assembled.ok()) continue;
      if (response.has_header()) assembled = assembler.Begin(response.header());
      if (response.has_chunk()) assembled = assembler.Add(response.chunk());
      if (response.has_summary()) {
        for (const v1::CollectiveCount& count : response.summary().collectives())
          result.collectives.push_back(
              {count.module(), count.op(), count.axis(), static_cast<int64_t>(count.bytes()), ""});
        result.wire_bytes = static_cast<int64_t>(response.summary().wire_bytes());
        result.duration_us = static_cast<int64_t>(response.summary().duration_us());
      }
    }
    TP_RETURN_IF_ERROR(Finish(stream->Finish()));
    TP_RETURN_IF_ERROR(assembled);
    TP_ASSIGN_OR_RETURN(result.outputs, assembler.Finish());
    return result;
  }

  absl::Status Generate(const GenerateOptions& options,
                        const std::function<bool(const GenerateChunk&)>& on_chunk) override {
    grpc::ClientContext context;
    Prepare(&context);
    v1::GenerateRequest request;
    request.set_request_id(NewRequestId());
    request.set_model(options.model);
    if (options.use_ids) {
      request.mutable_token_ids()->mutable_ids()->Add(options.token_ids.begin(), options.token_ids.end());
    } else {
      request.set_text(options.prompt);
    }
    request.set_max_new_tokens(options.max_new_tokens);
    request.set_ignore_eos(options.ignore_eos);
    v1::Sampling* sampling = request.mutable_sampling();
    sampling->set_temperature(options.temperature);
    sampling->set_top_k(options.top_k);
    sampling->set_top_p(options.top_p);
    sampling->set_seed(options.seed);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      GenerateChunk chunk{std::vector<int64_t>(response.token_ids().begin(), response.token_ids().end()),
                          response.text(), response.finish_reason()};
      if (on_chunk(chunk)) continue;
      context.TryCancel();
      while (reader->Read(&response)) {
      }
      (void)reader->Finish();
      return absl::CancelledError("stopped by the caller");
    }
    return Finish(reader->Finish());
  }

  absl::StatusOr<std::vector<WorkerInfo>> ListWorkers() override {
    v1::ListWorkersResponse response;
    TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::ListWorkers, v1::ListWorkersRequest(), &response));
    std::vector<WorkerInfo> workers;
    for (const v1::WorkerDescription& from : response.workers()) {
      WorkerInfo worker{.id = from.id(),
                        .host = from.host(),
                        .device = from.device(),
                        .reason = from.reason(),
                        .version = from.version(),
                        .healthy = from.healthy(),
                        .memory_limit_bytes = static_cast<int64_t>(from.memory_limit_bytes()),
                        .used_bytes = static_cast<int64_t>(from.used_bytes()),
                        .pid = from.pid()};
      for (int i = 0; i < from.models_size() && i < from.ranks_size(); ++i) {
        worker.models.push_back(from.models(i));
        worker.ranks.push_back(from.ranks(i));
      }
      workers.push_back(std::move(worker));
    }
    return workers;
  }

  absl::StatusOr<StatusInfo> GetStatus() override {
    v1::GetStatusResponse response;
    TP_RETURN_IF_ERROR(Call(&v1::CoordinatorService::Stub::GetStatus, v1::GetStatusRequest(), &response));
    return StatusInfo{.version = response.version(),
                      .term = static_cast<int64_t>(response.term()),
                      .uptime_ms = static_cast<int64_t>(response.uptime_ms()),
                      .workers_healthy = response.workers_healthy(),
                      .workers = response.workers(),
                      .models_ready = response.models_ready(),
                      .models = response.models(),
                      .requests = response.requests()};
  }

 private:
  void Prepare(grpc::ClientContext* context) const {
    if (options_.timeout == absl::InfiniteDuration()) return;
    context->set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  }
  // Names the address where nobody answers.
  absl::Status Finish(const grpc::Status& status) const {
    const absl::Status converted = FromGrpcStatus(status);
    if (absl::IsUnavailable(converted) && absl::StrContains(converted.message(), "failed to connect"))
      return absl::UnavailableError(
          absl::StrCat("no coordinator answers at ", options_.server, ": ", converted.message()));
    return converted;
  }
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    Prepare(&context);
    return Finish((stub_.get()->*method)(&context, request, response));
  }

  const ClientOptions options_;
  const std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

}  // namespace

std::unique_ptr<Client> Connect(const ClientOptions& options) { return std::make_unique<GrpcClient>(options); }

}  // namespace tp::client
