// Random traffic over models that share workers: one total order, gap-free sequences, one reply to every call.
#include <cstdlib>
#include <random>
#include <set>

#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

class OrderTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(OrderTest, CommonCommandsOfAnyTwoWorkersAreInOneOrderAndEveryCallIsAnsweredOnce) {
  const char* given = std::getenv("TP_TEST_SEED");
  const uint32_t seed = given == nullptr ? GetParam() : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Driver d;
  const std::vector<std::string> ids = {"a", "b", "c", "d", "e"};
  const std::vector<std::string> names = {"m0", "m1", "m2", "m3"};
  for (const std::string& id : ids) d.Join(id);
  CallId call = 0;
  std::set<CallId> submits, deletes, forwards, generates;
  // Every session of a worker is one stream.
  std::vector<std::vector<Command>> streams;
  const auto answer = [&](const std::string&, const Command& command, Ack* ack) {
    if (const auto* decode = std::get_if<Decode>(&command.kind)) {
      for (const PrefillPiece& piece : decode->pieces) {
        if (piece.last) ack->decode.sequences.push_back({piece.sequence_id, {1}, piece.sequence_id % 2 ? "stop" : ""});
      }
    }
  };
  for (int turn = 0; turn < 3000; ++turn) {
    d.now += absl::Milliseconds(1);
    const std::string& name = names[below(names.size())];
    const std::string& id = ids[below(ids.size())];
    switch (below(16)) {
      case 0:
        submits.insert(++call);
        d.Do(d.Request(call, name, 1 + static_cast<int>(below(5)), below(2) == 0));
        d.Stored();
        break;
      case 1:
        if (below(6) != 0) break;
        deletes.insert(++call);
        d.Do(DeleteRequested{call, "", name});
        d.Stored();
        break;
      case 2:
        if (below(20) != 0) break;
        streams.push_back(d.history[id]);
        d.Lose(id);
        d.Join(id);
        break;
      case 3:
      case 4:
        forwards.insert(++call);
        d.Forward(call, name, 1);
        break;
      case 5:
        generates.insert(++call);
        d.Generate(call, name, 1 + below(400), 1 + static_cast<int>(below(50)));
        break;
      case 6:
        if (call > 0) d.Do(CallCancelled{1 + below(call)});
        d.Stored();
        break;
      case 7:
        d.Do(Tick{});
        break;
      case 8:
      case 9:
      case 10:
        if (d.stages.empty()) break;
        {
          const auto [worker, stage] = d.stages.front();
          d.stages.pop_front();
          d.FinishStage(worker, stage, below(60) == 0 ? absl::DataLossError("x") : absl::OkStatus());
          d.Stored();
        }
        break;
      default:
        if (!d.commands[id].empty()) d.AckOne(id, answer);
    }
    for (const auto& [worker, incarnation] : d.incarnations) d.Do(WorkerHeartbeat{worker, incarnation, 0, 0});
  }
  for (const std::string& name : names) {
    deletes.insert(++call);
    d.Do(DeleteRequested{call, "", name});
    d.Stored();
  }
  d.FinishStages();
  d.AckAll(answer);
  for (const std::string& id : ids) streams.push_back(d.history[id]);

  size_t commands = 0;
  for (const auto& stream : streams) {
    for (size_t i = 0; i < stream.size(); ++i) {
      ASSERT_EQ(stream[i].sequence, i + 1);
      if (i > 0) ASSERT_LT(stream[i - 1].order, stream[i].order);
    }
    commands += stream.size();
  }
  EXPECT_GT(commands, 100u);
  for (const CallId id : submits) EXPECT_EQ(Replies<SubmitReply>(d, id), 1) << id;
  for (const CallId id : deletes) EXPECT_EQ(Replies<DeleteReply>(d, id), 1) << id;
  for (const CallId id : forwards) EXPECT_EQ(Replies<ForwardReply>(d, id), 1) << id;
  for (const CallId id : generates) {
    int ends = 0;
    for (const GenerateProgress& progress : d.Of<GenerateProgress>(d.all)) ends += progress.call == id && progress.done;
    EXPECT_EQ(ends, 1) << id;
  }
  EXPECT_EQ(d.core.running_calls(), 0);
  EXPECT_TRUE(d.core.models().empty());
  EXPECT_TRUE(d.core.meshes().empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, OrderTest, ::testing::Range(uint32_t{1}, uint32_t{9}));

}  // namespace
}  // namespace tp::server
