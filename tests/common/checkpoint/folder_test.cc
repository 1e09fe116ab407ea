#include "common/checkpoint/folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

class CheckpointFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(WriteSafetensors(Path("one.safetensors"),
                                 {{"a", MakeHostTensor<float>({2}, {1, 2})}, {"b", MakeHostTensor<float>({1}, {3})}})
                    .ok());
    ASSERT_TRUE(WriteSafetensors(Path("two.safetensors"), {{"c", MakeHostTensor<int64_t>({1}, {4})}}).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) { return folder_ + "/" + name; }
  void WriteIndex(const std::string& text) { std::ofstream(Path("model.safetensors.index.json")) << text; }
  void ExpectRefused(absl::StatusCode code, const std::vector<std::string>& parts) {
    absl::Status status = ListCheckpoint(folder_).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  std::string folder_;
};

TEST_F(CheckpointFolder, IndexLeadsToShards) {
  WriteIndex(R"({"metadata":{"total_size":20},"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})");
  absl::StatusOr<std::map<std::string, CheckpointTensor>> tensors = ListCheckpoint(folder_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);  // b is in a shard, but not in the index
  EXPECT_EQ(tensors->at("a").file, Path("one.safetensors"));
  EXPECT_EQ(tensors->at("a").tensor.shape, (Shape{2}));
  EXPECT_EQ(tensors->at("c").file, Path("two.safetensors"));
  EXPECT_EQ(tensors->at("c").tensor.dtype, DType::kI64);
}

TEST_F(CheckpointFolder, StrayFilesAreIgnored) {
  std::ofstream(Path("stray.safetensors")) << "not a checkpoint";
  std::ofstream(Path("model.safetensors")) << "not a checkpoint either";
  WriteIndex(R"({"weight_map":{"c":"two.safetensors"}})");
  absl::StatusOr<std::map<std::string, CheckpointTensor>> tensors = ListCheckpoint(folder_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 1u);
}

TEST_F(CheckpointFolder, MissingShardIsNamed) {
  WriteIndex(R"({"weight_map":{"a":"one.safetensors","d":"three.safetensors"}})");
  ExpectRefused(absl::StatusCode::kNotFound, {"model.safetensors.index.json", "three.safetensors", "\"d\""});
}

TEST_F(CheckpointFolder, TensorAbsentFromItsShardIsNamed) {
  WriteIndex(R"({"weight_map":{"c":"one.safetensors"}})");
  ExpectRefused(absl::StatusCode::kNotFound, {"model.safetensors.index.json", Path("one.safetensors"), "\"c\""});
}

TEST_F(CheckpointFolder, BrokenShardIsNamed) {
  std::ofstream(Path("two.safetensors")) << "1234567";
  WriteIndex(R"({"weight_map":{"c":"two.safetensors"}})");
  ExpectRefused(absl::StatusCode::kInvalidArgument, {Path("two.safetensors"), "7 bytes"});
}

TEST_F(CheckpointFolder, MalformedIndexesAreRefused) {
  for (std::string text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"../one.safetensors"}})", R"({"weight_map":{"a":".."}})",
        R"({"weight_map":{"a":"/etc/passwd"}})", R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})"}) {
    WriteIndex(text);
    ExpectRefused(absl::StatusCode::kInvalidArgument, {"model.safetensors.index.json"});
  }
}

TEST_F(CheckpointFolder, OneFileNeedsNoIndex) {
  ExpectRefused(absl::StatusCode::kNotFound, {folder_, "model.safetensors"});
  std::filesystem::rename(Path("one.safetensors"), Path("model.safetensors"));
  absl::StatusOr<std::map<std::string, CheckpointTensor>> tensors = ListCheckpoint(folder_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 2u);
  EXPECT_EQ(tensors->at("b").file, Path("model.safetensors"));
}

}  // namespace
}  // namespace tp
