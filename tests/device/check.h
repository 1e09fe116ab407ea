// What the parts of the device check share: its options, the GPU, the rows that it reports. Example:
//   TP_ASSIGN_OR_RETURN(auto device, OpenGpu());
//   Rows().Add({"measure", "device copy", "measured", 4100, "GB/s"});
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/collective/communicator.h"
#include "worker/device/cuda/cuda_device.h"

namespace tp::testing {

struct CheckOptions {
  std::string tree = ".";  // the root of the sources, with the demo model
  std::string rows;        // file that rows are appended to; "" = none
  bool small = false;      // sizes for the fakes of CUDA's libraries
};
// Set by main before anything else.
CheckOptions& Options();

absl::StatusOr<std::unique_ptr<worker::CudaDevice>> OpenGpu(bool tf32 = false);
// NCCL's collectives on the device, over a host group.
absl::StatusOr<std::unique_ptr<worker::CollectiveBackend>> OpenNccl(worker::Device& device,
                                                                    std::unique_ptr<worker::CollectiveBackend> host);

// One thing that was checked or measured.
struct Row {
  std::string part;    // "suite"
  std::string name;    // of the test or the measurement
  std::string result;  // "passed", "failed", "skipped", "measured"
  double number = 0;
  std::string unit;     // "s", "GB/s", "TFLOP/s", "us"
  double share = 0;     // of the ceiling; 0: has none
  std::string ceiling;  // its name
};
// Prints the row, and appends it to the file as a line with tabs between its fields.
void Report(const Row& row);

}  // namespace tp::testing
