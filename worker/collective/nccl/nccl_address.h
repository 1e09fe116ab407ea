// Where a rank of an NCCL group is, as text that passes through the coordinator. Example:
//   "10.0.0.1:4000,4001 gpu=6f1c..a0/0000:01:00.0 nccl=22809 cuda=13000 id=0a1b.."
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tp::worker {

struct NcclAddress {
  std::string host;  // the host group's; without spaces
  std::string gpu;   // the machine and the GPU's PCI bus id
  int nccl = 0;      // version codes
  int cuda = 0;
  std::string id;  // of rank 0: the bytes of the ncclUniqueId
};

// "nccl 2.28.9, cuda 13.0"
std::string NcclVersionsText(const NcclAddress& address);
std::string FormatNcclAddress(const NcclAddress& address);
// INVALID_ARGUMENT with the text.
absl::StatusOr<NcclAddress> ParseNcclAddress(const std::string& text);
// FAILED_PRECONDITION naming two ranks and their versions, or the GPU that they share; INVALID_ARGUMENT where rank 0
// has no id.
absl::Status CheckNcclAddresses(const std::vector<NcclAddress>& addresses);

}  // namespace tp::worker
