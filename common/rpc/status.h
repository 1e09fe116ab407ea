// absl::Status <-> grpc::Status: the codes are the same numbers. Example: `return ToGrpcStatus(status);`
// gRPC turns a text over about 8 KiB into RESOURCE_EXHAUSTED and loses the cause, so texts are cut to 1000 bytes.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tp {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace tp
