#include "worker/runtime/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/forwarding_device.h"
#include "worker/device/cpu/cpu_device.h"

namespace tp::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const char* const kArena = reinterpret_cast<const char*>(0x1000);
MemoryRange At(int64_t offset, int64_t bytes) { return {kArena + offset, bytes}; }

TEST(Conflicts, OnlyWhereOneWritesWhatTheOtherTouches) {
  const MemoryUse use{{At(0, 64)}, {At(64, 64)}};
  EXPECT_FALSE(Conflicts(use, {{At(0, 64)}, {At(128, 64)}}));  // both read
  EXPECT_TRUE(Conflicts(use, {{At(100, 4)}, {At(128, 64)}}));  // it reads what is written
  EXPECT_TRUE(Conflicts(use, {{}, {At(63, 1)}}));              // it writes what is read
  EXPECT_TRUE(Conflicts(use, {{}, {At(127, 4)}}));             // both write
  EXPECT_FALSE(Conflicts(use, {{At(128, 4)}, {At(132, 4)}}));
  EXPECT_FALSE(Conflicts(use, {}));
}

// Notes what is recorded and waited for; events are named e0, e1, .. in the order of their making.
class NotingDevice : public tp::testing::ForwardingDevice {
 public:
  struct Event : DeviceEvent {
    explicit Event(int n) : name("e" + std::to_string(n)) {}
    const std::string name;
  };
  NotingDevice() : ForwardingDevice(*CreateCpuDevice({.threads = 1})), main(CreateStream()) {}
  std::unique_ptr<DeviceEvent> CreateEvent() override { return std::make_unique<Event>(made++); }
  absl::Status RecordEvent(Stream& stream, DeviceEvent& event) override { return Note(stream, "record ", event); }
  absl::Status WaitEvent(Stream& stream, DeviceEvent& event) override { return Note(stream, "wait ", event); }

  int made = 0;
  std::unique_ptr<Stream> main;
  std::vector<std::string> notes;

 private:
  absl::Status Note(Stream& stream, const char* what, DeviceEvent& event) {
    notes.push_back((&stream == main.get() ? "main " : "side ") + (what + static_cast<Event&>(event).name));
    return absl::OkStatus();
  }
};

TEST(Overlap, TheMainStreamWaitsOnlyForWhatItTouches) {
  NotingDevice device;
  const auto side = CollectiveStream::Create(device);
  ASSERT_NE(side, nullptr);
  Overlap overlap(device, *device.main, side.get());
  ASSERT_TRUE(overlap.active());
  EXPECT_EQ(*overlap.Fork(), &side->stream());
  ASSERT_TRUE(overlap.Forked({{At(0, 64)}, {At(64, 64)}}).ok());
  ASSERT_TRUE(overlap.Fork().ok());
  ASSERT_TRUE(overlap.Forked({{At(128, 64)}, {At(192, 64)}}).ok());
  EXPECT_THAT(device.notes, ElementsAre("main record e0", "side wait e0", "side record e0", "main record e1",
                                        "side wait e1", "side record e1"));
  device.notes.clear();
  ASSERT_TRUE(overlap.Before({{At(256, 64)}, {At(320, 64)}}).ok());
  EXPECT_THAT(device.notes, IsEmpty());
  // Reuse of what the first collective reads: the second goes on.
  ASSERT_TRUE(overlap.Before({{}, {At(0, 8)}}).ok());
  EXPECT_THAT(device.notes, ElementsAre("main wait e0"));
  device.notes.clear();
  ASSERT_TRUE(overlap.Before({{}, {At(0, 8)}}).ok());
  EXPECT_THAT(device.notes, IsEmpty());
  ASSERT_TRUE(overlap.Join().ok());
  EXPECT_THAT(device.notes, ElementsAre("main wait e1"));
  device.notes.clear();
  ASSERT_TRUE(overlap.Join().ok());
  EXPECT_THAT(device.notes, IsEmpty());
}

TEST(Overlap, AWaitForALaterOneCoversTheEarlier) {
  NotingDevice device;
  const auto side = CollectiveStream::Create(device);
  Overlap overlap(device, *device.main, side.get());
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(overlap.Fork().ok());
    ASSERT_TRUE(overlap.Forked({{}, {At(64 * i, 64)}}).ok());
  }
  device.notes.clear();
  ASSERT_TRUE(overlap.Before({{At(64, 8)}, {}}).ok());
  EXPECT_THAT(device.notes, ElementsAre("main wait e1"));
  device.notes.clear();
  ASSERT_TRUE(overlap.Before({{At(0, 8)}, {}}).ok());  // the first is done with the second
  EXPECT_THAT(device.notes, IsEmpty());
  ASSERT_TRUE(overlap.Join().ok());
  EXPECT_THAT(device.notes, ElementsAre("main wait e2"));
}

TEST(Overlap, InlineStreamsHaveNoSecondOne) {
  const auto device = *CreateCpuDevice({.threads = 1});
  EXPECT_EQ(CollectiveStream::Create(*device), nullptr);
  const auto stream = device->CreateStream();
  Overlap overlap(*device, *stream, nullptr);
  EXPECT_FALSE(overlap.active());
  EXPECT_TRUE(overlap.Before({{}, {At(0, 8)}}).ok());
  EXPECT_TRUE(overlap.Join().ok());
}

}  // namespace
}  // namespace tp::worker
