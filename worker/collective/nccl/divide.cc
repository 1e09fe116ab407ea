#include "worker/collective/nccl/divide.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/launch.h"

namespace tp::worker {
namespace {

template <class T>
struct DivideBy {
  T* data;
  T divisor;
  TP_HD void operator()(int64_t i) const { data[i] /= divisor; }
};

}  // namespace

absl::Status Divide(cudaStream_t stream, DType dtype, void* data, int64_t count, int divisor) {
  if (dtype == DType::kF32) {
    return cuda::ForEach("divide", stream, count,
                         DivideBy<float>{static_cast<float*>(data), static_cast<float>(divisor)});
  }
  if (dtype == DType::kF64) {
    return cuda::ForEach("divide", stream, count,
                         DivideBy<double>{static_cast<double*>(data), static_cast<double>(divisor)});
  }
  return absl::UnimplementedError(absl::StrCat("divide of ", std::string(DTypeName(dtype))));
}

}  // namespace tp::worker
