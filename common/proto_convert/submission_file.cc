#include "common/proto_convert/submission_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool EndsWith(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

// Keeps the first error, with its place counted from 1.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::Status RefuseUnknownFields(const Message& message, const std::string& path) {
  const google::protobuf::Reflection* reflection = message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path.empty() ? "submission" : path, ": unknown field number ",
                                                   unknown.field(0).number(), " of ",
                                                   message.GetDescriptor()->full_name()));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string at = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    if (field->is_repeated()) {  // maps too: as lists of entries
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        TP_RETURN_IF_ERROR(
            RefuseUnknownFields(reflection->GetRepeatedMessage(message, field, i), absl::StrCat(at, "[", i, "]")));
      }
    } else {
      TP_RETURN_IF_ERROR(RefuseUnknownFields(reflection->GetMessage(message, field), at));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseText(const std::string& bytes, v1::Submission* message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(100);
  if (parser.ParseFromString(bytes, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(error.text().empty() ? "not a submission in text form" : error.text());
}

absl::Status ParseJson(const std::string& bytes, v1::Submission* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  google::protobuf::util::Status status = google::protobuf::util::JsonStringToMessage(bytes, message, options);
  if (status.ok()) return absl::OkStatus();
  std::string text(status.message().data(), status.message().size());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return absl::InvalidArgumentError(text);
}

void ResolvePath(const std::string& folder, std::string* path) {
  if (path->empty() || path->front() == '/') return;
  *path = absl::StrCat(folder, folder.empty() || folder.back() == '/' ? "" : "/", *path);
}

void ResolveSource(const std::string& folder, WeightSource* source) {
  if (source->kind == WeightSource::Kind::kFile) ResolvePath(folder, &source->path);
  for (WeightSource& part : source->parts) ResolveSource(folder, &part);
}

}  // namespace

absl::StatusOr<SubmissionFormat> SubmissionFormatOf(std::string_view path) {
  if (EndsWith(path, ".pb")) return SubmissionFormat::kBinary;
  if (EndsWith(path, ".textproto") || EndsWith(path, ".pbtxt")) return SubmissionFormat::kText;
  if (EndsWith(path, ".json")) return SubmissionFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(path), "': a submission's file ends in .pb, .textproto or .json"));
}

absl::StatusOr<v1::Submission> ParseSubmissionMessage(std::string_view bytes, SubmissionFormat format) {
  const google::protobuf::LogSilencer quiet;  // what is wrong is in the status, not on stderr
  if (bytes.size() > kMaxSubmissionBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("submission of ", bytes.size(), " bytes is over the limit of ", kMaxSubmissionBytes));
  }
  v1::Submission message;
  switch (format) {
    case SubmissionFormat::kBinary:
      if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        return absl::InvalidArgumentError("not a serialized tp.v1.Submission, or one with a string that is not UTF-8");
      }
      TP_RETURN_IF_ERROR(RefuseUnknownFields(message, ""));
      break;
    case SubmissionFormat::kText:
      TP_RETURN_IF_ERROR(ParseText(std::string(bytes), &message));
      break;
    case SubmissionFormat::kJson:
      TP_RETURN_IF_ERROR(ParseJson(std::string(bytes), &message));
      break;
  }
  // The text forms can hold strings that the wire refuses.
  if (v1::Submission copy; format != SubmissionFormat::kBinary && !copy.ParseFromString(message.SerializeAsString())) {
    return absl::InvalidArgumentError("a name or path in the submission is not UTF-8");
  }
  return message;
}

absl::StatusOr<Submission> ParseSubmission(std::string_view bytes, SubmissionFormat format) {
  TP_ASSIGN_OR_RETURN(v1::Submission message, ParseSubmissionMessage(bytes, format));
  return SubmissionFromProto(message);
}

namespace {

// Path of a module that has a sharding of its own; "" for none.
std::string ShardedModule(const v1::Module& module, const std::string& path) {
  if (module.has_sharding()) return path.empty() ? "the root module" : path;
  for (const v1::Module& child : module.children()) {
    std::string found = ShardedModule(child, path.empty() ? child.name() : absl::StrCat(path, ".", child.name()));
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

absl::StatusOr<PlanOfFile> ParsePlan(std::string_view bytes, SubmissionFormat format) {
  TP_ASSIGN_OR_RETURN(v1::Submission message, ParseSubmissionMessage(bytes, format));
  if (!message.has_plan()) return absl::InvalidArgumentError("plan: is required");
  PlanOfFile result;
  result.sharded_module = ShardedModule(message.model().root(), "");
  TP_ASSIGN_OR_RETURN(result.plan, PlanFromProto(message.plan(), "plan"));
  return result;
}

std::string SerializeSubmission(const Submission& submission, SubmissionFormat format) {
  v1::Submission message;
  SubmissionToProto(submission, &message);
  return SerializeSubmissionMessage(message, format);
}

std::string SerializePlan(const ParallelPlan& plan, SubmissionFormat format) {
  v1::Submission message;
  PlanToProto(plan, message.mutable_plan());
  return SerializeSubmissionMessage(message, format);
}

std::string SerializeSubmissionMessage(const v1::Submission& message, SubmissionFormat format) {
  std::string bytes;
  switch (format) {
    case SubmissionFormat::kBinary: {
      google::protobuf::io::StringOutputStream stream(&bytes);
      google::protobuf::io::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      message.SerializeToCodedStream(&coded);
      break;
    }
    case SubmissionFormat::kText: {
      google::protobuf::TextFormat::Printer printer;
      printer.PrintToString(message, &bytes);
      break;
    }
    case SubmissionFormat::kJson: {
      google::protobuf::util::JsonPrintOptions options;
      options.add_whitespace = true;
      options.preserve_proto_field_names = true;
      // Fails for Any and malformed timestamps only, which no submission has.
      (void)google::protobuf::util::MessageToJsonString(message, &bytes, options);
      break;
    }
  }
  return bytes;
}

void ResolveWeightPaths(const std::string& folder, Submission* submission) {
  ResolvePath(folder, &submission->weights_file);
  for (auto& [path, source] : submission->weights) ResolveSource(folder, &source);
}

}  // namespace tp
