// submit --replace: the demo model goes from degree to degree while requests come, and no file is read again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class Replace : public ::testing::Test {
 protected:
  Replace() : cluster_(4) {
    reference_ = nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")))["cases"][0];
    tensors_ = *ReadSafetensors(Source("deploy/demo/kjv/reference.safetensors"));
  }
  std::string Demo() {
    name_ = cluster_.SubmitDemo(1);
    file_ = absl::StrCat(cluster_.dir(), "/", name_, ".pb");
    return name_;
  }
  CommandResult ReplaceBy(const std::string& mesh, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"submit", file_,       "--name",          name_, "--mesh",
                                      mesh,     "--replace", "--output-format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    return cluster_.Tpctl(words);
  }
  std::vector<int64_t> Greedy() {
    const CommandResult result = cluster_.Tpctl({"generate", name_, "--prompt", reference_["prompt"].get<std::string>(),
                                                 "--max-new-tokens", "64", "--ignore-eos", "--output-format", "json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.json()["token_ids"].get<std::vector<int64_t>>();
  }
  // "" where the logits are those of the reference.
  std::string Forward(client::Client& client) {
    std::vector<client::NamedTensor> inputs = {{"ids", tensors_.at("ids_0")}};
    inputs[0].tensor.shape = {1, inputs[0].tensor.shape[0]};
    const auto result = client.Forward(name_, inputs);
    if (!result.ok()) return result.status().ToString();
    const HostTensor& expected = tensors_.at("logits_0");
    double largest = 0;
    for (int64_t i = 0; i < ElementCount(expected.shape); ++i) {
      largest = std::max(
          largest, std::abs(double{result->outputs[0].tensor.data<float>()[i]} - double{expected.data<float>()[i]}));
    }
    return largest <= 1e-4 ? "" : absl::StrCat("differs by ", largest);
  }
  nlohmann::json Describe() { return cluster_.Tpctl({"describe", name_, "--output-format", "json"}).json(); }
  // Of the worker at rank 0, and of all others together.
  std::pair<int64_t, int64_t> Used() {
    const std::string first = cluster_.WorkersOf(name_).at(0);
    std::pair<int64_t, int64_t> used;
    const nlohmann::json workers = cluster_.Tpctl({"workers", "--output-format", "json"}).json()["workers"];
    for (const auto& worker : workers) {
      (worker["id"] == first ? used.first : used.second) += worker["used_bytes"].get<int64_t>();
    }
    return used;
  }
  Cluster cluster_;
  nlohmann::json reference_;
  std::map<std::string, HostTensor> tensors_;
  std::string name_, file_;
};

TEST_F(Replace, FromDegreeToDegreeWhileRequestsCome) {
  Demo();
  std::pair<int64_t, int64_t> before;
  ASSERT_TRUE(Eventually([&] { return (before = Used()).first > 0; }));
  const std::vector<int64_t> greedy = reference_["greedy"];
  EXPECT_THAT(Greedy(), ElementsAreArray(greedy));
  std::atomic<bool> stop = false;
  std::atomic<int> done = 0;
  std::string failure;
  std::thread requests([&] {
    const auto client = cluster_.Connect();
    while (!stop && failure.empty()) {
      failure = Forward(*client);
      ++done;
    }
  });
  for (const std::string mesh : {"tp=2", "tp=4", "dp=2,tp=2", "tp=1"}) {
    SCOPED_TRACE(mesh);
    const int seen = done;
    const CommandResult result = ReplaceBy(mesh);
    EXPECT_EQ(result.code, 0) << result.err;
    if (result.code != 0) break;
    const nlohmann::json taken = result.json()["taken_over"];
    EXPECT_EQ(taken["bytes_read"], 0);
    EXPECT_EQ(taken["states"], Describe()["parameters"].size());
    EXPECT_GT(taken["bytes"], 0);
    const nlohmann::json workers = Describe()["workers"];
    for (const auto& worker : workers) EXPECT_EQ(worker["bytes_read"], 0);
    EXPECT_THAT(Greedy(), ElementsAreArray(greedy));
    EXPECT_TRUE(Eventually([&] { return done > seen + 1 || !failure.empty(); }));
  }
  stop = true;
  requests.join();
  EXPECT_EQ(failure, "");
  EXPECT_EQ(cluster_.Tpctl({"models", "--output-format", "json"}).json()["models"].size(), 1u);
  // One copy, and what the steps of the requests needed beside it.
  std::pair<int64_t, int64_t> after;
  EXPECT_TRUE(Eventually([&] {
    after = Used();
    return after.first < before.first * 3 / 2 && after.second < before.first;
  })) << before.first
      << " " << after.first << " " << after.second;
  EXPECT_EQ(cluster_.Tpctl({"delete", name_}).code, 0);
}

TEST_F(Replace, WhatFailsLeavesTheModel) {
  Demo();
  const CommandResult three = ReplaceBy("tp=3");
  EXPECT_EQ(three.code, 1);
  EXPECT_THAT(three.err, HasSubstr("INVALID_ARGUMENT"));
  const CommandResult many = ReplaceBy("tp=8");
  EXPECT_THAT(many.err, HasSubstr("needs 8 workers, 4 are healthy"));
  const CommandResult dry = ReplaceBy("tp=2", {"--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(dry.json()["dry_run"], true);
  const CommandResult other = cluster_.Tpctl({"submit", file_, "--name", "kjb1", "--replace"});
  EXPECT_THAT(other.err, HasSubstr("NOT_FOUND"));
  EXPECT_THAT(other.err, HasSubstr(name_));
  const nlohmann::json description = Describe();
  EXPECT_EQ(description["workers"].size(), 1u);
  EXPECT_GT(description["workers"][0]["bytes_read"], 0);
  EXPECT_THAT(Greedy(), ElementsAreArray(reference_["greedy"].get<std::vector<int64_t>>()));
}

}  // namespace
}  // namespace tp::testing
