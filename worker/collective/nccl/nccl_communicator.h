// The Communicator over NcclHandles; nccl_backend.h says what it promises. Example:
//   auto comm = CreateNcclCommunicator(options, abort, std::move(handles));
#pragma once

#include <memory>

#include "worker/collective/communicator.h"
#include "worker/collective/nccl/abort_flag.h"
#include "worker/collective/nccl/nccl_handles.h"

namespace tp::worker {

// `handles` is connected and heeds `abort`, which Abort() sets.
std::unique_ptr<Communicator> CreateNcclCommunicator(const NcclOptions& options, std::shared_ptr<AbortFlag> abort,
                                                     std::unique_ptr<NcclHandles> handles);

}  // namespace tp::worker
