// What every Communicator does: results, groups, headers. Failures are in communicator_failure_test.cc.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/contract/communicator_contract.h"

namespace tp::worker {
namespace {

using ::testing::HasSubstr;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                            DType::kI64, DType::kI32,  DType::kU8,  DType::kBool};

class CommunicatorTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorTest, ::testing::ValuesIn(Kinds()), KindName);

// Small whole numbers, exact in every dtype; few are not 1, so that products stay small.
double Value(DType dtype, ReduceOp op, int rank, int64_t i) {
  if (dtype == DType::kBool) return (i + rank) % 3 == 0 ? 1 : 0;
  if (op == ReduceOp::kProduct) return (i + rank) % 4 == 0 ? 2 : 1;
  return static_cast<double>((i * 7 + rank * 3) % 5 + 1);
}

bool IsLegal(DType dtype, ReduceOp op) {
  if (dtype == DType::kBool) return op == ReduceOp::kMin || op == ReduceOp::kMax;
  return op != ReduceOp::kAvg || IsFloating(dtype);
}

double Reduced(DType dtype, ReduceOp op, int ranks, int64_t i) {
  double result = Value(dtype, op, 0, i);
  for (int r = 1; r < ranks; ++r) {
    const double v = Value(dtype, op, r, i);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) result += v;
    if (op == ReduceOp::kMin) result = std::min(result, v);
    if (op == ReduceOp::kMax) result = std::max(result, v);
    if (op == ReduceOp::kProduct) result *= v;
  }
  return op == ReduceOp::kAvg ? Array(dtype, 0).Rounded(result / ranks) : result;
}

void CheckAllReduce(Ranks& ranks, int64_t count, DType dtype, ReduceOp op) {
  SCOPED_TRACE(absl::StrCat(ranks.size(), " ranks, ", count, " x ", std::string(DTypeName(dtype)), " ",
                            std::string(ReduceOpName(op))));
  ranks.Run([&](Communicator& comm) {
    NoStream stream;
    Array data(dtype, count, [&](int64_t i) { return Value(dtype, op, comm.rank(), i); });
    absl::Status status = comm.AllReduce(stream, Upto(comm.size()), data.data(), count, dtype, op, Soon());
    EXPECT_EQ(FirstDifference(data, [&](int64_t i) { return Reduced(dtype, op, comm.size(), i); }), -1);
    return status;
  });
}

TEST_P(CommunicatorTest, AllReduceOfEverySizeOnOneToEightRanks) {
  for (int n : {1, 2, 3, 4, 5, 8}) {
    Ranks ranks(GetParam(), n);
    for (int64_t count : {0, 1, 7, 1000, 100000}) CheckAllReduce(ranks, count, DType::kF32, ReduceOp::kSum);
    CheckAllReduce(ranks, 100003, DType::kBF16, ReduceOp::kMax);
  }
}

TEST_P(CommunicatorTest, AllReduceOfEveryTypeAndOp) {
  Ranks ranks(GetParam(), 3);
  for (DType dtype : kTypes) {
    for (ReduceOp op : kOps) {
      if (!IsLegal(dtype, op)) continue;
      for (int64_t count : {7, 20001}) CheckAllReduce(ranks, count, dtype, op);
    }
  }
}

TEST_P(CommunicatorTest, AllReduceInPiecesMovesNoMoreThanItMust) {
  Ranks ranks(GetParam(), 4);
  const int64_t count = 1200000;  // 1.2 MB a block: two pieces
  CheckAllReduce(ranks, count, DType::kF32, ReduceOp::kSum);
  for (int r = 0; r < 4; ++r) {
    EXPECT_LE(ranks[r].wire().bytes_sent, count * 4 * 2 * 3 / 4 + 256);
    EXPECT_LE(ranks[r].wire().bytes_received, count * 4 * 2 * 3 / 4 + 256);
    EXPECT_GE(ranks[r].wire().bytes_received, count * 4 * 2 * 3 / 4);
  }
}

TEST_P(CommunicatorTest, TermsAreAddedInRankOrderWithEqualBitsEverywhere) {
  for (int64_t count : {1000, 50000}) {
    Ranks ranks(GetParam(), 3);
    auto value = [](int rank, int64_t i) {  // order matters: large terms cancel
      const float small = static_cast<float>((i * 31 + rank * 17) % 1009) / 7.0f;
      return rank == 0 ? 3e7f + small : rank == 2 ? -3e7f + small : small;
    };
    ranks.Run([&](Communicator& comm) {
      NoStream stream;
      std::vector<float> data(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) data[i] = value(comm.rank(), i);
      absl::Status status = comm.AllReduce(stream, {0, 1, 2}, data.data(), count, DType::kF32, ReduceOp::kSum, Soon());
      std::vector<float> expected(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) expected[i] = (value(0, i) + value(1, i)) + value(2, i);
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), data.size() * sizeof(float)), 0);
      return status;
    });
  }
}

TEST_P(CommunicatorTest, SixteenBitFloatsAccumulateInF32) {
  // 256 + 1 is 256 in BF16 and 2048 + 1 is 2048 in F16: added in that type the sum would stay where it is.
  Ranks ranks(GetParam(), 4);
  ranks.Run([&](Communicator& comm) {
    NoStream stream;
    Array bf16(DType::kBF16, 1, [&](int64_t) { return comm.rank() == 0 ? 256 : 1; });
    absl::Status status = comm.AllReduce(stream, Upto(4), bf16.data(), 1, DType::kBF16, ReduceOp::kSum, Soon());
    EXPECT_EQ(bf16.Get(0), 260);  // 259 is half way between 258 and 260
    Array f16(DType::kF16, 1, [&](int64_t) { return comm.rank() == 0 ? 2048 : 1; });
    status.Update(comm.AllReduce(stream, Upto(4), f16.data(), 1, DType::kF16, ReduceOp::kSum, Soon()));
    EXPECT_EQ(f16.Get(0), 2052);  // 2051 is half way between 2050 and 2052
    return status;
  });
}

TEST_P(CommunicatorTest, ReduceScatterOfEveryTypeAndOp) {
  Ranks ranks(GetParam(), 3);
  const std::vector<int64_t> counts = {700, 0, 9000};
  for (DType dtype : kTypes) {
    for (ReduceOp op : kOps) {
      if (!IsLegal(dtype, op)) continue;
      SCOPED_TRACE(absl::StrCat(std::string(DTypeName(dtype)), " ", std::string(ReduceOpName(op))));
      ranks.Run([&](Communicator& comm) {
        NoStream stream;
        Array input(dtype, 9700, [&](int64_t i) { return Value(dtype, op, comm.rank(), i); });
        Array output(dtype, counts[comm.rank()]);
        absl::Status status =
            comm.ReduceScatter(stream, {0, 1, 2}, input.data(), counts, output.data(), dtype, op, Soon());
        const int64_t offset = comm.rank() == 0 ? 0 : 700;
        EXPECT_EQ(FirstDifference(output, [&](int64_t i) { return Reduced(dtype, op, 3, offset + i); }), -1);
        return status;
      });
    }
  }
}

// NaN + x, inf - inf and 0 * inf are NaN; a NaN of any rank wins in min and max; infinities are ordinary otherwise.
TEST_P(CommunicatorTest, NaNAndInfinitiesAreThoseOfIeee) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> terms = {{nan, 1, inf, inf, 0, -inf}, {1, nan, -inf, 1, inf, 2}};
  const std::vector<std::pair<ReduceOp, std::vector<double>>> cases = {
      {ReduceOp::kSum, {nan, nan, nan, inf, inf, -inf}},
      {ReduceOp::kAvg, {nan, nan, nan, inf, inf, -inf}},
      {ReduceOp::kMin, {nan, nan, -inf, 1, 0, -inf}},
      {ReduceOp::kMax, {nan, nan, inf, inf, inf, 2}},
      {ReduceOp::kProduct, {nan, nan, -inf, inf, nan, -inf}}};
  Ranks ranks(GetParam(), 2);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const auto& one : cases) {
      const ReduceOp op = one.first;
      const std::vector<double>& want = one.second;
      SCOPED_TRACE(absl::StrCat(std::string(DTypeName(dtype)), " ", std::string(ReduceOpName(op))));
      for (int64_t repeat : {1, 4000}) {  // by both algorithms
        std::vector<Array> results(2, Array(dtype, 6 * repeat));
        ranks.Run([&](Communicator& comm) {
          NoStream stream;
          Array& data = results[comm.rank()];
          for (int64_t i = 0; i < data.count(); ++i) data.Set(i, terms[comm.rank()][i % 6]);
          return comm.AllReduce(stream, {0, 1}, data.data(), data.count(), dtype, op, Soon());
        });
        for (int64_t i = 0; i < 6 * repeat; ++i) {
          const double got = results[0].Get(i);
          ASSERT_TRUE(std::isnan(want[i % 6]) ? std::isnan(got) : got == want[i % 6]) << i << ": " << got;
        }
        const size_t bytes = static_cast<size_t>(6 * repeat * ItemSize(dtype));
        EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), bytes), 0);
      }
    }
  }
}

// The memory for terms is bounded; whatever the bound, the bits are the same.
TEST_P(CommunicatorTest, LargeReductionsInManyPieces) {
  const int64_t count = 5000011;  // 20 MB; blocks of many pieces that take turns
  auto value = [](int rank, int64_t i) { return static_cast<float>((i * 37 + rank * 11) % 1013) / 7.0f; };
  auto sum = [&](int64_t i) { return (value(0, i) + value(1, i)) + value(2, i); };
  Ranks ranks(GetParam(), 3);
  const std::vector<int64_t> counts = {4000000, 11, 1000000};
  ranks.Run([&](Communicator& comm) {
    NoStream stream;
    std::vector<float> data(static_cast<size_t>(count)), part(static_cast<size_t>(counts[comm.rank()]));
    for (int64_t i = 0; i < count; ++i) data[i] = value(comm.rank(), i);
    absl::Status status =
        comm.ReduceScatter(stream, {0, 1, 2}, data.data(), counts, part.data(), DType::kF32, ReduceOp::kSum, Soon());
    const int64_t offset = comm.rank() == 0 ? 0 : comm.rank() == 1 ? 4000000 : 4000011;
    int64_t wrong = 0;
    for (size_t i = 0; i < part.size(); ++i) wrong += part[i] != sum(offset + static_cast<int64_t>(i));
    EXPECT_EQ(wrong, 0);
    status.Update(comm.AllReduce(stream, {0, 1, 2}, data.data(), count, DType::kF32, ReduceOp::kSum, Soon()));
    for (int64_t i = 0; i < count; ++i) wrong += data[i] != sum(i);
    EXPECT_EQ(wrong, 0);
    return status;
  });
}

// Element i of the block from rank `from` to rank `to`.
double Mark(int from, int to, int64_t i) { return from * 100000 + to * 10000 + static_cast<double>(i % 9973); }

TEST_P(CommunicatorTest, ReduceScatterWithUnevenAndEmptyBlocks) {
  const std::vector<std::vector<int64_t>> cases = {{3, 0, 2}, {0, 0, 0}, {1000, 20000, 7}, {5, 5, 5}};
  Ranks ranks(GetParam(), 3);
  for (const std::vector<int64_t>& counts : cases) {
    ranks.Run([&](Communicator& comm) {
      NoStream stream;
      const int64_t total = counts[0] + counts[1] + counts[2];
      Array input(DType::kF64, total, [&](int64_t i) { return static_cast<double>((comm.rank() + 1) * i); });
      Array output(DType::kF64, counts[comm.rank()]);
      absl::Status status = comm.ReduceScatter(stream, {0, 1, 2}, input.data(), counts, output.data(), DType::kF64,
                                               ReduceOp::kSum, Soon());
      int64_t offset = 0;
      for (int r = 0; r < comm.rank(); ++r) offset += counts[r];
      EXPECT_EQ(FirstDifference(output, [&](int64_t i) { return 6.0 * static_cast<double>(offset + i); }), -1);
      return status;
    });
  }
}

TEST_P(CommunicatorTest, AllGatherWithUnevenAndEmptyBlocks) {
  const std::vector<std::vector<int64_t>> cases = {{2, 0, 1, 4}, {0, 0, 0, 0}, {30000, 1, 0, 12345}};
  Ranks ranks(GetParam(), 4);
  for (const std::vector<int64_t>& counts : cases) {
    ranks.Run([&](Communicator& comm) {
      NoStream stream;
      Array input(DType::kF32, counts[comm.rank()], [&](int64_t i) { return Mark(comm.rank(), 0, i); });
      Array output(DType::kF32, counts[0] + counts[1] + counts[2] + counts[3]);
      absl::Status status = comm.AllGather(stream, Upto(4), input.data(), output.data(), counts, DType::kF32, Soon());
      int64_t at = 0;
      for (int r = 0; r < 4; ++r) {
        for (int64_t i = 0; i < counts[r]; ++i) {
          if (output.Get(at++) != Mark(r, 0, i)) return absl::DataLossError(absl::StrCat("rank ", r, " element ", i));
        }
      }
      return status;
    });
  }
}

TEST_P(CommunicatorTest, AllToAllWithUnevenAndEmptyBlocks) {
  for (int n : {1, 2, 5}) {
    Ranks ranks(GetParam(), n);
    for (int64_t scale : {0, 1, 5000}) {
      auto count = [&](int from, int to) { return (from * 3 + to * 2) % 4 * scale; };
      ranks.Run([&](Communicator& comm) {
        NoStream stream;
        const int me = comm.rank();
        std::vector<int64_t> send, receive;
        std::vector<int32_t> input;
        int64_t total = 0;
        for (int r = 0; r < n; ++r) {
          send.push_back(count(me, r));
          receive.push_back(count(r, me));
          total += receive.back();
          for (int64_t i = 0; i < send.back(); ++i) input.push_back(static_cast<int32_t>(Mark(me, r, i)));
        }
        Array output(DType::kI32, total);
        absl::Status status =
            comm.AllToAll(stream, Upto(n), input.data(), send, output.data(), receive, DType::kI32, Soon());
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          for (int64_t i = 0; i < receive[r]; ++i) {
            if (output.Get(at++) != Mark(r, me, i)) return absl::DataLossError(absl::StrCat("from ", r, " at ", i));
          }
        }
        return status;
      });
    }
  }
}

TEST_P(CommunicatorTest, BroadcastFromEveryRoot) {
  Ranks ranks(GetParam(), 3);
  for (int root = 0; root < 3; ++root) {
    for (int64_t count : {0, 1, 1000, 100001}) {
      ranks.Run([&](Communicator& comm) {
        NoStream stream;
        Array data(DType::kF32, count, [&](int64_t i) { return comm.rank() == root ? Mark(root, 1, i) : -1; });
        absl::Status status = comm.Broadcast(stream, Upto(3), root, data.data(), count, DType::kF32, Soon());
        EXPECT_EQ(FirstDifference(data, [&](int64_t i) { return Mark(root, 1, i); }), -1);
        return status;
      });
    }
  }
}

TEST_P(CommunicatorTest, ScatterAndGatherAreInverse) {
  Ranks ranks(GetParam(), 3);
  const std::vector<int64_t> counts = {4, 0, 20000};
  for (int root = 0; root < 3; ++root) {
    ranks.Run([&](Communicator& comm) {
      NoStream stream;
      const bool is_root = comm.rank() == root;
      Array whole(DType::kI64, is_root ? 20004 : 0, [](int64_t i) { return static_cast<double>(i * 3); });
      Array part(DType::kI64, counts[comm.rank()]);
      Array back(DType::kI64, is_root ? 20004 : 0);
      absl::Status status = comm.Scatter(stream, Upto(3), root, whole.data(), counts, part.data(), DType::kI64, Soon());
      const int64_t offset = comm.rank() == 0 ? 0 : 4;
      EXPECT_EQ(FirstDifference(part, [&](int64_t i) { return static_cast<double>((offset + i) * 3); }), -1);
      status.Update(comm.Gather(stream, Upto(3), root, part.data(), back.data(), counts, DType::kI64, Soon()));
      EXPECT_EQ(FirstDifference(back, [](int64_t i) { return static_cast<double>(i * 3); }), -1);
      return status;
    });
  }
}

TEST_P(CommunicatorTest, SendReceiveInARingAndOneWay) {
  Ranks ranks(GetParam(), 3);
  ranks.Run([&](Communicator& comm) {
    NoStream stream;
    const int me = comm.rank(), next = (me + 1) % 3, previous = (me + 2) % 3;
    Array out(DType::kF32, 9000, [&](int64_t i) { return Mark(me, next, i); });
    Array in(DType::kF32, 9000);
    absl::Status status =
        comm.SendReceive(stream, next, out.data(), 9000, previous, in.data(), 9000, DType::kF32, Soon());
    EXPECT_EQ(FirstDifference(in, [&](int64_t i) { return Mark(previous, me, i); }), -1);

    Array one(DType::kF32, 1, [&](int64_t) { return me + 1; });  // 0 -> 2 only
    status.Update(comm.SendReceive(stream, me == 0 ? 2 : -1, one.data(), me == 0 ? 1 : 0, me == 2 ? 0 : -1, one.data(),
                                   me == 2 ? 1 : 0, DType::kF32, Soon()));
    EXPECT_EQ(one.Get(0), me == 2 ? 1 : me + 1);

    Array self(DType::kF32, 1);  // to itself
    status.Update(comm.SendReceive(stream, me, one.data(), 1, me, self.data(), 1, DType::kF32, Soon()));
    EXPECT_EQ(self.Get(0), one.Get(0));
    return status;
  });
}

TEST_P(CommunicatorTest, NoRankLeavesABarrierBeforeAllHaveEntered) {
  Ranks ranks(GetParam(), 5);
  std::atomic<int> entered = 0;
  for (int round = 1; round <= 20; ++round) {
    ranks.Run([&](Communicator& comm) {
      ++entered;
      absl::Status status = comm.Barrier(Upto(5), Soon());
      EXPECT_GE(entered.load(), round * 5);
      return status;
    });
  }
}

TEST_P(CommunicatorTest, GroupsAreAnyRanksInAnyOrder) {
  Ranks ranks(GetParam(), 5);
  const std::vector<int> group = {4, 1, 2};
  const std::vector<Outcome> outcomes = ranks.RunOn(group, [&](Communicator& comm) {
    NoStream stream;
    int64_t sum = comm.rank();
    absl::Status status = comm.AllReduce(stream, group, &sum, 1, DType::kI64, ReduceOp::kSum, Soon());
    EXPECT_EQ(sum, 7);
    const int64_t mine = comm.rank();
    std::vector<int64_t> all(3);
    status.Update(comm.AllGather(stream, group, &mine, all.data(), {1, 1, 1}, DType::kI64, Soon()));
    EXPECT_EQ(all, (std::vector<int64_t>{4, 1, 2}));
    return status;
  });
  for (int r : group) EXPECT_EQ(outcomes[r].code, absl::StatusCode::kOk) << outcomes[r].message;
}

TEST_P(CommunicatorTest, OverlappingGroupsOfAMeshInTurn) {
  Ranks ranks(GetParam(), 4);  // 2 x 2: rows {0, 1} {2, 3}, columns {0, 2} {1, 3}
  ranks.Run([&](Communicator& comm) {
    NoStream stream;
    const int me = comm.rank();
    const std::vector<int> row = {me / 2 * 2, me / 2 * 2 + 1}, column = {me % 2, me % 2 + 2};
    absl::Status status;
    for (int round = 0; round < 30; ++round) {
      for (int64_t count : {3, 6000}) {
        Array data(DType::kF32, count, [&](int64_t i) { return static_cast<double>((1 << me) + i % 5 + round); });
        status.Update(comm.AllReduce(stream, row, data.data(), count, DType::kF32, ReduceOp::kSum, Soon()));
        status.Update(comm.AllReduce(stream, column, data.data(), count, DType::kF32, ReduceOp::kSum, Soon()));
        EXPECT_EQ(FirstDifference(data, [&](int64_t i) { return static_cast<double>(15 + 4 * (i % 5 + round)); }), -1);
      }
    }
    return status;
  });
}

TEST_P(CommunicatorTest, HeadersThatAgree) {
  Ranks ranks(GetParam(), 3);
  ranks.Run([&](Communicator& comm) {
    const StepHeader mine{.epoch = 3, .flags = 1, .sequence = 7, .fingerprint = 0xabcdef0123456789, .step = 2};
    auto headers = comm.ExchangeHeaders(Upto(3), mine, Soon());
    if (!headers.ok()) return headers.status();
    EXPECT_EQ(*headers, std::vector<StepHeader>(3, mine));
    return AgreeOn(Upto(3), *headers);
  });
}

TEST_P(CommunicatorTest, HeadersThatDifferNameBothRanksAndLeaveTheCommunicatorUsable) {
  Ranks ranks(GetParam(), 3);
  const std::vector<Outcome> outcomes = ranks.RunOn(Upto(3), [&](Communicator& comm) {
    // Different programs: rank 1 would send other shapes.
    const StepHeader mine{.epoch = 1, .sequence = 7, .fingerprint = comm.rank() == 1 ? 0xbbu : 0xaau};
    auto headers = comm.ExchangeHeaders(Upto(3), mine, Soon());
    return headers.ok() ? AgreeOn(Upto(3), *headers) : headers.status();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kAborted);
    EXPECT_THAT(outcome.message, HasSubstr("collective mismatch rank 0 (epoch 1, command 7"));
    EXPECT_THAT(outcome.message, HasSubstr("00aa"));
    EXPECT_THAT(outcome.message, HasSubstr(" rank 1 (epoch 1, command 7"));
    EXPECT_THAT(outcome.message, HasSubstr("00bb"));
  }
  CheckAllReduce(ranks, 100, DType::kF32, ReduceOp::kSum);
}

TEST_P(CommunicatorTest, WrongArgumentsAreRefusedByNameAndHarmNothing) {
  Ranks ranks(GetParam(), 2);
  ranks.Run([&](Communicator& comm) {
    NoStream stream;
    uint8_t byte = 1;
    auto refused = [](const absl::Status& status, const char* text) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    };
    const int me = comm.rank();
    auto all_reduce = [&](std::vector<int> group, int64_t count, DType dtype, ReduceOp op) {
      return comm.AllReduce(stream, group, &byte, count, dtype, op, Soon());
    };
    refused(all_reduce({0, 1}, 1, DType::kBool, ReduceOp::kSum), "BOOL");
    refused(all_reduce({0, 1}, 1, DType::kI32, ReduceOp::kAvg), "avg of I32");
    refused(all_reduce({0, 1}, -1, DType::kU8, ReduceOp::kSum), "-1");
    refused(all_reduce({0, 2}, 1, DType::kU8, ReduceOp::kSum), "[0, 2]");
    refused(all_reduce({me, me}, 1, DType::kU8, ReduceOp::kSum), "group");
    refused(all_reduce({1 - me}, 1, DType::kU8, ReduceOp::kSum), "not in the group");
    refused(all_reduce({}, 1, DType::kU8, ReduceOp::kSum), "not in the group");
    refused(comm.Broadcast(stream, {me}, 1 - me, &byte, 1, DType::kU8, Soon()), "not in the group");
    refused(comm.AllGather(stream, {0, 1}, &byte, &byte, {1}, DType::kU8, Soon()), "counts");
    refused(comm.SendReceive(stream, 2, &byte, 1, -1, nullptr, 0, DType::kU8, Soon()), "send to 2");
    return comm.Barrier({0, 1}, Soon());
  });
}

TEST_P(CommunicatorTest, OneRankNeedsNoPeers) {
  Ranks ranks(GetParam(), 1);
  for (ReduceOp op : kOps) CheckAllReduce(ranks, 1000, DType::kBF16, op);
  ranks.Run([](Communicator& comm) { return comm.Barrier({0}, Soon()); });
  EXPECT_EQ(ranks[0].wire().bytes_sent, 0);
}

}  // namespace
}  // namespace tp::worker
