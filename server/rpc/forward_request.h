// The header of a forward: what the client will send, and the event for the core once it has come. Example:
//   TP_ASSIGN_OR_RETURN(PendingForward pending, ForwardFromProto(header, limits));
//   ChunkAssembler bytes(pending.sizes);  ...  ForwardRequested event = WithBytes(std::move(pending), bytes.Take());
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/events.h"
#include "server/rpc/services.h"
#include "tp/v1/coordinator.pb.h"

namespace tp::server {

struct PendingForward {
  struct Array {
    std::string input;
    int local = -1;  // index in the input's locals; -1: the full tensor
  };
  ForwardRequested event;       // without bytes
  std::vector<Array> arrays;    // in the order in which they come
  std::vector<uint64_t> sizes;  // of the arrays, in bytes
};

// INVALID_ARGUMENT with the field's path; RESOURCE_EXHAUSTED over the limit of a request's inputs. What needs the model
// is checked by the core.
absl::StatusOr<PendingForward> ForwardFromProto(const v1::ForwardHeader& header, const Limits& limits);

// `bytes` by array.
ForwardRequested WithBytes(PendingForward pending, std::vector<std::string> bytes);

}  // namespace tp::server
