// tpctl generate: streams text as it comes; with JSON, one object at the end.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/inputs.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"
#include "common/checkpoint/json.h"

namespace tp::client {

absl::Status Generate(const GlobalOptions& globals, const GenerateCommandOptions& options) {
  GenerateOptions request = options.generate;
  if (options.has_prompt_ids) {
    request.use_ids = true;
    absl::StatusOr<std::vector<int64_t>> ids = ParseIntegers(options.prompt_ids);
    if (!ids.ok()) return Annotate(ids.status(), "--prompt-ids");
    request.token_ids = *std::move(ids);
  }
  if (!QuoteJson(request.prompt).ok())
    return absl::InvalidArgumentError("--prompt is not UTF-8; its bytes can be given as --prompt-ids");
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  GenerateSummary summary;
  const bool json = globals.json();
  const absl::Status status = client->Generate(request, [&](const GenerateChunk& chunk) {
    summary.text += chunk.text;
    summary.token_ids.insert(summary.token_ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    if (!chunk.finish_reason.empty()) summary.finish_reason = chunk.finish_reason;
    if (!json) {
      if (!chunk.text.empty() || !request.use_ids) {
        std::fputs(chunk.text.c_str(), stdout);
      } else {
        for (int64_t id : chunk.token_ids) std::fputs(absl::StrCat(id, " ").c_str(), stdout);
      }
      std::fflush(stdout);
    }
    return true;
  });
  if (!json && (status.ok() || !summary.token_ids.empty())) std::fputs("\n", stdout);
  TP_RETURN_IF_ERROR(status);
  if (json) std::fputs(GenerateJson(summary).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
