// GrpcClient: forward.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tp_client/rpc/grpc_client.h"
#include "common/base/status.h"
#include "common/layout/spec.h"
#include "common/proto_convert/layout.h"

namespace tp::client {
namespace {

// Checks the blocks of an answer as they come, and puts them together.
class Assembler {
 public:
  explicit Assembler(bool shards) : shards_(shards) {}

  absl::Status Begin(const v1::ForwardResponseHeader& header) {
    if (begun_) return absl::InternalError("the answer has two headers");
    begun_ = true;
    TP_ASSIGN_OR_RETURN(mesh_, MeshFromProto(header.mesh(), "mesh"));
    for (const v1::ForwardOutput& from : header.outputs()) {
      OutputShards output{.name = from.name()};
      TP_ASSIGN_OR_RETURN(output.dtype, DTypeFromProto(from.dtype(), "outputs.dtype"));
      TP_ASSIGN_OR_RETURN(output.shape, ShapeFromProto(from.shape(), "outputs.shape"));
      TP_ASSIGN_OR_RETURN(output.placements, CheckedPlacementsFromProto(from.placements(), output.shape, output.dtype,
                                                                        mesh_, "outputs.placements"));
      TP_RETURN_IF_ERROR(CheckedBytes(output.shape, output.dtype).status());
      outputs_.push_back(std::move(output));
    }
    for (const v1::OutputBlock& from : header.blocks()) {
      Block block{from.output(), from.rank(), Shape(from.offset().begin(), from.offset().end()),
                  Shape(from.shape().begin(), from.shape().end()), ""};
      if (block.output >= outputs_.size()) return absl::InternalError("an answer's block names no output");
      TP_RETURN_IF_ERROR(Check(block));
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

  absl::Status Finish(ForwardResult* result) {
    if (!begun_) return absl::InternalError("the answer has no header");
    for (const Block& block : blocks_) {
      const OutputShards& output = outputs_[block.output];
      const int64_t expected = ElementCount(block.shape) * ItemSize(output.dtype);
      if (static_cast<int64_t>(block.bytes.size()) != expected)
        return absl::DataLossError(absl::StrCat("output '", output.name, "': expected ", expected,
                                                " bytes of a block, got ", block.bytes.size()));
    }
    result->mesh = mesh_;
    if (shards_) return FinishShards(result);
    for (const OutputShards& output : outputs_) {
      const int64_t bytes = ElementCount(output.shape) * ItemSize(output.dtype);
      result->outputs.push_back(
          {output.name, {output.dtype, output.shape, std::string(static_cast<size_t>(bytes), '\0')}});
    }
    for (const Block& block : blocks_) {
      HostTensor& whole = result->outputs[block.output].tensor;
      CopyBox(block.bytes.data(), block.shape, Shape(block.shape.size(), 0), whole.bytes.data(), whole.shape,
              block.offset, block.shape, ItemSize(whole.dtype));
    }
    return absl::OkStatus();
  }

 private:
  struct Block {
    size_t output;
    int rank;
    Shape offset, shape;
    std::string bytes;
  };

  absl::Status Check(const Block& block) const {
    const OutputShards& output = outputs_[block.output];
    if (shards_) {
      if (block.rank < 0 || block.rank >= mesh_.rank_count()) return absl::InternalError("a block of no rank");
      if (block.shape == LocalShape(output.shape, output.placements, mesh_, mesh_.CoordinateOf(block.rank)))
        return absl::OkStatus();
      return absl::InternalError("an answer's block is not that of its rank");
    }
    bool inside = block.offset.size() == output.shape.size() && block.shape.size() == output.shape.size();
    for (size_t i = 0; inside && i < output.shape.size(); ++i)
      inside = block.offset[i] >= 0 && block.shape[i] >= 0 && block.offset[i] <= output.shape[i] - block.shape[i];
    return inside ? absl::OkStatus() : absl::InternalError("an answer's block lies outside its output");
  }

  absl::Status FinishShards(ForwardResult* result) {
    for (Block& block : blocks_) {
      OutputShards& output = outputs_[block.output];
      output.shards.push_back(
          {block.rank, std::move(block.offset), {output.dtype, std::move(block.shape), std::move(block.bytes)}});
    }
    for (OutputShards& output : outputs_) {
      std::sort(output.shards.begin(), output.shards.end(),
                [](const OutputShard& a, const OutputShard& b) { return a.rank < b.rank; });
      for (size_t i = 0; i < output.shards.size(); ++i)
        if (output.shards[i].rank != static_cast<int>(i)) return absl::DataLossError("the block of a rank is missing");
      if (output.shards.size() != static_cast<size_t>(mesh_.rank_count()))
        return absl::DataLossError("the block of a rank is missing");
    }
    result->output_shards = std::move(outputs_);
    return absl::OkStatus();
  }

  const bool shards_;
  bool begun_ = false;
  Mesh mesh_;
  std::vector<OutputShards> outputs_;  // their shards are filled at the end
  std::vector<Block> blocks_;
};

// Fills the message and notes the arrays to send, in order.
absl::Status InputToProto(const ForwardInput& input, v1::ForwardInput* proto, std::vector<const std::string*>* arrays) {
  proto->set_name(input.name);
  if (!input.ref.empty()) {
    proto->set_ref(input.ref);
    return absl::OkStatus();
  }
  if (input.shards.empty()) {
    proto->set_dtype(DTypeToProto(input.full.dtype));
    ShapeToProto(input.full.shape, proto->mutable_shape());
    arrays->push_back(&input.full.bytes);
    return absl::OkStatus();
  }
  const DType dtype = input.shards[0].tensor.dtype;
  proto->set_dtype(DTypeToProto(dtype));
  if (input.global_shape.has_value()) ShapeToProto(*input.global_shape, proto->mutable_shape());
  v1::InputShards* shards = proto->mutable_shards();
  shards->set_infer_shape(!input.global_shape.has_value());
  PlacementsToMap(input.placements, shards->mutable_placements());
  for (const InputShard& shard : input.shards) {
    if (shard.tensor.dtype != dtype)
      return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "': the block of rank ", shard.rank, " is ",
                                                     std::string(DTypeName(shard.tensor.dtype)), ", that of rank ",
                                                     input.shards[0].rank, " ", std::string(DTypeName(dtype))));
    v1::LocalTensor* local = shards->add_locals();
    local->set_rank(shard.rank);
    ShapeToProto(shard.tensor.shape, local->mutable_shape());
    arrays->push_back(&shard.tensor.bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ForwardResult> GrpcClient::Forward(const ForwardRequest& request) {
  v1::ForwardRequest first;
  first.mutable_header()->set_request_id(NewRequestId());
  first.mutable_header()->set_model(request.model);
  first.mutable_header()->set_module_outputs(request.module_outputs);
  if (request.output_shards) first.mutable_header()->set_output_form(v1::OUTPUT_FORM_SHARDS);
  std::vector<const std::string*> arrays;
  for (const ForwardInput& input : request.inputs)
    TP_RETURN_IF_ERROR(InputToProto(input, first.mutable_header()->add_inputs(), &arrays));

  grpc::ClientContext context;
  Prepare(&context);
  auto stream = stub_->Forward(&context);
  bool open = stream->Write(first);
  for (size_t i = 0; open && i < arrays.size(); ++i) {
    open = WriteChunks(static_cast<uint32_t>(i), *arrays[i], [&](v1::Chunk chunk) {
      v1::ForwardRequest message;
      *message.mutable_chunk() = std::move(chunk);
      return stream->Write(message);
    });
  }
  stream->WritesDone();
  ForwardResult result;
  Assembler assembler(request.output_shards);
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
  TP_RETURN_IF_ERROR(assembler.Finish(&result));
  return result;
}

}  // namespace tp::client
