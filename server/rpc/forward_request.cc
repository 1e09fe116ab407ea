#include "server/rpc/forward_request.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"
#include "server/rpc/tensor_requests.h"

namespace tp::server {
namespace {

// Reads the inputs of a header one by one and adds up their bytes.
class Reader {
 public:
  Reader(PendingForward* pending, const Limits& limits) : pending_(pending), limits_(limits) {}

  absl::Status Add(const v1::ForwardInput& input, const std::string& field) {
    const std::string& name = input.name();
    ForwardRequested& event = pending_->event;
    if (event.inputs.contains(name) || event.shards.contains(name) || event.refs.contains(name)) {
      return FieldError(field + ".name", absl::StrCat("'", name, "' is repeated"));
    }
    if (input.source_case() == v1::ForwardInput::kRef) {
      if (input.dtype() != v1::DATA_TYPE_UNSPECIFIED || input.shape_size() > 0) {
        return FieldError(field + ".ref", "the tensor has its own dtype and shape; leave them out");
      }
      event.refs[name] = input.ref();
      return absl::OkStatus();
    }
    TP_ASSIGN_OR_RETURN(const DType dtype, DTypeFromProto(input.dtype(), field + ".dtype"));
    TP_ASSIGN_OR_RETURN(Shape shape, ShapeFromProto(input.shape(), field + ".shape"));
    if (input.source_case() == v1::ForwardInput::kShards) {
      return AddShards(name, dtype, std::move(shape), input.shards(), field);
    }
    TP_RETURN_IF_ERROR(AddArray({name, -1}, dtype, shape, field + ".shape"));
    event.inputs[name] = {dtype, std::move(shape), ""};
    return absl::OkStatus();
  }

 private:
  absl::Status AddShards(const std::string& name, DType dtype, Shape shape, const v1::InputShards& proto,
                         const std::string& field) {
    if (proto.infer_shape() && !shape.empty()) {
      return FieldError(field + ".shards.infer_shape", "the shape is given, too; leave one out");
    }
    if (proto.locals_size() == 0) return FieldError(field + ".shards.locals", "there are none");
    InputShards shards;
    shards.dtype = dtype;
    shards.shape = std::move(shape);
    shards.infer_shape = proto.infer_shape();
    const absl::StatusOr<int64_t> whole = CheckedBytes(shards.shape, dtype);
    if (!whole.ok()) return AtField(whole.status(), field + ".shape");
    TP_ASSIGN_OR_RETURN(shards.placements, PlacementsOf(proto.placements(), field + ".shards.placements"));
    for (int i = 0; i < proto.locals_size(); ++i) {
      const std::string at = Indexed(field + ".shards.locals", i) + ".shape";
      LocalBlockShape local;
      local.rank = proto.locals(i).rank();
      TP_ASSIGN_OR_RETURN(local.shape, ShapeFromProto(proto.locals(i).shape(), at));
      TP_RETURN_IF_ERROR(AddArray({name, i}, dtype, local.shape, at));
      shards.locals.push_back(std::move(local));
    }
    shards.data.resize(shards.locals.size());
    pending_->event.shards[name] = std::move(shards);
    return absl::OkStatus();
  }

  absl::Status AddArray(PendingForward::Array array, DType dtype, const Shape& shape, const std::string& field) {
    const absl::StatusOr<int64_t> size = CheckedBytes(shape, dtype);
    if (!size.ok()) return AtField(size.status(), field);
    if (__builtin_add_overflow(total_, *size, &total_) || total_ > limits_.input_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("header.inputs: more than the limit of ", limits_.input_bytes, " bytes of a request's inputs"));
    }
    pending_->arrays.push_back(std::move(array));
    pending_->sizes.push_back(static_cast<uint64_t>(*size));
    return absl::OkStatus();
  }

  PendingForward* const pending_;
  const Limits& limits_;
  int64_t total_ = 0;
};

}  // namespace

absl::StatusOr<PendingForward> ForwardFromProto(const v1::ForwardHeader& header, const Limits& limits) {
  PendingForward pending;
  pending.event.model = header.model();
  if (!v1::OutputForm_IsValid(header.output_form())) {
    return FieldError("header.output_form",
                      absl::StrCat("is ", static_cast<int>(header.output_form()), "; must be FULL (1) or SHARDS (2)"));
  }
  pending.event.local_blocks = header.output_form() == v1::OUTPUT_FORM_SHARDS;
  Reader reader(&pending, limits);
  for (int i = 0; i < header.inputs_size(); ++i) {
    TP_RETURN_IF_ERROR(reader.Add(header.inputs(i), Indexed("header.inputs", i)));
  }
  return pending;
}

ForwardRequested WithBytes(PendingForward pending, std::vector<std::string> bytes) {
  ForwardRequested& event = pending.event;
  for (size_t i = 0; i < pending.arrays.size(); ++i) {
    const PendingForward::Array& array = pending.arrays[i];
    if (array.local < 0) {
      event.inputs.at(array.input).bytes = std::move(bytes[i]);
    } else {
      event.shards.at(array.input).data[static_cast<size_t>(array.local)] = std::move(bytes[i]);
    }
  }
  return std::move(event);
}

}  // namespace tp::server
