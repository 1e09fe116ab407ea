#include "common/tokenizer/tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tp {

std::string Tokenizer::Decode(absl::Span<const int64_t> ids) const {
  std::unique_ptr<TokenDecoder> decoder = NewDecoder();
  std::string text;
  for (int64_t id : ids) text += decoder->Add(id);
  return text + decoder->Finish();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& name, std::optional<int64_t> begin_token) {
  if (name == "bytes") return MakeByteTokenizer(begin_token);
  if (name.empty()) {
    return absl::FailedPreconditionError("the model has no tokenizer: it takes token ids, not text");
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer \"", name, "\" is not built; known is \"bytes\""));
}

}  // namespace tp
