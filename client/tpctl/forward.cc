// tpctl forward: runs a model once.
#include <cstdio>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/forward_render.h"
#include "client/tpctl/inputs.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"
#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"

namespace tp::client {
namespace {

absl::Status WriteOutputs(const std::vector<NamedTensor>& outputs, const std::string& path) {
  if (absl::EndsWith(path, ".safetensors")) {
    std::map<std::string, HostTensor> tensors;
    for (const NamedTensor& output : outputs) tensors[output.name] = output.tensor;
    return WriteSafetensors(path, tensors);
  }
  if (outputs.size() != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", outputs.size(), " outputs: --output needs a .safetensors file"));
  return WriteNpy(path, outputs[0].tensor);
}

// Each rank's block under OUTPUT.rankN.
absl::Status WriteShards(const std::vector<OutputShards>& outputs, const std::string& path) {
  std::map<std::string, HostTensor> tensors;
  for (const OutputShards& output : outputs)
    for (const OutputShard& shard : output.shards)
      tensors[absl::StrCat(output.name, ".rank", shard.rank)] = shard.tensor;
  return WriteSafetensors(path, tensors);
}

}  // namespace

absl::Status Forward(const GlobalOptions& globals, const ForwardOptions& options) {
  const bool shards = options.output_form == "shards", safetensors = absl::EndsWith(options.output, ".safetensors");
  if (!options.output.empty() && !absl::EndsWith(options.output, ".npy") && !safetensors)
    return absl::InvalidArgumentError(absl::StrCat("--output ", options.output, " is neither .npy nor .safetensors"));
  if (!options.output.empty() && shards && !safetensors)
    return absl::InvalidArgumentError(absl::StrCat("--output ", options.output, ": shards need a .safetensors file"));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(ModelDescription model, client->GetModel(options.model, false));
  ForwardRequest request{.model = options.model, .output_shards = shards};
  TP_ASSIGN_OR_RETURN(request.inputs,
                      ParseForwardInputs({options.inputs, options.input_shards, options.input_placements}, model.inputs,
                                         model.summary.mesh));
  TP_ASSIGN_OR_RETURN(ForwardResult result, client->Forward(request));
  if (!options.output.empty())
    TP_RETURN_IF_ERROR(shards ? WriteShards(result.output_shards, options.output)
                              : WriteOutputs(result.outputs, options.output));
  std::fputs((shards ? OutputShardsText(result, globals.json()) : ForwardText(result, globals.json())).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
