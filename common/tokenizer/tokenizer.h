// Text to token ids and back. Only the coordinator uses it: no client and no worker needs a tokenizer. Example:
//   auto tokenizer = MakeByteTokenizer(256);
//   tokenizer->Encode("Hi", /*add_begin=*/true)          is {256, 72, 105}
//   auto decoder = tokenizer->NewDecoder();
//   decoder->Add(0xC3) is "";  decoder->Add(0xA9) is "é";  decoder->Finish() is ""
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tp {

// Turns tokens that come one by one into text that can be shown at once: every piece is valid UTF-8. Thread-compatible.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // The text that `id` completes; may be empty. Ids that stand for no text (begin and end tokens, unknown ones) give
  // none.
  virtual std::string Add(int64_t id) = 0;
  // What was held back, at the end of the tokens; the decoder then starts anew.
  virtual std::string Finish() = 0;
};

// Immutable, thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // The tokens of `text`. With `add_begin` the begin token comes first, where there is one.
  virtual std::vector<int64_t> Encode(std::string_view text, bool add_begin) const = 0;
  virtual std::unique_ptr<TokenDecoder> NewDecoder() const = 0;
  // The whole text of `ids`.
  std::string Decode(absl::Span<const int64_t> ids) const;
};

// Tokens 0 to 255 are bytes. The decoder holds back bytes that may still become a character of UTF-8 and gives U+FFFD
// for those that can't, one for each maximal part of a character, as the Unicode standard recommends (chapter 3,
// "U+FFFD Substitution of Maximal Subparts") and as Python's errors="replace" does.
std::unique_ptr<Tokenizer> MakeByteTokenizer(std::optional<int64_t> begin_token);

// By the name in a model's GenerationConfig: "bytes". UNIMPLEMENTED naming any other; FAILED_PRECONDITION for "", a
// model that takes token ids only.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const std::string& name, std::optional<int64_t> begin_token);

}  // namespace tp
