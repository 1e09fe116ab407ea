#include "common/tokenizer/tokenizer.h"

namespace tp {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// One character of UTF-8 at a time. Source: table 3-7 of the Unicode standard, "Well-Formed UTF-8 Byte Sequences".
class ByteDecoder : public TokenDecoder {
 public:
  std::string Add(int64_t id) override {
    if (id < 0 || id > 255) return "";
    const int byte = static_cast<int>(id);
    std::string text;
    if (missing_ > 0) {
      if (byte >= low_ && byte <= high_) {
        held_.push_back(static_cast<char>(byte));
        low_ = 0x80;
        high_ = 0xBF;
        if (--missing_ > 0) return "";
        held_.swap(text);
        return text;
      }
      // What is held can't become a character; this byte starts anew.
      text = kReplacement;
      held_.clear();
      missing_ = 0;
    }
    return text + Start(byte);
  }

  std::string Finish() override {
    const bool incomplete = missing_ > 0;
    held_.clear();
    missing_ = 0;
    return incomplete ? kReplacement : "";
  }

 private:
  // The first byte of a character.
  std::string Start(int byte) {
    if (byte < 0x80) return std::string(1, static_cast<char>(byte));
    if (byte < 0xC2 || byte > 0xF4) return kReplacement;
    missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    // The second byte's range: no overlong forms, no surrogates, nothing over U+10FFFF.
    low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    held_.assign(1, static_cast<char>(byte));
    return "";
  }

  std::string held_;
  int missing_ = 0;  // bytes that the held character still needs
  int low_ = 0, high_ = 0;
};

class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::optional<int64_t> begin_token) : begin_token_(begin_token) {}

  std::vector<int64_t> Encode(std::string_view text, bool add_begin) const override {
    std::vector<int64_t> ids;
    ids.reserve(text.size() + 1);
    if (add_begin && begin_token_.has_value()) ids.push_back(*begin_token_);
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::unique_ptr<TokenDecoder> NewDecoder() const override { return std::make_unique<ByteDecoder>(); }

 private:
  const std::optional<int64_t> begin_token_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer(std::optional<int64_t> begin_token) {
  return std::make_unique<ByteTokenizer>(begin_token);
}

}  // namespace tp
