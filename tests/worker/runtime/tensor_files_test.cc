// Saving and loading named tensors by the ranks themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/checkpoint/folder.h"
#include "common/checkpoint/save_layout.h"
#include "tests/support/tensor_cluster.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TensorFiles : public ::testing::Test {
 protected:
  struct Saved {
    uint64_t id = 0;
    SafetensorsEntry entry;
    Placements placements;
  };
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tp_tensor_files_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directories(root_ + "/root");
    cluster_ =
        std::make_unique<RuntimeCluster>(4, nullptr, worker::WorkerRuntimeOptions{.model_root = root_ + "/root"});
    tensors_ = std::make_unique<TensorCluster>(*cluster_);
  }
  void TearDown() override {
    cluster_.reset();
    std::filesystem::remove_all(root_);
  }
  std::vector<std::string> Listing(const std::string& folder) {
    std::vector<std::string> names;
    if (!std::filesystem::exists(root_ + "/root/" + folder)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/root/" + folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::vector<SavedFile> FilesOf(const CheckpointLayout& layout) {
    std::vector<SavedFile> files;
    for (const auto& file : layout.files) files.push_back({file.name, file.header, file.size_bytes});
    return files;
  }
  // Results of the ranks' stages; the stage id of all is `*stage_id`.
  std::vector<StageResult> SaveParts(const TestMesh& mesh, const std::string& folder, const std::vector<Saved>& saved,
                                     const CheckpointLayout& layout) {
    return cluster_->RunStagesOn(mesh.members, [&](int rank) {
      StageSave save{folder, "s1", FilesOf(layout), {}, rank == 0};
      for (size_t i = 0; i < saved.size(); ++i) {
        save.tensors.push_back({saved[i].id, layout.places[i].file, layout.places[i].begin,
                                IsOwner(saved[i].placements, mesh.mesh, mesh.mesh.CoordinateOf(rank))});
      }
      return tp::Stage{0, 0, std::move(save)};
    });
  }
  absl::Status Save(const TestMesh& mesh, const std::string& folder, const std::vector<Saved>& saved,
                    int64_t file_bytes = kCheckpointFileBytes) {
    std::vector<SafetensorsEntry> entries;
    for (const Saved& each : saved) entries.push_back(each.entry);
    const auto layout = LayOutTensors(entries, file_bytes);
    if (!layout.ok()) return layout.status();
    for (const StageResult& result : SaveParts(mesh, folder, saved, *layout)) {
      if (!result.status.ok()) return result.status;
    }
    return cluster_
        ->RunStagesOn({mesh.members.back()},
                      [&](int) {
                        return tp::Stage{0, 0, StageSeal{folder, "s1", FilesOf(*layout), layout->index}};
                      })[0]
        .status;
  }
  StageResult Inspect(const std::string& path) {
    return cluster_->RunStagesOn({0}, [&](int) { return tp::Stage{0, 0, StageInspect{path}}; })[0];
  }
  // Loads all that a folder has; ids from `first_id` on, by name.
  absl::Status Load(const TestMesh& mesh, const std::string& path, const Placements& placements, uint64_t first_id) {
    const StageResult found = Inspect(path);
    if (!found.status.ok()) return found.status;
    std::vector<NewTensor> made;
    for (const FoundTensor& tensor : found.found) {
      NewTensor next;
      next.tensor_id = first_id + made.size();
      next.state = {tensor.name, tensor.shape, tensor.dtype, placements, {}, false, false};
      next.state.source.kind = WeightSource::Kind::kFile;
      next.state.source.path = tensor.file;
      next.state.source.tensor = tensor.name;
      made.push_back(std::move(next));
    }
    return tensors_->Stage(mesh, made);
  }
  std::string root_;
  std::unique_ptr<RuntimeCluster> cluster_;
  std::unique_ptr<TensorCluster> tensors_;
};

TEST_F(TensorFiles, RoundTripsOverMeshesKeepAllBits) {
  // Uneven rows, a BF16 whose rows are empty on the last rank, BOOL columns, a scalar, no elements.
  const std::vector<std::pair<std::string, HostTensor>> values{{"a.rows", Counting(DType::kF32, {7, 5})},
                                                               {"b\"half", Counting(DType::kBF16, {3, 4})},
                                                               {"c/flags", Counting(DType::kBool, {5, 9})},
                                                               {"d", Counting(DType::kI64, {1})},
                                                               {"e", Counting(DType::kF64, {0, 3})}};
  const TestMesh first = *tensors_->Connect("dp=2,tp=2", {3, 1, 0, 2});
  std::vector<Saved> saved;
  for (size_t i = 0; i < values.size(); ++i) {
    const HostTensor& value = values[i].second;
    const char* text = i == 0   ? "dp=S(0),tp=S(1)"
                       : i == 1 ? "dp=R,tp=S(1)"
                       : i == 2 ? "dp=SS(1,3),tp=S(0)"
                                : "dp=R,tp=R";
    const Placements placements = *ParsePlacements(first.mesh, text);
    ASSERT_EQ(tensors_->Put(first, i + 1, value, placements), absl::OkStatus());
    saved.push_back({i + 1, {values[i].first, value.dtype, value.shape}, placements});
  }
  ASSERT_EQ(Save(first, "one", saved, 60), absl::OkStatus());
  EXPECT_THAT(Listing("one"), ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  std::string folder = "one";
  uint64_t id = 100;
  for (const auto& [axes, members] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"tp=4", {0, 1, 2, 3}}, {"tp=1", {2}}, {"tp=3", {1, 2, 3}}}) {
    const TestMesh mesh = *tensors_->Connect(axes, members);
    // Each load cuts dim 0.
    const Placements placements{Placement::Shard(0)};
    ASSERT_EQ(Load(mesh, folder, placements, id), absl::OkStatus());
    std::vector<Saved> again;
    for (size_t i = 0; i < values.size(); ++i) {
      const HostTensor& value = values[i].second;
      EXPECT_EQ(*tensors_->Get(mesh, id + i), value) << axes << " " << values[i].first;
      for (int rank = 0; rank < mesh.mesh.rank_count(); ++rank) {
        EXPECT_EQ(*tensors_->Block(mesh, id + i, rank), BlockAt(value, placements, mesh.mesh, rank));
      }
      again.push_back({id + i, {values[i].first, value.dtype, value.shape}, placements});
    }
    folder = "deep/in/" + axes;
    ASSERT_EQ(Save(mesh, folder, again), absl::OkStatus());
    EXPECT_THAT(Listing(folder), ElementsAre("model.safetensors"));
    // Any reader of safetensors reads it.
    const auto read = ReadSafetensors(root_ + "/root/" + folder + "/model.safetensors");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, (std::map<std::string, HostTensor>(values.begin(), values.end())));
    id += 100;
  }
}

TEST_F(TensorFiles, AFolderWithACheckpointIsRefusedAndStaysAsItIs) {
  const TestMesh mesh = *tensors_->Connect("tp=2", {0, 1});
  const Placements placements{Placement::Shard(0)};
  const HostTensor value = Counting(DType::kU8, {50});
  ASSERT_EQ(tensors_->Put(mesh, 1, value, placements), absl::OkStatus());
  ASSERT_EQ(Save(mesh, "f", {{1, {"x", DType::kU8, {50}}, placements}, {1, {"y", DType::kU8, {50}}, placements}}, 60),
            absl::OkStatus());
  const absl::Status again = Save(mesh, "f", {{1, {"z", DType::kU8, {50}}, placements}});
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), HasSubstr("/f holds model"));
  EXPECT_EQ(Inspect("f").found.size(), 2u);
}

TEST_F(TensorFiles, ADropOfTheCreatorRemovesTheParts) {
  const TestMesh mesh = *tensors_->Connect("tp=2", {0, 1});
  const Placements placements{Placement::Shard(0)};
  ASSERT_EQ(tensors_->Put(mesh, 1, Counting(DType::kF32, {6}), placements), absl::OkStatus());
  const std::vector<Saved> saved{{1, {"x", DType::kF32, {6}}, placements}};
  const auto layout = LayOutTensors({saved[0].entry});
  const auto results = SaveParts(mesh, "g", saved, *layout);
  for (const StageResult& result : results) ASSERT_EQ(result.status, absl::OkStatus());
  EXPECT_THAT(Listing("g"), ElementsAre("model.safetensors.s1.part"));
  cluster_->runtime(1).DropStage(results[1].stage_id);
  EXPECT_THAT(Listing("g"), ElementsAre("model.safetensors.s1.part"));
  cluster_->runtime(0).DropStage(results[0].stage_id);
  EXPECT_THAT(Listing("g"), IsEmpty());
}

TEST_F(TensorFiles, AFailedSaveNamesTheReasonAndLeavesNoPart) {
  const TestMesh mesh = *tensors_->Connect("tp=2", {0, 1});
  const Placements placements{Placement::Shard(0)};
  ASSERT_EQ(tensors_->Put(mesh, 1, Counting(DType::kF32, {6}), placements), absl::OkStatus());
  const auto save = [&](const std::string& folder, const std::string& tag, uint64_t id, int64_t begin) {
    const auto layout = LayOutTensors({{"x", DType::kF32, {6}}});
    return cluster_
        ->RunStagesOn({0},
                      [&](int) {
                        return tp::Stage{0, 0, StageSave{folder, tag, FilesOf(*layout), {{id, 0, begin, true}}, true}};
                      })[0]
        .status;
  };
  EXPECT_EQ(save("h", "t", 2, 0).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(save("h", "t", 1, 1 << 20).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(save("h", "../x", 1, 200).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Listing("h"), IsEmpty());
  EXPECT_EQ(save("../outside", "t", 1, 100).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(save("/tmp/outside", "t", 1, 100).code(), absl::StatusCode::kPermissionDenied);
  std::filesystem::create_directory_symlink(root_, root_ + "/root/link");
  EXPECT_EQ(save("link/new", "t", 1, 100).code(), absl::StatusCode::kPermissionDenied);
  std::filesystem::create_directory_symlink(root_ + "/nowhere", root_ + "/root/dangling");
  EXPECT_EQ(save("dangling/new", "t", 1, 100).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/nowhere"));
  std::ofstream(root_ + "/root/file") << "no folder";
  EXPECT_FALSE(save("file/new", "t", 1, 100).ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/outside"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/new"));
}

TEST_F(TensorFiles, ASealChecksSizesBeforeItRenames) {
  std::filesystem::create_directories(root_ + "/root/k");
  std::ofstream(root_ + "/root/k/model.safetensors.s1.part") << "12345";
  const auto seal = [&](int64_t size) {
    return cluster_
        ->RunStagesOn({0},
                      [&](int) {
                        return tp::Stage{0, 0, StageSeal{"k", "s1", {{"model.safetensors", "", size}}, ""}};
                      })[0]
        .status;
  };
  EXPECT_EQ(seal(6).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(seal(6).message()), HasSubstr("model.safetensors.s1.part: expected 6 bytes, got 5"));
  EXPECT_THAT(Listing("k"), ElementsAre("model.safetensors.s1.part"));
  EXPECT_EQ(seal(5), absl::OkStatus());
  EXPECT_THAT(Listing("k"), ElementsAre("model.safetensors"));
  EXPECT_EQ(seal(5).code(), absl::StatusCode::kNotFound);
}

TEST_F(TensorFiles, AnInspectNamesWhatIsWrong) {
  const std::string folder = root_ + "/root/m";
  std::filesystem::create_directories(folder);
  ASSERT_EQ(WriteSafetensors(folder + "/a.safetensors", {{"t", Counting(DType::kF32, {2})}}), absl::OkStatus());
  EXPECT_EQ(Inspect("m").found.size(), 1u);
  EXPECT_EQ(Inspect("m/a.safetensors").found.size(), 1u);
  std::ofstream(folder + "/model.safetensors.index.json")
      << R"({"weight_map":{"t":"a.safetensors","u":"b.safetensors"}})";
  StageResult result = Inspect("m");
  EXPECT_EQ(result.status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("b.safetensors"));
  ASSERT_EQ(WriteSafetensors(folder + "/b.safetensors", {{"v", Counting(DType::kF32, {2})}}), absl::OkStatus());
  result = Inspect("m");
  EXPECT_EQ(result.status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("\"u\""));
  EXPECT_EQ(Inspect("missing").status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Inspect("..").status.code(), absl::StatusCode::kPermissionDenied);
  // A link out of the root.
  ASSERT_EQ(WriteSafetensors(root_ + "/out.safetensors", {{"u", Counting(DType::kF32, {2})}}), absl::OkStatus());
  std::filesystem::remove(folder + "/b.safetensors");
  std::filesystem::create_symlink(root_ + "/out.safetensors", folder + "/b.safetensors");
  EXPECT_EQ(Inspect("m").status.code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(TensorFiles, AShortFileFailsOneRankAndFreesAll) {
  const TestMesh mesh = *tensors_->Connect("tp=2", {0, 1});
  ASSERT_EQ(WriteSafetensors(root_ + "/root/w.safetensors", {{"t", Counting(DType::kF32, {8})}}), absl::OkStatus());
  const StageResult found = Inspect("w.safetensors");
  ASSERT_EQ(found.status, absl::OkStatus());
  std::filesystem::resize_file(root_ + "/root/w.safetensors",
                               std::filesystem::file_size(root_ + "/root/w.safetensors") - 4);
  EXPECT_EQ(Load(mesh, "w.safetensors", {Placement::Shard(0)}, 5).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster_->runtime(0).Usage().used_bytes, 0);
}

}  // namespace
}  // namespace tp::testing
