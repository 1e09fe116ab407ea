#include "client/tp_client/submission_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tp/v1/submission.pb.h"

namespace tp::client {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] = R"(
  name: "double"
  model {
    root { composite { type_name: "Double" inputs { name: "x" }
      nodes { name: "y" function: "add" arguments { value: "x" } arguments { value: "x" } }
      outputs { name: "y" value: "y" } } }
    inputs { name: "x" type { dtype: F32 shape: "n" } }
  }
  plan { mesh { axes { name: "tp" size: 2 } } }
  weights_file: "w.safetensors")";

class SubmissionFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = ::testing::TempDir() + "/submission_file_" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
};

TEST_F(SubmissionFileTest, TextBecomesTheMessageWithPathsOfItsFolder) {
  const std::string path = Write("a.textproto", kText);
  const absl::StatusOr<std::string> bytes = ReadSubmissionFile(path);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  v1::Submission message;
  ASSERT_TRUE(message.ParseFromString(*bytes));
  EXPECT_EQ(message.name(), "double");
  EXPECT_EQ(message.model().root().composite().nodes(0).function(), "add");
  EXPECT_EQ(message.weights_file(), (std::filesystem::absolute(path).parent_path() / "w.safetensors").string());
  const absl::StatusOr<std::string> again = ReadSubmissionFile(Write("a.pb", *bytes));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *bytes);
}

TEST_F(SubmissionFileTest, Errors) {
  EXPECT_EQ(ReadSubmissionFile("/nowhere/a.pb").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSubmissionFile("a.txt").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status wrong = ReadSubmissionFile(Write("b.textproto", "name: 7")).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("b.textproto"));
}

}  // namespace
}  // namespace tp::client
