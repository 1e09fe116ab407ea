#include "worker/weights/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/model/initializer.h"

namespace tp::worker {
namespace {

using ::testing::HasSubstr;

WeightSource File(const std::string& path, const std::string& tensor) {
  WeightSource source;
  source.kind = WeightSource::Kind::kFile;
  source.path = path;
  source.tensor = tensor;
  return source;
}
WeightSource Slice(WeightSource part, int dim, int64_t start, int64_t length) {
  WeightSource source;
  source.kind = WeightSource::Kind::kSlice;
  source.dim = dim;
  source.start = start;
  source.length = length;
  source.parts = {std::move(part)};
  return source;
}
WeightSource Transpose(WeightSource part, std::vector<int> permutation) {
  WeightSource source;
  source.kind = WeightSource::Kind::kTranspose;
  source.permutation = std::move(permutation);
  source.parts = {std::move(part)};
  return source;
}
WeightSource Concat(std::vector<WeightSource> parts, int dim) {
  WeightSource source;
  source.kind = WeightSource::Kind::kConcat;
  source.dim = dim;
  source.parts = std::move(parts);
  return source;
}
LoadState State(Shape shape, Placement placement, WeightSource source, DType dtype = DType::kF32) {
  return {"layer.weight", std::move(shape), dtype, {std::move(placement)}, std::move(source), false, false};
}

HostTensor Counting(const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < ElementCount(shape); ++i) values.push_back(static_cast<float>(i));
  return MakeHostTensor<float>(shape, values);
}

class WeightLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tp_load_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_ = folder_ + "/w.safetensors";
    files_ = CreateRootedWeightFiles(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::map<std::string, HostTensor>& tensors) {
    ASSERT_EQ(WriteSafetensors(file_, tensors), absl::OkStatus());
  }
  absl::StatusOr<HostTensor> Load(const LoadState& state, int rank = 0, int64_t* bytes_read = nullptr) {
    WeightLoader loader(*files_, mesh_, {rank}, 9, {});
    const auto planned = loader.PlannedBytes(state);
    auto block = loader.Load(state);
    if (block.ok()) {
      EXPECT_TRUE(planned.ok());
      EXPECT_EQ(*planned, loader.bytes_read());
    }
    if (bytes_read != nullptr) *bytes_read = loader.bytes_read();
    return block;
  }

  std::string folder_, file_;
  std::unique_ptr<WeightFiles> files_;
  const Mesh mesh_ = *Mesh::Parse("tp=2");
};

TEST_F(WeightLoaderTest, RowsColumnsAndCopies) {
  Write({{"a", MakeHostTensor<float>({1}, {7})}, {"t", Counting({3, 4})}});
  const WeightSource t = File(file_, "t");
  int64_t bytes = 0;
  EXPECT_EQ(*Load(State({3, 4}, Placement::Shard(0), t), 0, &bytes),
            MakeHostTensor<float>({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(bytes, 32);
  EXPECT_EQ(*Load(State({3, 4}, Placement::Shard(0), t), 1, &bytes), MakeHostTensor<float>({1, 4}, {8, 9, 10, 11}));
  EXPECT_EQ(bytes, 16);
  EXPECT_EQ(*Load(State({3, 4}, Placement::Shard(1), t), 1), MakeHostTensor<float>({3, 2}, {2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(*Load(State({3, 4}, Placement::Replicate(), t), 1, &bytes), Counting({3, 4}));
  EXPECT_EQ(bytes, 48);
}

TEST_F(WeightLoaderTest, InterleavedAndEmptyShards) {
  Write({{"one", Counting({1, 3})}, {"t", Counting({8})}});
  EXPECT_EQ(*Load(State({8}, Placement::InterleavedShard(0, {1, 1}), File(file_, "t")), 1),
            MakeHostTensor<float>({4}, {2, 3, 6, 7}));
  int64_t bytes = -1;
  EXPECT_EQ(*Load(State({1, 3}, Placement::Shard(0), File(file_, "one")), 1, &bytes),
            MakeHostTensor<float>({0, 3}, {}));
  EXPECT_EQ(bytes, 0);
}

TEST_F(WeightLoaderTest, SliceTransposeAndConcatenationReadTheOwnPartOnly) {
  Write({{"t", Counting({4, 3})}, {"u", MakeHostTensor<float>({2, 3}, {100, 101, 102, 103, 104, 105})}});
  const WeightSource t = File(file_, "t"), u = File(file_, "u");
  int64_t bytes = 0;
  // Rows 1..3 of t; rank 1 has the last of the three.
  EXPECT_EQ(*Load(State({3, 3}, Placement::Shard(0), Slice(t, 0, 1, 3)), 1, &bytes),
            MakeHostTensor<float>({1, 3}, {9, 10, 11}));
  EXPECT_EQ(bytes, 12);
  // The transpose [3, 4]: rank 0 has its rows 0 and 1.
  EXPECT_EQ(*Load(State({3, 4}, Placement::Shard(0), Transpose(t, {1, 0})), 0),
            MakeHostTensor<float>({2, 4}, {0, 3, 6, 9, 1, 4, 7, 10}));
  // [t; u] is [6, 3].
  EXPECT_EQ(*Load(State({6, 3}, Placement::Shard(0), Concat({t, u}, 0)), 1, &bytes),
            MakeHostTensor<float>({3, 3}, {9, 10, 11, 100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(bytes, 36);
  // [t[0:2] | u] is [2, 6]; each half of its columns.
  EXPECT_EQ(*Load(State({2, 6}, Placement::Shard(1), Concat({Slice(t, 0, 0, 2), u}, 1)), 0),
            MakeHostTensor<float>({2, 3}, {0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(*Load(State({2, 6}, Placement::InterleavedShard(1, {1, 1}), Concat({Slice(t, 0, 0, 2), u}, 1)), 0),
            MakeHostTensor<float>({2, 4}, {0, 1, 100, 101, 3, 4, 103, 104}));
}

TEST_F(WeightLoaderTest, ConvertsToTheStatesDType) {
  Write({{"t", ConvertTo(MakeHostTensor<float>({4}, {1.5, -2, 0.25, 300}), DType::kBF16)}});
  int64_t bytes = 0;
  EXPECT_EQ(*Load(State({4}, Placement::Shard(0), File(file_, "t")), 0, &bytes), MakeHostTensor<float>({2}, {1.5, -2}));
  EXPECT_EQ(bytes, 4);
}

TEST_F(WeightLoaderTest, ColumnsOfWideRowsReadAtMost5PercentMore) {
  Write({{"t", Counting({64, 4096})}});  // a rank's run is 8 KiB
  int64_t bytes = 0;
  const auto block = Load(State({64, 4096}, Placement::Shard(1), File(file_, "t")), 1, &bytes);
  ASSERT_TRUE(block.ok());
  EXPECT_LE(static_cast<double>(bytes), 1.05 * static_cast<double>(block->bytes.size()));
  EXPECT_EQ(block->data<float>()[0], 2048);
  EXPECT_EQ(block->data<float>()[2048 * 63 + 2047], 64 * 4096 - 1);
}

TEST_F(WeightLoaderTest, InitializersMakeTheRanksOwnElements) {
  WeightSource source;
  source.initializer = {Initializer::Kind::kNormal, 0, 1};
  for (int rank : {0, 1}) {
    const auto block = Load(State({2, 4}, Placement::Shard(1), source), rank);
    ASSERT_TRUE(block.ok());
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        EXPECT_EQ(block->data<float>()[row * 2 + column],
                  static_cast<float>(InitialValue(source.initializer, 9, "layer.weight", std::vector<int64_t>{2, 4},
                                                  row * 4 + rank * 2 + column)));
      }
    }
  }
}

TEST_F(WeightLoaderTest, ErrorsNameStateFileTensorAndReason) {
  Write({{"t", Counting({4, 3})}});
  auto message = [&](const LoadState& state, absl::StatusCode code) {
    const auto block = Load(state);
    EXPECT_EQ(block.status().code(), code) << block.status();
    EXPECT_THAT(std::string(block.status().message()), HasSubstr("layer.weight"));
    return std::string(block.status().message());
  };
  const std::string missing =
      message(State({4, 3}, Placement::Shard(0), File(file_, "s")), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing, HasSubstr(file_));
  EXPECT_THAT(missing, HasSubstr("tensor \"s\""));
  EXPECT_THAT(message(State({3, 4}, Placement::Shard(0), File(file_, "t")), absl::StatusCode::kInvalidArgument),
              HasSubstr("expected shape [3, 4]"));
  message(State({4, 3}, Placement::Shard(0), File("/etc/passwd", "t")), absl::StatusCode::kPermissionDenied);
  message(State({4, 3}, Placement::Shard(0), Slice(File(file_, "t"), 0, 2, 3)), absl::StatusCode::kInvalidArgument);
  message(State({4, 3}, Placement::Shard(0), Slice(File(file_, "t"), 0, INT64_MAX, 3)),
          absl::StatusCode::kInvalidArgument);
  message(State({4, 3}, Placement::Shard(0), Slice(File(file_, "t"), 5, 0, 1)), absl::StatusCode::kInvalidArgument);
  message(State({4, 3}, Placement::Shard(0), Transpose(File(file_, "t"), {0, 0})), absl::StatusCode::kInvalidArgument);
  message(State({8, 3}, Placement::Shard(0), Concat({File(file_, "t"), WeightSource{}}, 0)),
          absl::StatusCode::kUnimplemented);
}

TEST_F(WeightLoaderTest, ATruncatedFileIsRefusedAtOpeningOrWhileReading) {
  Write({{"t", Counting({64})}});
  WeightLoader loader(*files_, mesh_, {1}, 0, {});
  const LoadState state = State({64}, Placement::Shard(0), File(file_, "t"));
  ASSERT_TRUE(loader.PlannedBytes(state).ok());  // the file is open
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 4);
  const absl::Status status = loader.Load(state).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 't'"));
  EXPECT_EQ(Load(state).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WeightLoaderTest, ReportsProgressAndStopsWhenCancelled) {
  Write({{"t", Counting({3 << 20})}});  // 12 MiB
  std::atomic<bool> cancelled{false};
  std::vector<int64_t> progress;
  WeightLoader loader(*files_, mesh_, {0}, 0, {&cancelled, [&](int64_t bytes) {
                                                 progress.push_back(bytes);
                                                 cancelled = true;
                                               }});
  EXPECT_EQ(loader.Load(State({3 << 20}, Placement::Shard(0), File(file_, "t"))).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(progress, std::vector<int64_t>{4 << 20});
}

TEST_F(WeightLoaderTest, LoadIntoGivesTheSameBlockInPieces) {
  Write({{"t", Counting({3, 4})}, {"wide", Counting({1100, 1024})}});
  WeightSource noise;
  noise.initializer = {Initializer::Kind::kUniform, -1, 1};
  for (const LoadState& state :
       {State({3, 4}, Placement::Shard(1), File(file_, "t")),
        State({1100, 1024}, Placement::Shard(0), File(file_, "wide")),
        State({1100, 1024}, Placement::Shard(1), File(file_, "wide")),
        State({3, 4}, Placement::Shard(0), File(file_, "t"), DType::kF64),
        State({4, 3}, Placement::Shard(0), Transpose(File(file_, "t"), {1, 0})),
        State({700, 301}, Placement::StridedShard(1, 2), noise), State({5}, Placement::Shard(0), noise, DType::kBF16),
        State({1, 4}, Placement::Shard(0), noise), State({}, Placement::Replicate(), noise)}) {
    for (int rank : {0, 1}) {
      const HostTensor expected = *Load(state, rank);
      std::string bytes(expected.bytes.size(), '?');
      int64_t written = 0;
      WeightLoader loader(*files_, mesh_, {rank}, 9, {});
      ASSERT_EQ(loader.LoadInto(state,
                                [&](int64_t offset, const char* data, int64_t size) {
                                  EXPECT_GT(size, 0);
                                  EXPECT_LE(size, 4 << 20);
                                  bytes.replace(static_cast<size_t>(offset), static_cast<size_t>(size), data,
                                                static_cast<size_t>(size));
                                  written += size;
                                  return absl::OkStatus();
                                }),
                absl::OkStatus());
      EXPECT_EQ(written, static_cast<int64_t>(bytes.size()));
      EXPECT_EQ(bytes, expected.bytes);
    }
  }
}

TEST_F(WeightLoaderTest, LoadIntoEndsWithTheFirstErrorOfItsTarget) {
  WeightSource noise;
  WeightLoader loader(*files_, mesh_, {0}, 9, {});
  int calls = 0;
  const absl::Status status =
      loader.LoadInto(State({1 << 20}, Placement::Replicate(), noise), [&](int64_t, const char*, int64_t) {
        ++calls;
        return absl::ResourceExhaustedError("full");
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tp::worker
