// What tests set of the fake NCCL (libtp_fake_nccl.so), over what fake_runtime.h has. It enforces NCCL's rules: where
// the real one would hang or corrupt memory it says ncclInvalidUsage, and ncclGetLastError what was wrong. Ranks are
// threads or processes; they meet at abstract unix sockets named by the unique id. Example:
//   tp_fake::SetNcclPolls(3);                                  // every call is ncclInProgress three times
//   tp_fake::FailNext("ncclAsync", ncclSystemError, 0);        // the next work of any communicator fails on its stream
//   tp_fake::FailNext("ncclAbortHang", 1, 0);                  // the next ncclCommAbort never returns
// After an asynchronous error the stream stands still until the communicator is aborted, as a kernel that waits for its
// peers does. Sums of 16-bit floats are rounded after each term.
#pragma once

#include <fake_runtime.h>
#include <nccl.h>

namespace tp_fake {

// How often a non-blocking communicator is still ncclInProgress when asked; its work reaches the stream no earlier.
// 2 unless set, here or by TP_FAKE_NCCL_POLLS.
__attribute__((visibility("default"))) void SetNcclPolls(int polls);
// Communicators that were neither destroyed nor aborted.
__attribute__((visibility("default"))) int LiveNcclComms();

}  // namespace tp_fake
