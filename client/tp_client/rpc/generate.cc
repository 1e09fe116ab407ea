// GrpcClient: generation.
#include "client/tp_client/rpc/grpc_client.h"

namespace tp::client {

absl::Status GrpcClient::Generate(const GenerateOptions& options,
                                  const std::function<bool(const GenerateChunk&)>& on_chunk) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::GenerateRequest request;
  request.set_request_id(NewRequestId());
  request.set_model(options.model);
  if (options.use_ids) {
    request.mutable_token_ids()->mutable_ids()->Add(options.token_ids.begin(), options.token_ids.end());
  } else {
    request.set_text(options.prompt);
  }
  request.set_max_new_tokens(options.max_new_tokens);
  request.set_ignore_eos(options.ignore_eos);
  v1::Sampling* sampling = request.mutable_sampling();
  sampling->set_temperature(options.temperature);
  sampling->set_top_k(options.top_k);
  sampling->set_top_p(options.top_p);
  sampling->set_seed(options.seed);
  auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    GenerateChunk chunk{std::vector<int64_t>(response.token_ids().begin(), response.token_ids().end()), response.text(),
                        response.finish_reason()};
    if (on_chunk(chunk)) continue;
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    (void)reader->Finish();
    return absl::CancelledError("stopped by the caller");
  }
  return Finish(reader->Finish());
}

}  // namespace tp::client
