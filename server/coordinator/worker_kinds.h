// Kinds of workers: those of one kind exchange tensors by the same library of the same version, and a mesh is of one
// kind. Example: "gloo" for CPUs, "nccl 2.28.9, cuda 13.0" for GPUs.
#pragma once

#include <map>
#include <string>

#include "common/tensor/dtype.h"
#include "server/coordinator/state.h"

namespace tp::server {

// What must be equal but for versions: "nccl" of "nccl 2.28.9, cuda 13.0".
std::string LibraryOf(const std::string& collectives);
// The kind that most healthy workers that do not drain are of, the first in order where several have as many; ""
// without workers.
std::string MostCommonKind(const std::map<std::string, WorkerState>& workers);
// Of submissions that name none: BF16 where a new mesh would be of GPUs, else F32.
DType DefaultComputeDType(const std::map<std::string, WorkerState>& workers);

}  // namespace tp::server
