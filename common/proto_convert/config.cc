#include "common/proto_convert/config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/names.h"
#include "tp/v1/config.pb.h"

namespace tp {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

const Descriptor* DescriptorOf(ConfigKind kind) {
  return kind == ConfigKind::kCoordinator ? v1::CoordinatorConfig::descriptor() : v1::WorkerConfig::descriptor();
}

std::string Place(std::string_view file, int line, int column) {
  return absl::StrCat(std::string(file), ":", line + 1, ":", column + 1);
}

// Collects errors, and warnings, which are unknown fields, in the order of their places.
class Errors : public google::protobuf::io::ErrorCollector {
 public:
  Errors(std::string_view file, const Descriptor* descriptor) : file_(file) {
    for (int i = 0; i < descriptor->field_count(); ++i) names_.push_back(descriptor->field(i)->name());
  }
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    // As: Message type "tp.v1.WorkerConfig" has no field named "treads".
    const std::string marker = "has no field named \"";
    const size_t at = message.find(marker);
    if (at == std::string::npos) {
      errors_[{line, column}] = message;
      return;
    }
    const size_t begin = at + marker.size();
    const std::string name = message.substr(begin, message.find('"', begin) - begin);
    errors_[{line, column}] =
        absl::StrCat("no field '", Cut(name), "'; nearest: ", JoinNames(NearestNames(name, names_)));
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    AddError(line, column, message);
  }
  bool empty() const { return errors_.empty(); }
  std::string text() const {
    std::vector<std::string> texts;
    for (const auto& [place, text] : errors_) {
      texts.push_back(absl::StrCat(Place(file_, place.first, place.second), ": ", text));
    }
    return absl::StrJoin(texts, "; ");
  }

 private:
  const std::string file_;
  std::vector<std::string> names_;
  std::map<std::pair<int, int>, std::string> errors_;
};

std::string Value(const Message& message, const FieldDescriptor* field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrFormat("%.17g", reflection.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection.GetInt64(message, field));
    default:  // the messages have no other fields; their test says so
      return reflection.GetString(message, field);
  }
}

std::string FlagOf(const FieldDescriptor& field) { return absl::StrReplaceAll(field.name(), {{"_", "-"}}); }

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(std::string_view text, ConfigKind kind, std::string_view file) {
  const google::protobuf::LogSilencer quiet;  // what is wrong is in the status, not on stderr
  if (static_cast<int64_t>(text.size()) > kMaxConfigBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(std::string(file), ": ", text.size(), " bytes are over the limit of ", kMaxConfigBytes));
  }
  const Descriptor* const descriptor = DescriptorOf(kind);
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  Errors errors(file, descriptor);
  TextFormat::ParseInfoTree places;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&places);
  parser.AllowUnknownField(true);  // so that all of them are told; as warnings
  parser.SetRecursionLimit(10);
  if (!parser.ParseFromString(std::string(text), message.get()) || !errors.empty()) {
    return absl::InvalidArgumentError(errors.empty() ? absl::StrCat(std::string(file), ": can't be parsed")
                                                     : errors.text());
  }
  std::vector<ConfigEntry> entries;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    if (!message->GetReflection()->HasField(*message, field)) continue;
    const TextFormat::ParseLocation at = places.GetLocation(field, -1);
    std::string value = Value(*message, field);
    if (value.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(Place(file, at.line, at.column), ": ", field->name(), ": a zero byte is in it"));
    }
    entries.push_back({FlagOf(*field), std::move(value), Place(file, at.line, at.column)});
  }
  return entries;
}

std::vector<std::string> ConfigFlags(ConfigKind kind) {
  std::vector<std::string> flags;
  const Descriptor* const descriptor = DescriptorOf(kind);
  for (int i = 0; i < descriptor->field_count(); ++i) flags.push_back(FlagOf(*descriptor->field(i)));
  return flags;
}

std::string ConfigVariable(std::string_view flag) {
  return absl::StrCat("TP_", absl::AsciiStrToUpper(absl::StrReplaceAll(std::string(flag), {{"-", "_"}})));
}

}  // namespace tp
