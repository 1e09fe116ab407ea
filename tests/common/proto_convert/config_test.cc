#include "common/proto_convert/config.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>

#include "tp/v1/config.pb.h"

namespace tp {
namespace {

using google::protobuf::FieldDescriptor;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text, ConfigKind kind = ConfigKind::kWorker) {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ParseConfig(text, kind, "w.textproto");
  EXPECT_FALSE(entries.ok());
  return std::string(entries.status().message());
}

TEST(ParseConfig, GivesValuesAsTheCommandLineHasThemWithTheirPlaces) {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ParseConfig(
      "# comment\nthreads: 4\n  server: \"a:1\" # another\ntime_scale: 0.1\nmemory_limit: 8589934592\n"
      "tf32: true, no_graphs: false\nmodel_root: ''",
      ConfigKind::kWorker, "w.textproto");
  ASSERT_TRUE(entries.ok()) << entries.status();
  std::map<std::string, std::pair<std::string, std::string>> by_flag;
  for (const ConfigEntry& entry : *entries) by_flag[entry.flag] = {entry.value, entry.place};
  EXPECT_EQ(by_flag.size(), 7u);
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(by_flag["threads"], Pair("4", "w.textproto:2:1"));
  EXPECT_EQ(by_flag["server"], Pair("a:1", "w.textproto:3:3"));
  EXPECT_EQ(std::stod(by_flag["time-scale"].first), 0.1);
  EXPECT_EQ(by_flag["memory-limit"], Pair("8589934592", "w.textproto:5:1"));
  EXPECT_EQ(by_flag["tf32"], Pair("true", "w.textproto:6:1"));
  EXPECT_EQ(by_flag["no-graphs"].first, "false");
  EXPECT_EQ(by_flag["model-root"], Pair("", "w.textproto:7:1"));  // set, to nothing
}

TEST(ParseConfig, AnEmptyFileSetsNothing) {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ParseConfig("", ConfigKind::kCoordinator, "c.textproto");
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_TRUE(entries->empty());
}

TEST(ParseConfig, EveryUnknownFieldIsToldWithItsNearest) {
  const std::string error = ErrorOf("treads: 4\nserver: \"a:1\"\nlog_fromat: \"json\"\nextra { inner: 3 }");
  EXPECT_THAT(error, AllOf(HasSubstr("w.textproto:1:7: no field 'treads'; nearest: threads"),
                           HasSubstr("w.textproto:3:11: no field 'log_fromat'; nearest: log_format"),
                           HasSubstr("w.textproto:4:7: no field 'extra'")));
  // A field of the other program is unknown.
  EXPECT_THAT(ErrorOf("data_dir: '/d'"), HasSubstr("w.textproto:1:9: no field 'data_dir'"));
}

TEST(ParseConfig, WrongTypesRangesAndSyntaxAreToldWithTheirPlace) {
  EXPECT_THAT(ErrorOf("\n threads: 'four'"), HasSubstr("w.textproto:2:11: "));
  EXPECT_THAT(ErrorOf("threads: 4294967296"), HasSubstr("w.textproto:1:10: "));
  EXPECT_THAT(ErrorOf("tf32: 7"), HasSubstr("w.textproto:1:7: "));
  EXPECT_THAT(ErrorOf("server: a:1"), HasSubstr("w.textproto:1:9: "));
  EXPECT_THAT(ErrorOf("id: \"a"), HasSubstr("w.textproto:1:"));
  EXPECT_THAT(ErrorOf("id \"a\""), HasSubstr("w.textproto:1:4: "));
  EXPECT_THAT(ErrorOf("id: 'a'\nid: 'b'"), HasSubstr("w.textproto:2:"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("w.textproto:1:1: "));
}

TEST(ParseConfig, LongFilesAreRefused) {
  const std::string text(static_cast<size_t>(kMaxConfigBytes) + 1, '\n');
  const absl::Status status = ParseConfig(text, ConfigKind::kWorker, "w.textproto").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

// What the translation to options takes for granted.
TEST(ConfigMessages, HaveOptionalFieldsOfKnownTypes) {
  for (const auto* message : {v1::CoordinatorConfig::descriptor(), v1::WorkerConfig::descriptor()}) {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor* field = message->field(i);
      EXPECT_TRUE(field->has_presence() && !field->is_repeated()) << field->full_name();
      EXPECT_THAT((std::vector<int>{FieldDescriptor::CPPTYPE_BOOL, FieldDescriptor::CPPTYPE_DOUBLE,
                                    FieldDescriptor::CPPTYPE_INT32, FieldDescriptor::CPPTYPE_INT64,
                                    FieldDescriptor::CPPTYPE_STRING}),
                  Contains(static_cast<int>(field->cpp_type())))
          << field->full_name();
    }
  }
}

TEST(ConfigVariable, IsTheNameInUpperCase) {
  EXPECT_EQ(ConfigVariable("metrics-listen"), "TP_METRICS_LISTEN");
  EXPECT_EQ(ConfigVariable("tf32"), "TP_TF32");
}

}  // namespace
}  // namespace tp
