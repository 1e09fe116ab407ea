// GrpcClient: requests to models.
#include "absl/strings/str_cat.h"
#include "client/tp_client/rpc/grpc_client.h"
#include "common/base/status.h"
#include "common/layout/spec.h"
#include "common/proto_convert/layout.h"

namespace tp::client {
namespace {

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

}  // namespace

absl::StatusOr<ForwardResult> GrpcClient::Forward(const std::string& model, const std::vector<NamedTensor>& inputs,
                                                  const RunOptions& options) {
  grpc::ClientContext context;
  Prepare(&context);
  auto stream = stub_->Forward(&context);
  v1::ForwardRequest first;
  first.mutable_header()->set_request_id(NewRequestId());
  first.mutable_header()->set_model(model);
  first.mutable_header()->set_module_outputs(options.module_outputs);
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

absl::Status GrpcClient::Generate(const GenerateOptions& options,
                                  const std::function<bool(const GenerateChunk&)>& on_chunk) {
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
    GenerateChunk chunk{std::vector<int64_t>(response.token_ids().begin(), response.token_ids().end()), response.text(),
                        response.finish_reason()};
    if (on_chunk(chunk)) continue;
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    (void)reader->Finish();
    return absl::CancelledError("stopped by the caller");
  }
  return Finish(reader->Finish());
}

}  // namespace tp::client
