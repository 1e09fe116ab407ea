#include "server/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / (std::string("tp_store_") + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "coordinator.db").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<Store> Open() {
    auto store = Store::Open(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void Execute(const char* text) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, text, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(StoreTest, KeepsSubmissionsInTheOrderOfTheirFirstPut) {
  const std::string binary("\0\xff\0x", 4);
  {
    auto store = Open();
    ASSERT_TRUE(store->Put("zebra", binary).ok());
    ASSERT_TRUE(store->Put("ant", "").ok());
    ASSERT_TRUE(store->Put("bee", "b").ok());
    ASSERT_TRUE(store->Put("zebra", binary + "2").ok());
    ASSERT_TRUE(store->Erase("bee").ok());
    ASSERT_TRUE(store->Erase("absent").ok());
  }
  auto store = Open();
  auto all = store->All();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, ElementsAre(Pair("zebra", binary + "2"), Pair("ant", "")));
}

TEST_F(StoreTest, TermGrowsWithEveryCallAndOverReopening) {
  {
    auto store = Open();
    EXPECT_EQ(*store->NextTerm(), 1u);
    EXPECT_EQ(*store->NextTerm(), 2u);
  }
  EXPECT_EQ(*Open()->NextTerm(), 3u);
}

TEST_F(StoreTest, NewerSchemaIsRefusedAndLeftAsItIs) {
  ASSERT_TRUE(Open()->Put("m", "blob").ok());
  Execute("PRAGMA user_version = 2");
  auto store = Store::Open(path_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("schema version 2, this program knows up to 1"));
  Execute("PRAGMA user_version = 1");
  EXPECT_THAT(*Open()->All(), ElementsAre(Pair("m", "blob")));
}

TEST_F(StoreTest, FilesThatAreNotOursAreRefused) {
  Execute("CREATE TABLE other (x INTEGER)");
  EXPECT_EQ(Store::Open(path_).status().code(), absl::StatusCode::kDataLoss);
  std::filesystem::remove(path_);
  std::ofstream(path_) << std::string(4096, 'x');
  EXPECT_EQ(Store::Open(path_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(StoreTest, DamagedFileIsRefused) {
  {
    auto store = Open();
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(store->Put(std::to_string(i), std::string(500, 'b')).ok());
  }
  ASSERT_FALSE(std::filesystem::exists(path_ + "-wal"));
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path_));
  ASSERT_GT(size, 32768);
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(static_cast<size_t>(size) - 4096, '\x5a');
  }
  EXPECT_EQ(Store::Open(path_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(StoreTest, SecondCoordinatorOnOneFileIsRefused) {
  auto first = Open();
  ASSERT_TRUE(first->Put("m", "x").ok());
  EXPECT_EQ(Store::Open(path_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StoreTest, FolderThatIsMissingIsNamed) {
  auto store = Store::Open((folder_ / "no" / "file.db").string());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("no/file.db"));
}

TEST(StoreInMemoryTest, KeepsNothing) {
  ASSERT_TRUE((*Store::Open(":memory:"))->Put("m", "x").ok());
  EXPECT_THAT(*(*Store::Open(":memory:"))->All(), ElementsAre());
}

}  // namespace
}  // namespace tp::server
