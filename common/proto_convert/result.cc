// Results of commands and statuses.
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/command.h"
#include "common/proto_convert/layout.h"

namespace tp {
namespace {

absl::StatusOr<RunResult> RunResultFromProto(const v1::RunResult& proto, const std::string& field) {
  RunResult result;
  for (int i = 0; i < proto.blocks_size(); ++i) {
    const v1::ResultBlock& block = proto.blocks(i);
    const std::string at = Indexed(field + ".blocks", i);
    ResultBlock added;
    added.output = block.output();
    TP_ASSIGN_OR_RETURN(added.dtype, DTypeFromProto(block.dtype(), at + ".dtype"));
    TP_ASSIGN_OR_RETURN(added.global_shape, ShapeFromProto(block.global_shape(), at + ".global_shape"));
    TP_ASSIGN_OR_RETURN(added.offset, ShapeFromProto(block.offset(), at + ".offset"));
    TP_ASSIGN_OR_RETURN(added.shape, ShapeFromProto(block.shape(), at + ".shape"));
    if (added.offset.size() != added.global_shape.size() || added.shape.size() != added.global_shape.size()) {
      return FieldError(at, "offset and shape must have the rank of global_shape");
    }
    for (size_t d = 0; d < added.shape.size(); ++d) {
      if (added.offset[d] > added.global_shape[d] || added.shape[d] > added.global_shape[d] - added.offset[d]) {
        return FieldError(at, absl::StrCat("block ", ShapeText(added.shape), " at ", ShapeText(added.offset),
                                           " is not inside ", ShapeText(added.global_shape)));
      }
    }
    added.streamed = block.streamed();
    added.data = block.data();
    absl::StatusOr<int64_t> bytes = CheckedBytes(added.shape, added.dtype);
    if (!bytes.ok()) return AtField(bytes.status(), at);
    if (!added.streamed && static_cast<int64_t>(added.data.size()) != *bytes) {
      return FieldError(at + ".data", absl::StrCat("expected ", *bytes, " bytes, got ", added.data.size()));
    }
    result.blocks.push_back(std::move(added));
  }
  for (const v1::CollectiveCount& count : proto.collectives()) {
    result.collectives.push_back({count.module(), count.op(), count.axis(), static_cast<int64_t>(count.bytes()), ""});
  }
  result.wire_bytes = static_cast<int64_t>(proto.wire_bytes());
  result.duration_us = static_cast<int64_t>(proto.duration_us());
  return result;
}

void RunResultToProto(const RunResult& result, v1::RunResult* proto) {
  for (const ResultBlock& block : result.blocks) {
    v1::ResultBlock* added = proto->add_blocks();
    added->set_output(block.output);
    added->set_dtype(DTypeToProto(block.dtype));
    ShapeToProto(block.global_shape, added->mutable_global_shape());
    ShapeToProto(block.offset, added->mutable_offset());
    ShapeToProto(block.shape, added->mutable_shape());
    added->set_data(block.data);
    added->set_streamed(block.streamed);
  }
  for (const CollectiveRecord& record : result.collectives) {
    v1::CollectiveCount* added = proto->add_collectives();
    added->set_module(record.module);
    added->set_op(record.op);
    added->set_axis(record.axis);
    added->set_bytes(static_cast<uint64_t>(record.bytes));
  }
  proto->set_wire_bytes(static_cast<uint64_t>(result.wire_bytes));
  proto->set_duration_us(static_cast<uint64_t>(result.duration_us));
}

}  // namespace

std::string CutStatusText(const std::string& text) {
  if (text.size() <= kMaxStatusText) return text;
  size_t end = kMaxStatusText - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

void StatusToProto(const absl::Status& status, v1::StatusProto* proto) {
  proto->set_code(static_cast<int>(status.code()));
  proto->set_message(CutStatusText(std::string(status.message())));
}

absl::Status StatusFromProto(const v1::StatusProto& proto) {
  absl::StatusCode code = proto.code() >= 0 && proto.code() <= 16 ? static_cast<absl::StatusCode>(proto.code())
                                                                  : absl::StatusCode::kUnknown;
  return absl::Status(code, proto.message());
}

absl::StatusOr<Ack> AckFromProto(const v1::Ack& ack) {
  Ack result;
  result.sequence = ack.sequence();
  result.order = ack.order();
  result.status = StatusFromProto(ack.status());
  result.failed_rank = ack.failed_rank();
  TP_ASSIGN_OR_RETURN(result.run, RunResultFromProto(ack.run(), "ack.run"));
  for (const v1::SequenceTokens& sequence : ack.decode().sequences()) {
    result.decode.sequences.push_back(
        {sequence.sequence_id(), {sequence.token_ids().begin(), sequence.token_ids().end()}, sequence.finish_reason()});
  }
  result.decode.duration_us = static_cast<int64_t>(ack.decode().duration_us());
  return result;
}

void AckToProto(const Ack& ack, v1::Ack* proto) {
  proto->set_sequence(ack.sequence);
  proto->set_order(ack.order);
  StatusToProto(ack.status, proto->mutable_status());
  proto->set_failed_rank(ack.failed_rank);
  RunResultToProto(ack.run, proto->mutable_run());
  for (const SequenceTokens& sequence : ack.decode.sequences) {
    v1::SequenceTokens* added = proto->mutable_decode()->add_sequences();
    added->set_sequence_id(sequence.sequence_id);
    added->mutable_token_ids()->Assign(sequence.token_ids.begin(), sequence.token_ids.end());
    added->set_finish_reason(sequence.finish_reason);
  }
  proto->mutable_decode()->set_duration_us(static_cast<uint64_t>(ack.decode.duration_us));
}

absl::StatusOr<StageResult> StageResultFromProto(const v1::StageResult& result) {
  StageResult value{result.stage_id(),
                    StatusFromProto(result.status()),
                    result.address(),
                    static_cast<int64_t>(result.bytes_read()),
                    static_cast<int64_t>(result.parameter_bytes()),
                    {}};
  for (int i = 0; i < result.found_size(); ++i) {
    const std::string field = Indexed("stage_result.found", i);
    FoundTensor found{result.found(i).name(), result.found(i).file(), DType::kF32, {}};
    TP_ASSIGN_OR_RETURN(found.dtype, DTypeFromProto(result.found(i).dtype(), field + ".dtype"));
    TP_ASSIGN_OR_RETURN(found.shape, ShapeFromProto(result.found(i).shape(), field + ".shape"));
    absl::StatusOr<int64_t> bytes = CheckedBytes(found.shape, found.dtype);
    if (!bytes.ok()) return AtField(bytes.status(), field + ".shape");
    value.found.push_back(std::move(found));
  }
  return value;
}

void StageResultToProto(const StageResult& result, v1::StageResult* proto) {
  proto->set_stage_id(result.stage_id);
  StatusToProto(result.status, proto->mutable_status());
  proto->set_address(result.address);
  proto->set_bytes_read(static_cast<uint64_t>(result.bytes_read));
  proto->set_parameter_bytes(static_cast<uint64_t>(result.parameter_bytes));
  for (const FoundTensor& found : result.found) {
    v1::FoundTensor* added = proto->add_found();
    added->set_name(found.name);
    added->set_file(found.file);
    added->set_dtype(DTypeToProto(found.dtype));
    ShapeToProto(found.shape, added->mutable_shape());
  }
}

}  // namespace tp
