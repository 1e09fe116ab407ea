#include "server/coordinator/forward_reply.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace tp::server {
namespace {

absl::Status AddBlocks(const RunResult& run, int rank, uint64_t transfer, ForwardReply* reply) {
  uint32_t streamed = 0;
  for (const ResultBlock& block : run.blocks) {
    const auto it = std::find_if(reply->outputs.begin(), reply->outputs.end(),
                                 [&](const AnswerOutput& output) { return output.name == block.output; });
    const absl::StatusOr<int64_t> bytes = CheckedBytes(block.shape, block.dtype);
    const bool fits = it != reply->outputs.end() && bytes.ok() && it->dtype == block.dtype &&
                      it->shape == block.global_shape && block.offset.size() == block.shape.size() &&
                      block.shape.size() == it->shape.size() &&
                      (block.streamed || *bytes == static_cast<int64_t>(block.data.size()));
    if (!fits) {
      return absl::InternalError(absl::StrCat("rank ", rank, " answered a block ", ShapeText(block.shape),
                                              " of output '", block.output, "' that does not fit the program"));
    }
    AnswerBlock answer;
    answer.output = static_cast<uint32_t>(it - reply->outputs.begin());
    answer.offset = block.offset;
    answer.shape = block.shape;
    answer.size_bytes = *bytes;
    answer.rank = rank;
    if (block.streamed) {
      answer.transfer_id = transfer;
      answer.stream_index = streamed++;
    } else {
      answer.data = block.data;
    }
    reply->blocks.push_back(std::move(answer));
  }
  return absl::OkStatus();
}

// Whether the blocks that the reply got of a rank, from `begin` on, are its whole block of each output.
absl::Status CheckLocalBlocks(const ForwardReply& reply, int rank, size_t begin) {
  bool fits = reply.blocks.size() - begin == reply.outputs.size();
  const Coordinate coordinate = reply.mesh.CoordinateOf(rank);
  for (size_t i = 0; fits && i < reply.outputs.size(); ++i) {
    const AnswerOutput& output = reply.outputs[i];
    const AnswerBlock& block = reply.blocks[begin + i];
    fits = block.output == i && block.shape == LocalShape(output.shape, output.placements, reply.mesh, coordinate) &&
           block.offset == LocalOffset(output.shape, output.placements, reply.mesh, coordinate);
  }
  if (fits) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("rank ", rank, " answered other blocks than its own"));
}

// Of several ranks: the maximum, collectives index by index.
void MergeCounts(const RunResult& run, std::vector<CollectiveRecord>* collectives, int64_t* wire_bytes,
                 int64_t* duration_us) {
  *wire_bytes = std::max(*wire_bytes, run.wire_bytes);
  *duration_us = std::max(*duration_us, run.duration_us);
  for (size_t i = 0; i < run.collectives.size(); ++i) {
    if (i == collectives->size()) {
      collectives->push_back(run.collectives[i]);
    } else {
      (*collectives)[i].bytes = std::max((*collectives)[i].bytes, run.collectives[i].bytes);
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<AnswerOutput>> AnswerOutputs(const ForwardProgram& program, const Bindings& bindings) {
  std::vector<AnswerOutput> outputs;
  for (const NamedValue& output : program.outputs) {
    const DTensorSpec& spec = program.values[output.value].spec;
    TP_ASSIGN_OR_RETURN(Shape shape, EvaluateShape(spec.shape, bindings));
    const absl::StatusOr<int64_t> bytes = CheckedBytes(shape, spec.dtype);
    if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat("output '", output.name, "'"));
    outputs.push_back({output.name, spec.dtype, std::move(shape), spec.placements});
  }
  return outputs;
}

ForwardReply MakeForwardReply(const ForwardProgram& program, const Bindings& bindings, bool local_blocks,
                              const std::vector<const Ack*>& acks, const std::vector<uint64_t>& transfers) {
  ForwardReply reply;
  reply.mesh = program.mesh;
  absl::StatusOr<std::vector<AnswerOutput>> outputs = AnswerOutputs(program, bindings);
  if (!outputs.ok()) {
    reply.status = outputs.status();
    return reply;
  }
  reply.outputs = *std::move(outputs);
  for (size_t rank = 0; rank < acks.size(); ++rank) {
    const RunResult& run = acks[rank]->run;
    const size_t begin = reply.blocks.size();
    absl::Status added = AddBlocks(run, static_cast<int>(rank), transfers[rank], &reply);
    if (added.ok() && local_blocks) added = CheckLocalBlocks(reply, static_cast<int>(rank), begin);
    if (!added.ok()) {
      ForwardReply failed;
      failed.status = added;
      return failed;
    }
    MergeCounts(run, &reply.collectives, &reply.wire_bytes, &reply.duration_us);
  }
  return reply;
}

void AddCounts(const std::vector<std::optional<Ack>>& acks, OperationReply* reply) {
  std::vector<CollectiveRecord> collectives;
  int64_t wire_bytes = 0, duration_us = 0;
  for (const std::optional<Ack>& ack : acks) MergeCounts(ack->run, &collectives, &wire_bytes, &duration_us);
  for (CollectiveRecord& record : collectives) {
    reply->counted.push_back({std::move(record.op), std::move(record.axis), record.bytes});
  }
  reply->wire_bytes += wire_bytes;
  reply->duration_us += duration_us;
}

}  // namespace tp::server
