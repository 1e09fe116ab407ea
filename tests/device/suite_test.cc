// The suite that every Device passes, and the sweep of kernels, on the GPU.
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
#include "tests/device/check.h"
#include "tests/device/kernel_sweep.h"

namespace tp::testing {
namespace {

const auto kDevices = ::testing::Values(DeviceFactory{"Cuda", [] { return OpenGpu(); }});
const auto kName = [](const ::testing::TestParamInfo<DeviceFactory>& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Gpu, LinearContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Gpu, ProductContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Gpu, KernelSweep, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionSweep, kDevices, kName);

}  // namespace
}  // namespace tp::testing
