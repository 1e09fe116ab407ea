#include "server/coordinator/core_numbers.h"

#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;

TEST(CoreNumbers, NothingAtFirst) {
  Driver d({.max_queued_requests = 17});
  const CoreNumbers numbers = d.core.numbers();
  EXPECT_EQ(numbers.workers_healthy + numbers.workers_draining + numbers.workers_lost, 0);
  EXPECT_THAT(numbers.models, ElementsAre(0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(numbers.queue_limit, 17);
  EXPECT_EQ(numbers.counts.epochs, 0);
}

TEST(CoreNumbers, WorkersAndTheirMemory) {
  Driver d;
  d.Join("a", 100'000);
  d.Join("b", 200'000);
  d.Join("c");
  d.Deploy("m", 2);
  d.Do(WorkerHeartbeat{"a", d.incarnations["a"], 0, 500});
  d.Do(WorkerHeartbeat{"b", d.incarnations["b"], 0, 70});
  CoreNumbers numbers = d.core.numbers();
  EXPECT_EQ(numbers.workers_healthy, 3);
  EXPECT_EQ(numbers.memory_limit, 300'000);
  EXPECT_EQ(numbers.memory_used, 570);
  EXPECT_EQ(numbers.memory_reserved, d.Reserved("a") + d.Reserved("b"));
  EXPECT_GT(numbers.memory_reserved, 0);
  EXPECT_EQ(numbers.counts.workers_joined, 3);
  EXPECT_EQ(numbers.counts.epochs, 1);
  EXPECT_EQ(numbers.counts.epochs_broken, 0);
  d.Do(WorkerDraining{"c", d.incarnations["c"]});
  d.Lose("a");
  numbers = d.core.numbers();
  EXPECT_EQ(numbers.workers_healthy, 1);
  EXPECT_EQ(numbers.workers_draining, 1);
  EXPECT_EQ(numbers.workers_lost, 1);
  EXPECT_EQ(numbers.memory_limit, 200'000);
  EXPECT_EQ(numbers.counts.workers_lost, 1);
  EXPECT_EQ(numbers.counts.epochs_broken, 1);
  EXPECT_EQ(numbers.models.at(static_cast<size_t>(ModelPhase::kFailed)), 1);
  d.Join("a");
  EXPECT_EQ(d.core.numbers().workers_lost, 0);
  EXPECT_EQ(d.core.numbers().counts.workers_joined, 4);
}

TEST(CoreNumbers, ForwardsThatWaitAndRun) {
  Driver d({.max_runs_in_flight = 2});
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  for (CallId call = 1; call <= 5; ++call) d.Forward(call, "m");
  CoreNumbers numbers = d.core.numbers();
  EXPECT_EQ(numbers.forwards_running, 2);
  EXPECT_EQ(numbers.forwards_waiting, 3);
  EXPECT_EQ(numbers.models.at(static_cast<size_t>(ModelPhase::kReady)), 1);
  d.Do(CallCancelled{5});
  EXPECT_EQ(d.core.numbers().forwards_waiting, 2);
}

TEST(CoreNumbers, SequencesTokensAndSteps) {
  Driver d({.max_sequences = 1});
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2, true);
  d.Generate(1, "m", 3, 4);
  d.Generate(2, "m", 5, 4);
  d.Generate(3, "m", 600, 4);  // refused
  CoreNumbers numbers = d.core.numbers();
  EXPECT_EQ(numbers.sequences_decoding + numbers.sequences_waiting, 2);
  EXPECT_EQ(numbers.counts.prompt_tokens, 8);
  EXPECT_EQ(numbers.counts.decode_steps, 0);
  const uint64_t first = std::get<Decode>(d.commands["a"][0].kind).joins[0].sequence_id;
  for (const char* id : {"a", "b"}) {
    d.AckOne(id, [&](const std::string&, const Command&, Ack* ack) {
      ack->decode.sequences = {{first, {10, 11, 256}, "stop"}};
    });
  }
  numbers = d.core.numbers();
  EXPECT_EQ(numbers.counts.decode_steps, 3);
  EXPECT_EQ(numbers.counts.generated_tokens, 3);
  // The next command was sent before the end was known, and did nothing; the one after it takes in a prompt.
  ASSERT_TRUE(std::get<Decode>(d.commands["a"][0].kind).pieces.empty());
  d.AckOne("a");
  d.AckOne("b");
  EXPECT_EQ(d.core.numbers().counts.decode_steps, 3);
  ASSERT_FALSE(std::get<Decode>(d.commands["a"][0].kind).pieces.empty());
  d.AckOne("a");
  d.AckOne("b");
  EXPECT_EQ(d.core.numbers().counts.decode_steps, 4);
  EXPECT_EQ(d.core.numbers().counts.generated_tokens, 3);
}

TEST(CoreNumbers, MeshesAndTensorsByState) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.MakeMesh("m", "tp=2");
  d.MakeTensor("t", "m", {4, 2}, {{"tp", Placement::Shard(0)}});
  EXPECT_THAT(d.core.numbers().meshes, ElementsAre(0, 1, 0));
  EXPECT_THAT(d.core.numbers().tensors, ElementsAre(0, 1, 0));
  d.Lose("b");
  EXPECT_THAT(d.core.numbers().meshes, ElementsAre(0, 0, 1));
  EXPECT_THAT(d.core.numbers().tensors, ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace tp::server
