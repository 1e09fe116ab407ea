// Reductions with very little memory for terms: blocks of one element a piece and slots that take turns.
#include <cstring>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "worker/collective/in_process/in_process_backend.h"

namespace tp::worker {
namespace {

class NoStream : public Stream {};

// The bits of an all_reduce of `count` elements and of a reduce_scatter into uneven blocks, on each rank.
std::vector<std::vector<float>> ReductionsOf(const CollectiveMemory& memory, int ranks, int64_t count) {
  const std::shared_ptr<InProcessHub> hub = CreateInProcessHub();
  std::vector<std::unique_ptr<CollectiveBackend>> backends;
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> addresses;
  std::vector<int> group;
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);  // the second is empty, the first has the rest
  for (int rank = 0; rank < ranks; ++rank) {
    backends.push_back(CreateInProcessBackend(hub, memory));
    connectors.push_back(*backends.back()->Listen(rank, ranks));
    addresses.push_back(connectors.back()->Address());
    group.push_back(rank);
    if (rank > 1) counts[static_cast<size_t>(rank)] = rank;
    counts[0] = count;
  }
  for (int rank = 1; rank < ranks; ++rank) counts[0] -= counts[static_cast<size_t>(rank)];
  std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Time deadline = absl::Now() + absl::Seconds(60);
      auto communicator = connectors[rank]->Connect(addresses, deadline);
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      NoStream stream;
      std::vector<float> data(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {  // large terms cancel, so the order of the additions matters
        data[i] = static_cast<float>((i * 31 + rank * 17) % 1009) / 7.0f + (rank % 2 == 0 ? 3e6f : -3e6f);
      }
      std::vector<float>& result = results[rank];
      result.resize(static_cast<size_t>(counts[rank]));
      ASSERT_TRUE(
          (*communicator)
              ->ReduceScatter(stream, group, data.data(), counts, result.data(), DType::kF32, ReduceOp::kSum, deadline)
              .ok());
      ASSERT_TRUE(
          (*communicator)->AllReduce(stream, group, data.data(), count, DType::kF32, ReduceOp::kSum, deadline).ok());
      result.insert(result.end(), data.begin(), data.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(Pieces, ResultsHaveTheSameBitsWhateverTheMemory) {
  for (const int ranks : {1, 2, 3, 5}) {
    const int64_t count = 5003;  // above the size from which all_reduce works by blocks
    const std::vector<std::vector<float>> want = ReductionsOf({}, ranks, count);
    for (const CollectiveMemory& memory : {CollectiveMemory{1, 1}, CollectiveMemory{100, 300},
                                           CollectiveMemory{64, 1 << 20}, CollectiveMemory{1 << 20, 900}}) {
      const std::vector<std::vector<float>> got = ReductionsOf(memory, ranks, count);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(got[rank].size(), want[rank].size());
        EXPECT_EQ(std::memcmp(got[rank].data(), want[rank].data(), want[rank].size() * sizeof(float)), 0)
            << "rank " << rank << " of " << ranks << ", pieces of " << memory.piece_bytes << " in "
            << memory.heap_bytes;
      }
    }
  }
}

}  // namespace
}  // namespace tp::worker
