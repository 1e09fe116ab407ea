#include "common/checkpoint/npy.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

// Bytes of numpy 1.24's save(): version 1.0, header padded to 128 bytes.
std::string Numpy(std::string dictionary, const std::string& data) {
  dictionary.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dictionary + "\n" + data;
}

struct Sample {
  std::string name;
  std::string bytes;
  HostTensor tensor;
};
class NpySample : public ::testing::TestWithParam<Sample> {};

TEST_P(NpySample, IsReadAndWrittenAsNumpyDoes) {
  absl::StatusOr<HostTensor> read = ParseNpy(GetParam().bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, GetParam().tensor);
  absl::StatusOr<std::string> written = FormatNpy(GetParam().tensor);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Numpy, NpySample,
    ::testing::Values(
        Sample{"Matrix",
               Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                     std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40\0\0\xc0\x40", 24)),
               MakeHostTensor<float>({2, 3}, {1, 2, 3, 4, 5, 6})},
        Sample{"Scalar",
               Numpy("{'descr': '<i8', 'fortran_order': False, 'shape': (), }", std::string("\7\0\0\0\0\0\0\0", 8)),
               MakeHostTensor<int64_t>({}, {7})},
        Sample{"Bool", Numpy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", std::string("\1\0", 2)),
               HostTensor{DType::kBool, {2}, std::string("\1\0", 2)}},
        Sample{"EmptyHalf", Numpy("{'descr': '<f2', 'fortran_order': False, 'shape': (0, 3), }", ""),
               HostTensor{DType::kF16, {0, 3}, ""}},
        Sample{
            "Double",
            Numpy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", std::string("\0\0\0\0\0\0\xf0\x3f", 8)),
            MakeHostTensor<double>({1}, {1})},
        Sample{"Int",
               Numpy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", std::string("\xfe\xff\xff\xff", 4)),
               MakeHostTensor<int32_t>({1}, {-2})},
        Sample{"Bytes", Numpy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", "\1\2"),
               MakeHostTensor<uint8_t>({2}, {1, 2})}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Npy, ReadsVersionTwo) {
  // Bytes of numpy.lib.format.write_array(file, [1, 2] as u1, version=(2, 0)).
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
  header.resize(115, ' ');
  absl::StatusOr<HostTensor> read = ParseNpy(std::string("\x93NUMPY\x02\x00\x74\x00\x00\x00", 12) + header + "\n\1\2");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, MakeHostTensor<uint8_t>({2}, {1, 2}));
}

struct Refused {
  std::string name;
  std::string bytes;
  absl::StatusCode code;
  std::string message;
};
class NpyRefusal : public ::testing::TestWithParam<Refused> {};

TEST_P(NpyRefusal, NamesTheCause) {
  absl::Status status = ParseNpy(GetParam().bytes).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnbuilt = absl::StatusCode::kUnimplemented;
INSTANTIATE_TEST_SUITE_P(
    Cases, NpyRefusal,
    ::testing::Values(
        Refused{"Fortran", Numpy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 2), }", std::string(32, '\0')),
                kUnbuilt, "Fortran order"},
        Refused{"BigEndian", Numpy("{'descr': '>i4', 'fortran_order': False, 'shape': (3,), }", std::string(12, '\0')),
                kUnbuilt, "big endian arrays ('>i4')"},
        Refused{"Short", Numpy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }", std::string(4, '\0')),
                kUnbuilt, "element type '<i2'"},
        Refused{"Object", Numpy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "x"), kUnbuilt, "'|O'"},
        Refused{"Structure", Numpy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }", "x"), kUnbuilt,
                "structures"},
        Refused{"VersionThree", std::string("\x93NUMPY\x03\x00\x02\x00\x00\x00{}", 14), kUnbuilt, "version 3.0"},
        Refused{"Empty", "", kInvalid, "does not begin with"},
        Refused{"NotNumpy", "PK\3\4 a zip file", kInvalid, "does not begin with"},
        Refused{"HeaderPastEnd", std::string("\x93NUMPY\x01\x00\xff\x00{}", 12), kInvalid,
                "header length 255 passes the end"},
        Refused{"LongHeader", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), kInvalid, "4294967295 is over"},
        Refused{"CutLength", std::string("\x93NUMPY\x02\x00\xff\xff", 10), kInvalid, "within the header's length"},
        Refused{"OneByteShort", Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234567"), kInvalid,
                "expected 8 bytes for F32[2], got 7"},
        Refused{"OneByteLong", Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "123456789"),
                kInvalid, "expected 8 bytes for F32[2], got 9"},
        Refused{"NoShape", Numpy("{'descr': '<f4', 'fortran_order': False, }", ""), kInvalid, "lacks 'shape'"},
        Refused{"Repeated", Numpy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (), }", "1234"),
                kInvalid, "'descr' is unknown, repeated"},
        Refused{"Negative", Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", ""), kInvalid,
                "'shape'"},
        Refused{"NoTuple", Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", "1234"), kInvalid,
                "'shape'"},
        Refused{"TooManyDigits",
                Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", ""), kInvalid,
                "'shape'"},
        Refused{"Overflow", Numpy("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", ""),
                kInvalid, ""},
        Refused{"Unclosed", Numpy("{'descr': '<f4'", ""), kInvalid, "does not end"},
        Refused{"TextAfter", Numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)} x", ""), kInvalid,
                "text follows"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Npy, BFloat16HasNoNumpyType) {
  absl::Status status = FormatNpy(HostTensor{DType::kBF16, {1}, "12"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("BF16"));
  EXPECT_EQ(FormatNpy(HostTensor{DType::kF32, {1}, "12"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Npy, FilesRoundTripAndErrorsNameThem) {
  std::string path = ::testing::TempDir() + std::to_string(getpid()) + "_x.npy";
  HostTensor tensor = MakeHostTensor<double>({2, 1, 2}, {1, -2, 0.5, 1e300});
  ASSERT_TRUE(WriteNpy(path, tensor).ok());
  absl::StatusOr<HostTensor> read = ReadNpy(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, tensor);
  unlink(path.c_str());
  absl::Status missing = ReadNpy(path).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(path));
}

}  // namespace
}  // namespace tp
