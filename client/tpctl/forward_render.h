// What `tpctl forward --output-form shards` prints: who holds what of each output. Pure.
#pragma once

#include <string>

#include "client/tp_client/client.h"

namespace tp::client {

std::string OutputShardsText(const ForwardResult& result, bool json);

}  // namespace tp::client
