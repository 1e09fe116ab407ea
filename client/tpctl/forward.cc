// tpctl forward: runs a model once.
#include <cstdio>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
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

}  // namespace

absl::Status Forward(const GlobalOptions& globals, const ForwardOptions& options) {
  if (options.output_form != "full") return absl::UnimplementedError("--output-form shards is not built yet");
  if (!options.output.empty() && !absl::EndsWith(options.output, ".npy") &&
      !absl::EndsWith(options.output, ".safetensors"))
    return absl::InvalidArgumentError(absl::StrCat("--output ", options.output, " is neither .npy nor .safetensors"));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(ModelDescription model, client->GetModel(options.model, false));
  TP_ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, ParseInputs(options.inputs, model.inputs));
  TP_ASSIGN_OR_RETURN(ForwardResult result, client->Forward(options.model, inputs));
  if (!options.output.empty()) TP_RETURN_IF_ERROR(WriteOutputs(result.outputs, options.output));
  std::fputs(ForwardText(result, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
