// States of a model that become tensors, and a model that takes their values over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builders.h"
#include "tests/support/tensor_cluster.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kModelMesh = 7;  // of RuntimeCluster
constexpr int64_t kVocabulary = 41;
constexpr int kPages = 8;

Submission Decoder(const std::string& name, DType compute_dtype, uint64_t seed, int degree) {
  Submission submission = DecoderSubmission({.layers = 2, .vocabulary = kVocabulary}, degree);
  submission.name = name;
  submission.seed = seed;
  submission.compute_dtype = compute_dtype;
  return submission;
}

class Share : public ::testing::TestWithParam<DType> {
 protected:
  // "old" of seed 5, and "new" of other values, which is to get those of "old".
  void Start(int ranks, bool same_plan) {
    cluster_ = std::make_unique<RuntimeCluster>(ranks);
    tensors_ = std::make_unique<TensorCluster>(*cluster_);
    ASSERT_EQ(cluster_->Connect(), absl::OkStatus());
    ASSERT_EQ(cluster_->Load(Decoder("old", GetParam(), 5, ranks), kPages, &old_), absl::OkStatus());
    submission_ = Decoder("new", GetParam(), 6, ranks);
    if (!same_plan) submission_.plan.entries.clear();
    ASSERT_EQ(cluster_->Load(submission_, kPages, &new_), absl::OkStatus());
    mesh_ = {kModelMesh, cluster_->epoch(), old_.mesh, {}};
    for (int rank = 0; rank < ranks; ++rank) mesh_.members.push_back(rank);
  }
  LoadState StateAt(const CompiledModel& model, size_t i, uint64_t id) {
    LoadState state;
    state.path = model.states[i].state.path;
    state.shape = model.states[i].state.shape;
    state.dtype = model.states[i].state.dtype;
    state.placements = model.states[i].placements;
    state.tensor_id = id;
    return state;
  }
  ClusterAnswer ShareOld(uint64_t first_id) {
    ShareStates share{"old", old_.mesh, {}};
    for (size_t i = 0; i < old_.states.size(); ++i) share.states.push_back(StateAt(old_, i, first_id + i));
    return tensors_->Command(mesh_, share);
  }
  // "new" again, with the values of the tensors from `first_id` on.
  std::vector<StageResult> Adopt(uint64_t first_id) {
    return cluster_->RunStages([&](int rank) {
      StageLoad load = cluster_->MakeLoad(new_, submission_, rank, kPages);
      for (size_t i = 0; i < load.states.size(); ++i) load.states[i].tensor_id = first_id + i;
      return tp::Stage{0, 0, load};
    });
  }
  absl::Status Commit(const std::vector<StageResult>& loaded) {
    for (const StageResult& result : loaded) {
      if (!result.status.ok()) return result.status;
    }
    return tensors_->Command(mesh_, tp::Commit{{loaded[0].stage_id}}).status;
  }
  std::vector<float> Logits(const std::string& model) {
    const ClusterAnswer answer =
        cluster_->Forward(model, {{"ids", MakeHostTensor<int64_t>({2, 3}, {3, 17, 40, 0, 8, 8})}});
    EXPECT_EQ(answer.status, absl::OkStatus());
    const HostTensor logits = ConvertTo(answer.outputs.at("logits"), DType::kF32);
    return {logits.data<float>(), logits.data<float>() + ElementCount(logits.shape)};
  }
  int64_t Used(int rank) { return cluster_->runtime(rank).Usage().used_bytes; }

  std::unique_ptr<RuntimeCluster> cluster_;
  std::unique_ptr<TensorCluster> tensors_;
  Submission submission_;
  CompiledModel old_, new_;
  TestMesh mesh_;
};
INSTANTIATE_TEST_SUITE_P(Types, Share, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(Share, ALoadTakesTheValuesBitForBit) {
  ASSERT_NO_FATAL_FAILURE(Start(2, true));
  const std::vector<float> expected = Logits("old");
  ASSERT_NE(Logits("new"), expected);
  ASSERT_EQ(ShareOld(100).status, absl::OkStatus());
  const std::vector<StageResult> loaded = Adopt(100);
  for (const StageResult& result : loaded) {
    ASSERT_EQ(result.status, absl::OkStatus());
    EXPECT_EQ(result.bytes_read, 0);
    EXPECT_GT(result.parameter_bytes, 0);
  }
  ASSERT_EQ(Commit(loaded), absl::OkStatus());
  EXPECT_EQ(Logits("new"), expected);
  ASSERT_EQ(tensors_->Command(mesh_, Release{"old"}).status, absl::OkStatus());
  EXPECT_EQ(Logits("new"), expected);
}

TEST_P(Share, OneCopyIsLeft) {
  ASSERT_NO_FATAL_FAILURE(Start(2, true));
  const int64_t both = Used(0);
  ASSERT_EQ(tensors_->Command(mesh_, Release{"new"}).status, absl::OkStatus());
  const int64_t one = Used(0);
  EXPECT_EQ(both, 2 * one);
  ASSERT_EQ(ShareOld(100).status, absl::OkStatus());
  EXPECT_GT(Used(0), one);  // plain copies of packed weights
  const std::vector<StageResult> loaded = Adopt(100);
  ASSERT_EQ(Commit(loaded), absl::OkStatus());
  ASSERT_EQ(tensors_->Command(mesh_, Release{"old"}).status, absl::OkStatus());
  EXPECT_EQ(Used(0), one);
  EXPECT_EQ(Adopt(100)[0].status.code(), absl::StatusCode::kNotFound);  // the tensors are gone
}

TEST_P(Share, ValuesThatMovedToAnotherLayoutAreTheSame) {
  ASSERT_NO_FATAL_FAILURE(Start(4, false));
  const std::vector<float> expected = Logits("old");
  const TestMesh link = *tensors_->Link(mesh_, mesh_);
  ASSERT_EQ(ShareOld(100).status, absl::OkStatus());
  for (size_t i = 0; i < old_.states.size(); ++i) {
    const LoadState from = StateAt(old_, i, 100 + i), to = StateAt(new_, i, 200 + i);
    ASSERT_EQ(from.path, to.path);
    tp::Transfer transfer{from.tensor_id,  to.tensor_id,  from.dtype,    from.shape,    old_.mesh, new_.mesh,
                          from.placements, to.placements, mesh_.members, mesh_.members, kModelMesh};
    ASSERT_EQ(tensors_->Command(link, transfer).status, absl::OkStatus());
  }
  const std::vector<StageResult> loaded = Adopt(200);
  ASSERT_EQ(Commit(loaded), absl::OkStatus());
  const std::vector<float> got = Logits("new");
  ASSERT_EQ(got.size(), expected.size());
  const float bound = GetParam() == DType::kF32 ? 1e-4F : 0.3F;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], bound) << i;
}

TEST_P(Share, WhatDoesNotFitIsRefusedAndNothingIsEntered) {
  ASSERT_NO_FATAL_FAILURE(Start(2, true));
  const auto refused = [&](ShareStates share) { return tensors_->Command(mesh_, share).status; };
  const LoadState good = StateAt(old_, 0, 100);
  EXPECT_EQ(refused({"none", old_.mesh, {good}}).code(), absl::StatusCode::kNotFound);
  LoadState bad = StateAt(old_, 1, 101);
  bad.path = "none";
  EXPECT_THAT(std::string(refused({"old", old_.mesh, {good, bad}}).message()), HasSubstr("none: "));
  bad = StateAt(old_, 1, 101);
  bad.dtype = DType::kF64;
  EXPECT_EQ(refused({"old", old_.mesh, {good, bad}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({"old", old_.mesh, {good, good}}).code(), absl::StatusCode::kAlreadyExists);
  const int64_t before = Used(0);
  EXPECT_EQ(refused({"old", old_.mesh, {good}}), absl::OkStatus());  // its id is free
  EXPECT_GE(Used(0), before);
  // All values are of `good`: the other states have another path, shape or layout.
  const StageResult result = cluster_->RunStages([&](int rank) {
    StageLoad load = cluster_->MakeLoad(new_, submission_, rank, kPages);
    for (LoadState& state : load.states) {
      if (state.shape != good.shape) state.tensor_id = 100;
    }
    return tp::Stage{0, 0, load};
  })[0];
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("tensor 100 is "));
}

}  // namespace
}  // namespace tp::testing
