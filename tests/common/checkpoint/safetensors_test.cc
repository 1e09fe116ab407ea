#include "common/checkpoint/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

// A folder of this process, removed at its end.
const std::string& Folder() {
  struct Owner {
    std::string path = ::testing::TempDir() + std::to_string(getpid()) + "_safetensors";
    Owner() { std::filesystem::create_directories(path); }
    ~Owner() { std::filesystem::remove_all(path); }
  };
  static Owner owner;
  return owner.path;
}

std::string TempPath(const std::string& name) { return Folder() + "/" + name; }

std::string Length(uint64_t size) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(size >> (8 * i)));
  return bytes;
}

// A whole file from header text and data.
std::string FileOf(const std::string& header, const std::string& data) { return Length(header.size()) + header + data; }

std::string WriteBytes(const std::string& name, const std::string& bytes) {
  std::string path = TempPath(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Two tensors, with b first in the data: b = U8 [3], a = F32 [1, 2].
const char kGood[] =
    R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[3,11]},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";

struct BadFile {
  std::string name;
  std::string bytes;
  std::string message;  // part of the refusal
};

class SafetensorsRefusal : public ::testing::TestWithParam<BadFile> {};

TEST_P(SafetensorsRefusal, NamesFileAndCause) {
  std::string path = WriteBytes(GetParam().name, GetParam().bytes);
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(GetParam().message));
}

std::string TenNamesAtOneRange() {
  std::string header = "{";
  for (int i = 0; i < 10; ++i) {
    header += std::string(i == 0 ? "" : ",") + "\"t" + std::to_string(i) +
              "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
  }
  return header + "}";
}

std::string OneTensor(const std::string& fields) { return "{\"x\":{" + fields + "}}"; }

INSTANTIATE_TEST_SUITE_P(
    Cases, SafetensorsRefusal,
    ::testing::Values(
        BadFile{"empty", "", "0 bytes, fewer than the 8"},
        BadFile{"seven_bytes", "1234567", "7 bytes, fewer than the 8"},
        BadFile{"length_past_end", Length(3) + "{}", "passes the end of the file of 10 bytes"},
        BadFile{"length_over_limit", Length(100'000'001) + "{}", "header length 100000001 is over 100000000"},
        BadFile{"length_huge", std::string(8, '\xff') + "{}", "18446744073709551615 is over"},
        BadFile{"empty_header", Length(0), "does not start with {"},
        BadFile{"not_utf8_in_name", FileOf("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", ""),
                "UTF-8"},
        BadFile{"not_utf8_header", FileOf("{\xc3\x28}", ""), "UTF-8"},
        BadFile{"cut_by_one_byte", FileOf(kGood, std::string(10, 'x')), "tensor \"a\": ends at byte 11"},
        BadFile{"one_byte_too_many", FileOf(kGood, std::string(12, 'x')),
                "the data has 12 bytes, but the last tensor \"a\""},
        BadFile{"only_braces_with_data", FileOf("{}", "x"), "the data has 1 bytes, but no tensor"},
        BadFile{"shape_overflow",
                FileOf(OneTensor(R"("dtype":"F32","shape":[2,18446744073709551614],"data_offsets":[0,8])"), "12345678"),
                "tensor \"x\": shape"},
        BadFile{"shape_product_overflow",
                FileOf(OneTensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), ""),
                "tensor \"x\""},
        BadFile{"shape_bytes_overflow",
                FileOf(OneTensor(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), ""),
                "tensor \"x\""},
        BadFile{"shape_negative", FileOf(OneTensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,0])"), ""),
                "tensor \"x\": shape"},
        BadFile{"shape_fraction", FileOf(OneTensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), "1"),
                "tensor \"x\": shape"},
        BadFile{"ten_names_at_one_range", FileOf(TenNamesAtOneRange(), "1234"),
                "tensor \"t1\": starts at byte 0 of the data and overlaps tensor \"t0\""},
        BadFile{
            "duplicate_key",
            FileOf(
                R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                "1"),
            "key \"x\" stands twice"},
        BadFile{"duplicate_field",
                FileOf(OneTensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"), "1"),
                "key \"dtype\" stands twice"},
        BadFile{"hole", FileOf(OneTensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), "12"), "hole from 0"},
        BadFile{"offsets_descend", FileOf(OneTensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), "1"),
                "tensor \"x\": data_offsets"},
        BadFile{"offsets_negative", FileOf(OneTensor(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])"), "1"),
                "tensor \"x\": data_offsets"},
        BadFile{"offsets_three", FileOf(OneTensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])"), "1"),
                "tensor \"x\": data_offsets"},
        BadFile{"bytes_do_not_fit", FileOf(OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "1234"),
                "tensor \"x\": expected 8 bytes for F32[2], got 4"},
        BadFile{"unknown_dtype", FileOf(OneTensor(R"("dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1])"), "1"),
                "F8_E4M3"},
        BadFile{"no_dtype", FileOf(OneTensor(R"("shape":[1],"data_offsets":[0,1])"), "1"),
                "tensor \"x\": dtype is missing"},
        BadFile{"unknown_field", FileOf(OneTensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"zip":1)"), "1"),
                "unknown field \"zip\""},
        BadFile{"list_header", FileOf("[]", ""), "does not start with {"},
        BadFile{"text_after_object", FileOf("{}x", ""), "not valid JSON"},
        BadFile{"entry_is_number", FileOf(R"({"x":1})", ""), "tensor \"x\": its entry is not an object"},
        BadFile{"metadata_not_text", FileOf(R"({"__metadata__":{"a":1}})", ""), "__metadata__ \"a\" is not text"},
        BadFile{"deep_nesting", FileOf("{\"x\":" + std::string(100000, '[') + "}", ""), "nested deeper than 32"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Safetensors, BracesOnlyAreLegal) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(WriteBytes("braces", FileOf("{}", "")));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->header().tensors.empty());
}

TEST(Safetensors, OffsetsAreAbsoluteAndNeedNotFollowTheNames) {
  std::string header = kGood;
  absl::StatusOr<SafetensorsHeader> parsed = ParseSafetensorsHeader(header, 8 + header.size() + 11);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const int64_t data = 8 + static_cast<int64_t>(header.size());
  EXPECT_EQ(parsed->data_begin, data);
  EXPECT_EQ(parsed->tensors.at("b").begin, data);
  EXPECT_EQ(parsed->tensors.at("a").begin, data + 3);
  EXPECT_EQ(parsed->tensors.at("a").end, data + 11);
  EXPECT_EQ(parsed->tensors.at("a").shape, (Shape{1, 2}));
  EXPECT_EQ(parsed->tensors.at("b").dtype, DType::kU8);
}

TEST(Safetensors, ScalarsZerosMetadataAndTrailingSpaceAreLegal) {
  std::string header =
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"I64","shape":[4,0],"data_offsets":[4,4]},"y":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}}    )";
  absl::StatusOr<SafetensorsHeader> parsed = ParseSafetensorsHeader(header, 8 + header.size() + 4);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
  EXPECT_EQ(parsed->tensors.at("s").shape, Shape{});
  EXPECT_EQ(parsed->tensors.at("z").shape, (Shape{4, 0}));
}

TEST(Safetensors, ReadsValuesByName) {
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(WriteBytes("values", FileOf(kGood, std::string("\1\2\3\0\0\x80\x3f\0\0\0\x40", 11))));
  ASSERT_TRUE(file.ok()) << file.status();
  absl::StatusOr<HostTensor> a = file->ReadTensor("a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(*a, MakeHostTensor<float>({1, 2}, {1, 2}));
  absl::StatusOr<HostTensor> missing = file->ReadTensor("aa");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("\"aa\""));
}

TEST(Safetensors, MissingFileAndFolderAreRefused) {
  EXPECT_EQ(SafetensorsFile::Open(TempPath("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(::testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  std::string pipe = TempPath("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::Open(pipe).status().code(), absl::StatusCode::kInvalidArgument);
  unlink(pipe.c_str());
}

TEST(Safetensors, AFileThatBecomesShorterIsDataLoss) {
  std::string path = WriteBytes("shrinks", FileOf(kGood, std::string(11, 'x')));
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 20);
  absl::Status status = file->ReadTensor("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(Safetensors, WritesWhatTheFormatSays) {
  std::string path = TempPath("written");
  absl::Status status =
      WriteSafetensors(path, {{"n", MakeHostTensor<uint8_t>({1}, {7})}, {"q\"", MakeHostTensor<float>({1}, {1})}});
  ASSERT_TRUE(status.ok()) << status;
  std::ifstream stream(path, std::ios::binary);
  std::stringstream bytes;
  bytes << stream.rdbuf();
  std::string header =
      R"({"q\"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"n":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(bytes.str(), FileOf(header, std::string("\0\0\x80\x3f\7", 5)));
}

TEST(Safetensors, RoundTripsEveryTypeScalarsAndZeros) {
  std::map<std::string, HostTensor> tensors;
  for (DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kI32, DType::kU8, DType::kBool}) {
    std::string name(DTypeName(dtype));
    std::string bytes;
    for (int64_t i = 0; i < 3 * ItemSize(dtype); ++i)
      bytes.push_back(dtype == DType::kBool ? i % 2 : static_cast<char>(i + 1));
    tensors[name] = HostTensor{dtype, {3, 1}, bytes};
    tensors[name + ".zero"] = HostTensor{dtype, {2, 0}, ""};
  }
  tensors["scalar"] = MakeHostTensor<double>({}, {0.5});
  std::string path = TempPath("round_trip");
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    absl::StatusOr<HostTensor> read = file->ReadTensor(name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, tensor) << name;
  }
}

TEST(Safetensors, WriterRefusesBadNamesAndBytes) {
  std::string path = TempPath("refused");
  EXPECT_EQ(WriteSafetensors(path, {{"__metadata__", MakeHostTensor<float>({1}, {1})}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors(path, {{"\xff", MakeHostTensor<float>({1}, {1})}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors(path, {{"x", HostTensor{DType::kF32, {2}, "1234"}}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors("/proc/no/such", {}).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tp
