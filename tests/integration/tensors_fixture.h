// What the integration tests of tensors share: files in and out through tpctl, meshes and values as JSON. Example:
//   TensorCluster tensors(8);
//   tensors.Mesh("m", "dp=2,tp=2");
//   tensors.Put("w", Arange({5, 3}), "m", "dp=S(0)");
//   EXPECT_EQ(tensors.Get("w"), Arange({5, 3}));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"
#include "common/tensor/host_tensor.h"
#include "tests/support/cluster.h"

namespace tp::testing {

// 0, 1, 2, ... as F32, times `scale`.
inline HostTensor Arange(Shape shape, float scale = 1) {
  std::vector<float> values(ElementCount(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i);
  return MakeHostTensor<float>(std::move(shape), values);
}

// The numbers of nested lists, in order.
inline std::vector<double> Flat(const nlohmann::json& nested) {
  if (!nested.is_array()) return {nested.get<double>()};
  std::vector<double> numbers;
  for (const auto& part : nested) {
    const std::vector<double> inner = Flat(part);
    numbers.insert(numbers.end(), inner.begin(), inner.end());
  }
  return numbers;
}

class TensorCluster {
 public:
  explicit TensorCluster(int workers, const std::vector<std::string>& extra = {}) : cluster_(workers, extra) {}

  Cluster& cluster() { return cluster_; }
  std::string Path(const std::string& name) const { return absl::StrCat(folder_.path(), "/", name); }

  // Runs tpctl, expects success, and returns its JSON.
  nlohmann::json Json(std::vector<std::string> words) const {
    words.insert(words.end(), {"--output-format", "json"});
    const CommandResult result = cluster_.Tpctl(words);
    EXPECT_EQ(result.code, 0) << absl::StrJoin(words, " ") << "\n" << result.err;
    return result.code == 0 ? result.json() : nlohmann::json();
  }
  void Ok(const std::vector<std::string>& words) const { Json(words); }
  // Expects exit 1 and "tpctl: CODE: ... parts ...".
  void Refused(const std::vector<std::string>& words, const std::string& code,
               const std::vector<std::string>& parts = {}) const {
    const CommandResult result = cluster_.Tpctl(words);
    EXPECT_EQ(result.code, 1) << absl::StrJoin(words, " ") << "\n" << result.out;
    EXPECT_THAT(result.err, ::testing::HasSubstr(absl::StrCat("tpctl: ", code, ": "))) << absl::StrJoin(words, " ");
    for (const std::string& part : parts)
      EXPECT_THAT(result.err, ::testing::HasSubstr(part)) << absl::StrJoin(words, " ");
    EXPECT_LT(result.err.size(), 1400u);
  }

  void Mesh(const std::string& name, const std::string& axes, const std::string& workers = "") const {
    std::vector<std::string> words = {"mesh", "create", name, axes};
    if (!workers.empty()) words.insert(words.end(), {"--workers", workers});
    Ok(words);
  }
  // A file of the tensor: .safetensors under its name, which every dtype has.
  std::string File(const std::string& name, const HostTensor& tensor) const {
    const std::string path = Path(absl::StrCat(name, ".safetensors"));
    EXPECT_TRUE(WriteSafetensors(path, {{name, tensor}}).ok());
    return path;
  }
  std::string Npy(const std::string& name, const HostTensor& tensor) const {
    const std::string path = Path(absl::StrCat(name, ".npy"));
    EXPECT_TRUE(WriteNpy(path, tensor).ok());
    return path;
  }
  void Put(const std::string& name, const HostTensor& tensor, const std::string& mesh,
           const std::string& placements) const {
    Ok({"tensor", "put", name, File("in", tensor), "--mesh", mesh, "--placements", placements});
  }
  void PutLocals(const std::string& name, const std::vector<HostTensor>& locals, const std::string& mesh,
                 const std::string& placements, const std::string& global_shape = "") const {
    std::vector<std::string> words = {"tensor", "put", name, "--mesh", mesh, "--placements", placements};
    if (!global_shape.empty()) words.insert(words.end(), {"--global-shape", global_shape});
    for (size_t rank = 0; rank < locals.size(); ++rank)
      words.insert(words.end(), {"--local", absl::StrCat(rank, "=", File(absl::StrCat("local", rank), locals[rank]))});
    Ok(words);
  }
  HostTensor Get(const std::string& name) const {
    const std::string path = Path("out.safetensors");
    Ok({"tensor", "get", name, "--output", path});
    auto tensors = ReadSafetensors(path);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    return tensors.ok() && tensors->contains(name) ? tensors->at(name) : HostTensor();
  }
  nlohmann::json Redistribute(const std::string& name, const std::string& placements,
                              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"tensor", "redistribute", name, "--placements", placements};
    words.insert(words.end(), more.begin(), more.end());
    return Json(words);
  }
  // `field` of each rank's shard: "shape", "offset", "bytes".
  template <typename Value>
  std::vector<Value> Shards(const std::string& name, const std::string& field) const {
    std::vector<Value> values;
    const nlohmann::json shard_list = Json({"tensor", "shards", name});
    for (const auto& shard : shard_list["shards"]) values.push_back(shard[field]);
    return values;
  }
  // The numbers of each rank's local block.
  std::vector<std::vector<double>> Locals(const std::string& name) const {
    std::vector<std::vector<double>> locals;
    const nlohmann::json shard_list = Json({"tensor", "shards", name, "--values"});
    for (const auto& shard : shard_list["shards"]) locals.push_back(Flat(shard["values"]));
    return locals;
  }
  void Delete(const std::string& name) const { Ok({"tensor", "delete", name}); }
  // Workers tell what they hold with their heartbeats.
  bool UsedBytesBecome(int64_t bytes) const {
    return Eventually([&] {
      int64_t used = 0;
      const nlohmann::json worker_list = Json({"workers"});
      for (const auto& worker : worker_list["workers"]) used += worker["used_bytes"].get<int64_t>();
      return used == bytes;
    });
  }

 private:
  Cluster cluster_;
  TemporaryFolder folder_;
};

// One cluster for all tests of a suite.
template <int kWorkers>
class TensorSuite : public ::testing::Test {
 protected:
  static void TearDownTestSuite() {
    EXPECT_TRUE(tensors_->UsedBytesBecome(0));  // once: heartbeats are seconds apart
    delete tensors_;
    tensors_ = nullptr;
  }
  void TearDown() override {
    // What one test makes, the next one does not see.
    const nlohmann::json tensor_list = tensors_->Json({"tensor", "list"});
    for (const auto& tensor : tensor_list["tensors"]) tensors_->Delete(tensor["name"]);
    const nlohmann::json mesh_list = tensors_->Json({"mesh", "list"});
    for (const auto& mesh : mesh_list["meshes"]) tensors_->Ok({"mesh", "delete", mesh["name"]});
    EXPECT_EQ(tensors_->Json({"status"})["workers_healthy"], kWorkers);
  }
  static TensorCluster* tensors_;
};
template <int kWorkers>
TensorCluster* TensorSuite<kWorkers>::tensors_ = nullptr;

}  // namespace tp::testing
