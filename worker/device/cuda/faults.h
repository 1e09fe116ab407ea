// Checks of data by kernels: the first element that is wrong is noted in a KernelFault. Example:
//   TP_RETURN_IF_ERROR(CheckElements("embedding", stream, fault, KernelFault::kIdOutside, ids, count, vocabulary,
//                                    OutsideOf{vocabulary}));
#pragma once

#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/launch.h"

namespace tp::worker::cuda {

// Notes the lowest position of a wrong element where nothing is noted yet. One block, so that it is the lowest.
template <class T, class Wrong>
struct NoteFirst {
  const T* elements;
  int64_t count;
  int64_t limit;
  int32_t kind;
  KernelFault* fault;
  Wrong wrong;
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t) const {
    const int64_t first = block.template Reduce<int64_t>(
        count, count, [&](int64_t i) { return wrong(elements[i]) ? i : count; }, Smaller());
    if (!block.leader() || first == count || fault->kind != KernelFault::kNone) return;
    fault->value = static_cast<int64_t>(elements[first]);
    fault->position = first;
    fault->limit = limit;
    fault->kind = kind;
  }
};

// T is an integer. The kernels that follow must bear wrong elements.
template <class T, class Wrong>
absl::Status CheckElements(const char* kernel, cudaStream_t stream, KernelFault* fault, KernelFault::Kind kind,
                           const T* elements, int64_t count, int64_t limit, const Wrong& wrong) {
  if (count == 0) return absl::OkStatus();
  return ForBlocks(kernel, stream, 1, NoteFirst<T, Wrong>{elements, count, limit, kind, fault, wrong});
}

}  // namespace tp::worker::cuda
