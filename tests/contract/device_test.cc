// Every Device of this build against the suite, and what only the CPU device promises.
#include <cstdlib>

#include "hwy/targets.h"
#include "tests/contract/device_contract.h"
#include "tests/contract/device_contract_attention.h"
#include "tests/contract/device_contract_binary.h"
#include "tests/contract/device_contract_elementwise.h"
#include "tests/contract/device_contract_index.h"
#include "tests/contract/device_contract_linear.h"
#include "tests/contract/device_contract_memory.h"
#include "tests/contract/device_contract_products.h"
#include "tests/contract/device_contract_reduce.h"
#include "tests/contract/device_contract_rows.h"
#include "worker/device/cpu/cpu_device.h"

namespace tp::testing {
namespace {

using worker::CpuDeviceOptions;
using worker::CreateCpuDevice;

// With TP_TEST_BASELINE_KERNELS the kernels run with the instruction set that every processor has.
const bool kBaseline = [] {
  const bool wanted = std::getenv("TP_TEST_BASELINE_KERNELS") != nullptr;
  if (wanted) hwy::DisableTargets(~static_cast<int64_t>(HWY_STATIC_TARGET));
  return wanted;
}();

const auto kDevices = ::testing::Values(DeviceFactory{"CpuOneThread", [] { return CreateCpuDevice({.threads = 1}); }},
                                        DeviceFactory{"CpuTwoThreads", [] { return CreateCpuDevice({.threads = 2}); }});
const auto kName = [](const ::testing::TestParamInfo<DeviceFactory>& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Devices, LinearContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Devices, AttentionContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Devices, ProductContract, kDevices, kName);

TEST(CpuDevice, SaysWhatItIs) {
  EXPECT_THAT((*CreateCpuDevice({.threads = 1}))->Describe(), ::testing::MatchesRegex("cpu \\([A-Z0-9]+, 1 thread\\)"));
  EXPECT_THAT((*CreateCpuDevice({.threads = 3}))->Describe(),
              ::testing::MatchesRegex("cpu \\([A-Z0-9]+, 3 threads\\)"));
}

TEST(CpuDevice, BaselineKernelsRunWhereAskedFor) {
  if (!kBaseline) GTEST_SKIP() << "TP_TEST_BASELINE_KERNELS is not set";
  EXPECT_EQ((*CreateCpuDevice({.threads = 1}))->Describe(),
            "cpu (" + std::string(hwy::TargetName(HWY_STATIC_TARGET)) + ", 1 thread)");
}

TEST(CpuDevice, RefusesOptionsThatMakeNoSense) {
  EXPECT_EQ(CreateCpuDevice({.threads = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuDevice({.threads = 1, .memory_limit_bytes = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CpuDevice, KeepsToItsMemoryLimit) {
  auto device = *CreateCpuDevice({.threads = 1, .memory_limit_bytes = 1000});
  auto first = device->Allocate(600);
  ASSERT_TRUE(first.ok());
  const auto second = device->Allocate(401);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()), ::testing::HasSubstr("401"));
  EXPECT_TRUE(device->Allocate(400).ok());
  first->reset();
  EXPECT_TRUE(device->Allocate(1000).ok());
  // A packed weight counts too.
  auto stream = device->CreateStream();
  const std::vector<float> weight(16 * 16, 1);
  EXPECT_EQ(device->PackWeight(*stream, ConstTensorView(DType::kF32, weight.data(), {16, 16})).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CpuDevice, BuffersMayOutliveIt) {
  auto device = *CreateCpuDevice({.threads = 1, .memory_limit_bytes = 100});
  auto buffer = *device->Allocate(100);
  device.reset();
  EXPECT_EQ(buffer->size(), 100);
}

#ifdef TP_SANITIZE
TEST(CpuDeviceDeathTest, WritesOutsideABufferStopTheProcess) {
  const auto overrun = [](int64_t at) {
    auto device = *CreateCpuDevice({.threads = 1});
    auto buffer = *device->Allocate(10);
    static_cast<unsigned char*>(buffer->data())[at] = 1;
    buffer.reset();
  };
  EXPECT_DEATH(overrun(10), "outside its buffer of 10 bytes");
  EXPECT_DEATH(overrun(-1), "outside its buffer of 10 bytes");
}
#endif

}  // namespace
}  // namespace tp::testing
