// Submits the demo's MLP, runs it once, and deletes it. Usage: example HOST:PORT deploy/demo/mlp.textproto
#include <cstdio>

#include "client/tp_client/client.h"
#include "client/tp_client/submission_file.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: example HOST:PORT SUBMISSION\n");
    return 2;
  }
  const auto client = tp::client::Connect({.server = argv[1], .timeout = absl::Seconds(60)});
  const absl::StatusOr<std::string> submission = tp::client::ReadSubmissionFile(argv[2]);
  absl::Status status = submission.status();
  if (status.ok()) status = client->Submit(*submission, {}).status();
  if (status.ok()) {
    const auto answer = client->Forward("mlp", {{"x", tp::MakeHostTensor<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8})}});
    status = answer.status();
    if (status.ok()) {
      for (int i = 0; i < 8; ++i)
        std::printf("%.3f%c", answer->outputs[0].tensor.data<float>()[i], i == 7 ? '\n' : ' ');
    }
    status.Update(client->DeleteModel("mlp"));
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
