// tpctl tensor shards: which rank holds what, in numbers and as a picture; with --values the raw local blocks.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/render.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status TensorShards(const GlobalOptions& globals, const TensorShardsOptions& options) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const TensorDescription description, client->DescribeTensor(options.name));
  if (!options.values) {
    std::fputs(ShardsText(description, nullptr, globals.json()).c_str(), stdout);
    return absl::OkStatus();
  }
  int64_t bytes = 0;
  for (const TensorShard& shard : description.shards) bytes += shard.bytes;
  constexpr int64_t kMaxBytes = 64 << 20;  // as text it is many times longer
  if (bytes > kMaxBytes)
    return absl::ResourceExhaustedError(absl::StrCat("--values: ", BytesText(bytes), " are over the limit of ",
                                                     BytesText(kMaxBytes), " for printing; use tensor get --output"));
  TP_ASSIGN_OR_RETURN(const std::vector<HostTensor> values, client->GetLocalBlocks(options.name));
  std::fputs(ShardsText(description, &values, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
