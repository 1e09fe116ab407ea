#include "client/tpctl/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <numeric>

#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"

namespace tp::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TensorFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tp-tensor-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }
  std::string folder_;
};

HostTensor Arange(Shape shape) {
  std::vector<int32_t> values(ElementCount(shape));
  std::iota(values.begin(), values.end(), 0);
  return MakeHostTensor<int32_t>(std::move(shape), values);
}

// The bytes of a box of `whole`, row-major.
std::string BoxBytes(const HostTensor& whole, const TensorBlock& box) {
  std::string bytes(static_cast<size_t>(ElementCount(box.shape) * ItemSize(whole.dtype)), '\0');
  CopyBox(whole.bytes.data(), whole.shape, box.offset, bytes.data(), box.shape, Shape(box.shape.size(), 0), box.shape,
          ItemSize(whole.dtype));
  return bytes;
}

TEST_F(TensorFileTest, RunsOfABoxCutAnywhere) {
  // Rows 1..2, columns 1..2 of a 4x3 of 4-byte items: runs of 8 bytes at 16 and 28.
  const TensorBlock box{0, {1, 1}, {2, 2}};
  std::vector<std::array<int64_t, 3>> runs;
  ForEachRun({4, 3}, box, 4, 5, 8, [&](int64_t to, int64_t from, int64_t size) { runs.push_back({to, from, size}); });
  EXPECT_THAT(runs, ElementsAre(std::array<int64_t, 3>{21, 0, 3}, std::array<int64_t, 3>{28, 3, 5}));
  runs.clear();  // whole rows are one run
  ForEachRun({4, 3}, {0, {1, 0}, {2, 3}}, 4, 0, 24, [&](int64_t to, int64_t from, int64_t size) {
    runs.push_back({to, from, size});
  });
  EXPECT_THAT(runs, ElementsAre(std::array<int64_t, 3>{12, 0, 24}));
  runs.clear();  // a scalar
  ForEachRun({}, {}, 8, 0, 8, [&](int64_t to, int64_t from, int64_t size) { runs.push_back({to, from, size}); });
  EXPECT_THAT(runs, ElementsAre(std::array<int64_t, 3>{0, 0, 8}));
}

TEST_F(TensorFileTest, BoxesInPiecesMakeTheWholeFile) {
  // Columns 0..2 and 3..4: short runs, which are mapped; and the same with rows of 8 KiB, which are written.
  for (const Shape& shape : {Shape{7, 5}, Shape{5, 4096}}) {
    const HostTensor whole = Arange(shape);
    const int64_t cut = shape[1] - shape[1] / 2;
    const std::vector<TensorBlock> blocks = {{0, {0, 0}, {shape[0], cut}}, {1, {0, cut}, {shape[0], shape[1] - cut}}};
    for (const char* name : {"w.npy", "w.safetensors"}) {
      TensorInfo info{.name = "w"};
      info.dtype = DType::kI32;
      info.shape = shape;
      int64_t done = 0;
      TensorFileSink sink(Path(name), "w", [&](int64_t bytes, int64_t) { done = bytes; });
      ASSERT_TRUE(sink.Begin(info, blocks).ok());
      for (size_t i = 0; i < blocks.size(); ++i) {
        const std::string bytes = BoxBytes(whole, blocks[i]);
        for (size_t offset = 0; offset < bytes.size(); offset += 7001)
          ASSERT_TRUE(sink.Write(i, static_cast<int64_t>(offset), std::string_view(bytes).substr(offset, 7001)).ok());
      }
      EXPECT_FALSE(std::filesystem::exists(Path(name)));
      ASSERT_TRUE(sink.Commit().ok());
      EXPECT_EQ(done, ElementCount(shape) * 4);
      const HostTensor read =
          name == std::string("w.npy") ? *ReadNpy(Path(name)) : ReadSafetensors(Path(name))->at("w");
      EXPECT_EQ(read, whole);
      std::filesystem::remove(Path(name));
    }
  }
  EXPECT_TRUE(Files().empty());
}

TEST_F(TensorFileTest, WithoutCommitNothingIsLeft) {
  {
    TensorInfo info{.name = "w"};
    info.shape = {4};
    TensorFileSink sink(Path("w.npy"), "w", nullptr);
    ASSERT_TRUE(sink.Begin(info, {{0, {0}, {4}}}).ok());
    ASSERT_TRUE(sink.Write(0, 0, "12345678").ok());
  }
  EXPECT_TRUE(Files().empty());
  TensorInfo info{.name = "w"};
  info.dtype = DType::kBF16;
  const absl::Status refused = TensorFileSink(Path("w.npy"), "w", nullptr).Begin(info, {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(".safetensors"));
  EXPECT_TRUE(Files().empty());
}

TEST_F(TensorFileTest, ReadsPiecesOfBothKinds) {
  const HostTensor a = Arange({3, 2}), b = Arange({4});
  ASSERT_TRUE(WriteNpy(Path("a.npy"), a).ok());
  ASSERT_TRUE(WriteSafetensors(Path("one.safetensors"), {{"x", a}}).ok());
  ASSERT_TRUE(WriteSafetensors(Path("two.safetensors"), {{"a", a}, {"b", b}}).ok());
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.npy", "?"}, {"one.safetensors", "?"}, {"two.safetensors", "a"}};
  for (const auto& [file, name] : files) {
    const absl::StatusOr<TensorReader> reader = TensorReader::Open(Path(file), name, false);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->shape(), Shape({3, 2}));
    EXPECT_EQ(reader->bytes(), 24);
    std::string bytes(8, '\0');
    ASSERT_TRUE(reader->Read(4, 8, bytes.data()).ok());
    EXPECT_EQ(bytes, a.bytes.substr(4, 8));
  }
  EXPECT_EQ(TensorReader::Open(Path("two.safetensors"), "c", false).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TensorReader::Open(Path("one.safetensors"), "c", true).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TensorReader::Open(Path("none.npy"), "c", true).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TensorReader::Open(Path("a.txt"), "c", true).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::resize_file(Path("a.npy"), std::filesystem::file_size(Path("a.npy")) - 1);
  const absl::Status cut = TensorReader::Open(Path("a.npy"), "a", false).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("expected 24 bytes for I32[3, 2], got 23"));
}

}  // namespace
}  // namespace tp::client
