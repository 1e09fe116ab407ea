#include "worker/rpc/blocking_queue.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

namespace tp::worker {
namespace {

TEST(BlockingQueue, KeepsOrderAcrossThreads) {
  BlockingQueue<int> queue;
  std::vector<int> got;
  std::thread reader([&] {
    while (std::optional<int> value = queue.Pop()) got.push_back(*value);
  });
  for (int i = 0; i < 100; ++i) queue.Push(i);
  queue.Close();
  reader.join();
  ASSERT_EQ(got.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(got[i], i);
}

TEST(BlockingQueue, GivesWhatWasPushedBeforeTheCloseAndNothingAfter) {
  BlockingQueue<int> queue;
  queue.Push(1);
  queue.Close();
  queue.Push(2);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

}  // namespace
}  // namespace tp::worker
