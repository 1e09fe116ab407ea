#include "worker/weights/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "worker/weights/model_root.h"

namespace tp::worker {
namespace {

namespace fs = std::filesystem;

class RootedWeightFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tp_root_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::create_directories(folder_ + "/root/sub");
    fs::create_directories(folder_ + "/root2");
    for (const char* file : {"/root/sub/in.safetensors", "/out.safetensors", "/root2/near.safetensors"}) {
      ASSERT_EQ(WriteSafetensors(folder_ + file, {{"t", MakeHostTensor<float>({2}, {1, 2})}}), absl::OkStatus());
    }
    fs::create_symlink(folder_ + "/out.safetensors", folder_ + "/root/link.safetensors");
    fs::create_symlink(folder_, folder_ + "/root/up");
    fs::create_symlink(folder_ + "/root/sub/in.safetensors", folder_ + "/root/inner.safetensors");
    fs::create_symlink(folder_ + "/root", folder_ + "/alias");
  }
  void TearDown() override { fs::remove_all(folder_); }
  absl::StatusCode Open(const std::string& root, const std::string& path) {
    return CreateRootedWeightFiles(root)->Open(path).status().code();
  }
  std::string folder_;
};

TEST_F(RootedWeightFilesTest, OpensWhatLiesUnderTheRoot) {
  const std::string root = folder_ + "/root";
  EXPECT_EQ(Open(root, root + "/sub/in.safetensors"), absl::StatusCode::kOk);
  EXPECT_EQ(Open(root, "sub/in.safetensors"), absl::StatusCode::kOk);
  EXPECT_EQ(Open(root + "/", root + "/inner.safetensors"), absl::StatusCode::kOk);
  EXPECT_EQ(Open("/", root + "/sub/in.safetensors"), absl::StatusCode::kOk);
  EXPECT_EQ(Open(root, "sub/../sub/in.safetensors"), absl::StatusCode::kOk);
  // A root that is a link itself.
  EXPECT_EQ(Open(folder_ + "/alias", folder_ + "/alias/sub/in.safetensors"), absl::StatusCode::kOk);
  EXPECT_EQ(Open(folder_ + "/alias", root + "/sub/in.safetensors"), absl::StatusCode::kOk);
}

TEST_F(RootedWeightFilesTest, RefusesWhatLiesOutside) {
  const std::string root = folder_ + "/root";
  for (const std::string& path :
       {folder_ + "/out.safetensors", root + "/../out.safetensors", std::string("../out.safetensors"),
        root + "/link.safetensors", root + "/up/out.safetensors", folder_ + "/root2/near.safetensors",
        folder_ + "/missing", std::string("../missing")}) {
    EXPECT_EQ(Open(root, path), absl::StatusCode::kPermissionDenied) << path;
  }
  EXPECT_EQ(Open("", root + "/sub/in.safetensors"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Open(root, "sub/missing"), absl::StatusCode::kNotFound);
}

TEST_F(RootedWeightFilesTest, NewFoldersLieUnderTheRootAfterTheirAncestorsAreResolved) {
  const std::string given = folder_ + "/root", real = fs::canonical(given).string();
  const ModelRoot root(given);
  EXPECT_EQ(*root.ResolveNew("sub/new/deep"), real + "/sub/new/deep");
  EXPECT_EQ(*root.ResolveNew(given + "/new/"), real + "/new");
  EXPECT_EQ(*root.ResolveNew("sub"), real + "/sub");
  EXPECT_EQ(*ModelRoot(folder_ + "/alias").ResolveNew(folder_ + "/alias/new"), real + "/new");
  fs::create_symlink(folder_ + "/nowhere", given + "/dangling");
  for (const std::string& path :
       {std::string("up/new"), std::string("../new"), folder_ + "/new", folder_ + "/root2/new", std::string("dangling"),
        std::string("dangling/new"), std::string("sub/../../new")}) {
    EXPECT_EQ(root.ResolveNew(path).status().code(), absl::StatusCode::kPermissionDenied) << path;
  }
  EXPECT_EQ(ModelRoot("").ResolveNew("x").status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace tp::worker
