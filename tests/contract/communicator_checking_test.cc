// Checked collectives over every backend: ranks that call different ones all fail before any payload, and go on.
#include "tests/contract/communicator_contract.h"
#include "worker/collective/checking_communicator.h"

namespace tp::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckingTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Backends, CheckingTest, ::testing::ValuesIn(Kinds()), KindName);

// Every rank's call must fail with a text that has both, and the next right call must work.
void ExpectMismatch(Ranks& ranks, const std::function<absl::Status(Communicator&)>& call, const std::string& first,
                    const std::string& second) {
  const std::vector<Outcome> outcomes = ranks.RunOn(Upto(ranks.size()), call);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kAborted);
    EXPECT_THAT(outcome.message, AllOf(HasSubstr("collective mismatch rank 0 ("), HasSubstr(first), HasSubstr(second)));
  }
  ranks.Run([](Communicator& comm) {
    NoStream stream;
    std::vector<float> data(5000, static_cast<float>(comm.rank() + 1));
    absl::Status status =
        comm.AllReduce(stream, Upto(comm.size()), data.data(), 5000, DType::kF32, ReduceOp::kSum, Soon());
    EXPECT_EQ(data, std::vector<float>(5000, static_cast<float>(comm.size() * (comm.size() + 1) / 2)));
    return status;
  });
}

// CASES 33: a tensor of another shape on rank 1.
TEST_P(CheckingTest, DifferentShapesOnTwoRanks) {
  Ranks ranks(GetParam(), 2, CreateCheckingCommunicator);
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        NoStream stream;
        const int64_t count = comm.rank() == 0 ? 4000 : 6000;
        std::vector<float> data(6000, 7);
        absl::Status status = comm.AllReduce(stream, {0, 1}, data.data(), count, DType::kF32, ReduceOp::kSum, Soon());
        EXPECT_EQ(data, std::vector<float>(6000, 7));  // no garbage
        return status;
      },
      "rank 0 (all_reduce of F32, op sum, count 4000, group [0, 1])",
      "rank 1 (all_reduce of F32, op sum, count 6000, group [0, 1])");
}

TEST_P(CheckingTest, OpsTypesRootsAndOrder) {
  Ranks ranks(GetParam(), 3, CreateCheckingCommunicator);
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        NoStream stream;
        std::vector<float> data(30, 1), out(30, 0);
        if (comm.rank() != 2) {
          return comm.AllReduce(stream, Upto(3), data.data(), 10, DType::kF32, ReduceOp::kSum, Soon());
        }
        return comm.AllGather(stream, Upto(3), data.data(), out.data(), {10, 10, 10}, DType::kF32, Soon());
      },
      "rank 0 (all_reduce of F32", "rank 2 (all_gather of F32, counts [10, 10, 10]");
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        NoStream stream;
        std::vector<float> data(10, 1);
        return comm.AllReduce(stream, Upto(3), data.data(), 10, DType::kF32,
                              comm.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum, Soon());
      },
      "op sum", "op max");
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        NoStream stream;
        std::vector<float> data(10, 1);
        return comm.Broadcast(stream, Upto(3), comm.rank() == 1 ? 1 : 0, data.data(), 10,
                              comm.rank() == 1 ? DType::kI32 : DType::kF32, Soon());
      },
      "broadcast of F32, root 0", "broadcast of I32, root 1");
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        return comm.Barrier(comm.rank() == 1 ? std::vector<int>{2, 1, 0} : Upto(3), Soon());
      },
      "group [0, 1, 2]", "group [2, 1, 0]");
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        if (comm.rank() == 0) return comm.ExchangeHeaders(Upto(3), {}, Soon()).status();
        return comm.Barrier(Upto(3), Soon());
      },
      "header exchange", "barrier");
}

TEST_P(CheckingTest, AllToAllCountsThatDoNotMeet) {
  Ranks ranks(GetParam(), 3, CreateCheckingCommunicator);
  ExpectMismatch(
      ranks,
      [](Communicator& comm) {
        NoStream stream;
        std::vector<float> in(30, 1), out(30, 0);
        std::vector<int64_t> send = {2, 2, 2}, receive = {2, 2, 2};
        if (comm.rank() == 2) receive[0] = 3;
        absl::Status status = comm.AllToAll(stream, Upto(3), in.data(), send, out.data(), receive, DType::kF32, Soon());
        EXPECT_EQ(out, std::vector<float>(30, 0));
        return status;
      },
      "rank 0 (all_to_all of F32, sends 2 to rank 2)", "rank 2 (all_to_all of F32, expects 3 from rank 0)");
}

TEST_P(CheckingTest, CallsThatAgreeGoThrough) {
  Ranks ranks(GetParam(), 2, CreateCheckingCommunicator);
  ranks.Run([](Communicator& comm) {
    NoStream stream;
    const int64_t mine = comm.rank();
    std::vector<int64_t> all(2), in = {10, 20}, out(2), one(1);
    absl::Status status = comm.AllGather(stream, {0, 1}, &mine, all.data(), {1, 1}, DType::kI64, Soon());
    EXPECT_EQ(all, (std::vector<int64_t>{0, 1}));
    status.Update(comm.AllToAll(stream, {0, 1}, in.data(), {1, 1}, out.data(), {1, 1}, DType::kI64, Soon()));
    EXPECT_EQ(out, std::vector<int64_t>(2, comm.rank() == 0 ? 10 : 20));
    status.Update(
        comm.ReduceScatter(stream, {0, 1}, in.data(), {1, 1}, one.data(), DType::kI64, ReduceOp::kSum, Soon()));
    EXPECT_EQ(one[0], comm.rank() == 0 ? 20 : 40);
    int64_t value = comm.rank() + 5;
    status.Update(comm.Broadcast(stream, {0, 1}, 1, &value, 1, DType::kI64, Soon()));
    EXPECT_EQ(value, 6);
    status.Update(comm.Scatter(stream, {0, 1}, 0, in.data(), {1, 1}, one.data(), DType::kI64, Soon()));
    EXPECT_EQ(one[0], comm.rank() == 0 ? 10 : 20);
    status.Update(comm.Gather(stream, {0, 1}, 0, one.data(), all.data(), {1, 1}, DType::kI64, Soon()));
    if (comm.rank() == 0) EXPECT_EQ(all, in);
    status.Update(
        comm.SendReceive(stream, 1 - comm.rank(), &mine, 1, 1 - comm.rank(), one.data(), 1, DType::kI64, Soon()));
    EXPECT_EQ(one[0], 1 - mine);
    const StepHeader header{.epoch = 4, .sequence = 9};
    auto headers = comm.ExchangeHeaders({0, 1}, header, Soon());
    if (!headers.ok()) return headers.status();
    EXPECT_EQ(*headers, std::vector<StepHeader>(2, header));
    status.Update(comm.Barrier({0, 1}, Soon()));
    return status;
  });
}

}  // namespace
}  // namespace tp::worker
