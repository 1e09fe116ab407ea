// The device check's parts, each a run of its own so that one that hangs or crashes costs no other:
//   tp_device_check probe    what GPU there is; exit 77 and one line where there is none
//   tp_device_check suite    the suite of every Device, and kernels against float64
//   tp_device_check nccl | demo | short (a few of all, for compute-sanitizer) | measure
// with --rows FILE (rows are appended), --tree DIR (of the sources), --small (sizes for fakes,
// and a few tests).
#include <cstdio>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/device/check.h"
#include "tests/device/measure.h"

namespace tp::testing {
namespace {

constexpr int kNoGpu = 77;

// A row for each test.
class Reporter : public ::testing::EmptyTestEventListener {
 public:
  explicit Reporter(std::string part) : part_(std::move(part)) {}
  void OnTestEnd(const ::testing::TestInfo& info) override {
    const ::testing::TestResult& result = *info.result();
    Report({part_, std::string(info.test_suite_name()) + "." + info.name(),
            result.Passed()    ? "passed"
            : result.Skipped() ? "skipped"
                               : "failed",
            static_cast<double>(result.elapsed_time()) / 1000, "s", 0, ""});
  }

 private:
  const std::string part_;
};

// The tests of a part, or a few of them; "" for one that is none.
std::string FilterOf(const std::string& part, bool small) {
  if (part == "suite") return small ? "Gpu/KernelSweep.Reductions*:Gpu/DeviceContract.*Rotary*" : "Gpu/*";
  if (part == "nccl") return small ? "NcclLibrary.*" : "Nccl*";
  if (part == "demo") return small ? "DemoShort.*" : "Demo/*";
  if (part == "short") {
    return small ? "NcclLibrary.*"
                 : "*DeviceContract.*Reduce*:*DeviceContract.*Rotary*:*DeviceContract.*TopK*:"
                   "*AttentionContract.OtherPages*:*AttentionContract.LargeScores*:*ProductContract.MatMulBroadcasts*:"
                   "NcclLibrary.*:DemoShort.*";
  }
  return "";
}

int Probe() {
  const auto device = OpenGpu();
  if (device.ok()) {
    std::printf("%s\n", (*device)->Describe().c_str());
    return 0;
  }
  std::printf("no GPU: %s\n", std::string(device.status().message()).c_str());
  return device.status().code() == absl::StatusCode::kFailedPrecondition ? kNoGpu : 1;
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  std::string part;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--small") {
      Options().small = true;
    } else if ((argument == "--rows" || argument == "--tree") && i + 1 < argc) {
      (argument == "--rows" ? Options().rows : Options().tree) = argv[++i];
    } else if (part.empty() && argument.rfind("-", 0) != 0) {
      part = argument;
    } else {
      part.clear();
      break;
    }
  }
  if (part != "probe" && part != "measure" && FilterOf(part, false).empty()) {
    std::fprintf(stderr,
                 "usage: tp_device_check probe|suite|nccl|demo|short|measure [--rows FILE] [--tree DIR] [--small]\n");
    return 2;
  }
  const int probed = Probe();
  if (part == "probe" || probed != 0) return probed;
  if (part == "measure") return Measure() ? 0 : 1;
  if (::testing::GTEST_FLAG(filter) == "*") ::testing::GTEST_FLAG(filter) = FilterOf(part, Options().small);
  ::testing::UnitTest::GetInstance()->listeners().Append(new Reporter(part));
  const int code = RUN_ALL_TESTS();
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 0) return code;
  std::fprintf(stderr, "no test is named so\n");
  return 1;
}

}  // namespace
}  // namespace tp::testing

int main(int argc, char** argv) { return tp::testing::Main(argc, argv); }
