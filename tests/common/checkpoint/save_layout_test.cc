#include "common/checkpoint/save_layout.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/checkpoint/file.h"
#include "common/checkpoint/folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SaveLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + std::to_string(getpid()) + "_save_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // Writes what the layout says, with these bytes for each tensor.
  void Write(const CheckpointLayout& layout, const std::vector<std::string>& bytes) {
    for (size_t f = 0; f < layout.files.size(); ++f) {
      std::string text = layout.files[f].header;
      text.resize(static_cast<size_t>(layout.files[f].size_bytes), '\xee');
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (layout.places[i].file != static_cast<int>(f)) continue;
        text.replace(static_cast<size_t>(layout.places[i].begin), bytes[i].size(), bytes[i]);
      }
      EXPECT_EQ(text.find('\xee', layout.files[f].header.size()), std::string::npos);
      std::ofstream(folder_ + "/" + layout.files[f].name, std::ios::binary) << text;
    }
    if (!layout.index.empty()) std::ofstream(folder_ + "/model.safetensors.index.json") << layout.index;
  }
  std::string folder_;
};

TEST_F(SaveLayout, OneFileHoldsAllAndIsReadBack) {
  const std::vector<SafetensorsEntry> tensors{{"flags", DType::kBool, {3}},
                                              {"a\"b\\\n", DType::kF32, {1, 2}},
                                              {"none", DType::kI64, {0, 4}},
                                              {"s", DType::kBF16, {}}};
  const absl::StatusOr<CheckpointLayout> layout = LayOutTensors(tensors);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->files.size(), 1u);
  EXPECT_EQ(layout->files[0].name, "model.safetensors");
  EXPECT_EQ(layout->index, "");
  EXPECT_EQ(layout->tensor_bytes, 3 + 8 + 2);
  EXPECT_EQ(layout->files[0].header.size() % 8, 0u);
  // Large items first.
  EXPECT_EQ(layout->places[1].begin, static_cast<int64_t>(layout->files[0].header.size()));
  EXPECT_EQ(layout->places[3].begin, layout->places[1].begin + 8);
  EXPECT_EQ(layout->places[0].begin, layout->places[1].begin + 10);
  Write(*layout, {std::string("\1\0\1", 3), std::string("\0\0\x80\x3f\0\0\0\x40", 8), "", std::string("\xc0\x3f", 2)});
  const auto read = ReadSafetensors(folder_ + "/model.safetensors");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 4u);
  EXPECT_EQ(read->at("a\"b\\\n"), MakeHostTensor<float>({1, 2}, {1, 2}));
  EXPECT_EQ(read->at("none").shape, (Shape{0, 4}));
  EXPECT_EQ(ConvertTo(read->at("s"), DType::kF32), MakeHostTensor<float>({}, {1.5}));
  EXPECT_EQ(read->at("flags").bytes, std::string("\1\0\1", 3));
}

TEST_F(SaveLayout, SeveralFilesHaveAnIndex) {
  const std::vector<SafetensorsEntry> tensors{
      {"w/1", DType::kU8, {6}}, {"w\"2", DType::kU8, {5}}, {"huge", DType::kU8, {40}}, {"last", DType::kU8, {1}}};
  const absl::StatusOr<CheckpointLayout> layout = LayOutTensors(tensors, 10);
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<std::string> names;
  for (const auto& file : layout->files) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                 "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"));
  EXPECT_THAT(layout->index, HasSubstr("\"total_size\":52"));
  Write(*layout, {"aaaaaa", "bbbbb", std::string(40, 'c'), "d"});
  const auto listed = ListCheckpoint(folder_);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 4u);
  EXPECT_EQ(listed->at("w\"2").file, folder_ + "/model-00002-of-00004.safetensors");
  EXPECT_EQ(ReadSafetensors(listed->at("huge").file)->at("huge").bytes, std::string(40, 'c'));
}

TEST_F(SaveLayout, AFileIsFilledToTheLimit) {
  const absl::StatusOr<CheckpointLayout> layout =
      LayOutTensors({{"a", DType::kU8, {6}}, {"b", DType::kU8, {4}}, {"c", DType::kU8, {1}}}, 10);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->places[1].file, 0);
  EXPECT_EQ(layout->places[2].file, 1);
}

TEST_F(SaveLayout, NoTensorGivesAnEmptyFile) {
  const absl::StatusOr<CheckpointLayout> layout = LayOutTensors({});
  ASSERT_TRUE(layout.ok());
  Write(*layout, {});
  EXPECT_TRUE(ReadSafetensors(folder_ + "/model.safetensors")->empty());
}

TEST_F(SaveLayout, BadNamesAndSizesAreRefused) {
  auto code = [](const std::vector<SafetensorsEntry>& tensors) { return LayOutTensors(tensors).status().code(); };
  EXPECT_EQ(code({{"a", DType::kU8, {1}}, {"a", DType::kF32, {1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", DType::kU8, {1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"\xff", DType::kU8, {1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(code({{"a", DType::kF32, {int64_t{1} << 61, 4}}}), absl::StatusCode::kOk);
  EXPECT_FALSE(LayOutTensors({}, 0).ok());
}

TEST_F(SaveLayout, ListTensorsTakesAFileOrAFolderWithOneFileOfAnyName) {
  ASSERT_EQ(WriteSafetensors(folder_ + "/x.safetensors", {{"t", MakeHostTensor<float>({1}, {7})}}), absl::OkStatus());
  std::ofstream(folder_ + "/notes.txt") << "stray";
  EXPECT_EQ(ListTensors(folder_)->at("t").file, folder_ + "/x.safetensors");
  EXPECT_EQ(ListTensors(folder_ + "/x.safetensors")->size(), 1u);
  EXPECT_EQ(ListTensors(folder_ + "/missing").status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(WriteSafetensors(folder_ + "/y.safetensors", {}), absl::OkStatus());
  EXPECT_EQ(ListTensors(folder_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ListTensors(folder_).status().message()), HasSubstr("x.safetensors, y.safetensors"));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  EXPECT_EQ(ListTensors(folder_).status().code(), absl::StatusCode::kNotFound);
}

TEST(FileErrors, AFullDiskIsAnExhaustedResource) {
  EXPECT_EQ(FileError("cannot write", "/x", ENOSPC).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError("cannot write", "/x", EIO).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tp
