#include "common/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

#define REPLACEMENT "\xEF\xBF\xBD"

std::vector<int64_t> BytesOf(std::string_view text) {
  std::vector<int64_t> ids;
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(ByteTokenizer, EncodesBytesAfterTheBeginToken) {
  auto tokenizer = MakeByteTokenizer(256);
  EXPECT_THAT(tokenizer->Encode("Hi", true), ElementsAre(256, 72, 105));
  EXPECT_THAT(tokenizer->Encode("Hi", false), ElementsAre(72, 105));
  EXPECT_THAT(tokenizer->Encode("", true), ElementsAre(256));
  EXPECT_THAT(tokenizer->Encode("\xC3\xA9", false), ElementsAre(0xC3, 0xA9));
  EXPECT_THAT(MakeByteTokenizer(std::nullopt)->Encode("a", true), ElementsAre(97));
}

TEST(ByteTokenizer, HoldsBackIncompleteCharacters) {
  auto decoder = MakeByteTokenizer(256)->NewDecoder();
  EXPECT_EQ(decoder->Add('a'), "a");
  // U+1F600 in four bytes.
  EXPECT_EQ(decoder->Add(0xF0), "");
  EXPECT_EQ(decoder->Add(0x9F), "");
  EXPECT_EQ(decoder->Add(0x98), "");
  EXPECT_EQ(decoder->Add(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder->Finish(), "");
}

TEST(ByteTokenizer, IdsThatAreNoBytesGiveNoText) {
  auto tokenizer = MakeByteTokenizer(256);
  EXPECT_EQ(tokenizer->Decode({256, 'o', 300, 'k', -1, 1LL << 40}), "ok");
  EXPECT_EQ(tokenizer->Decode({0xC3, 256, 0xA9}), "\xC3\xA9");
  EXPECT_EQ(tokenizer->Decode({}), "");
}

TEST(ByteTokenizer, FinishStartsAnew) {
  auto decoder = MakeByteTokenizer(256)->NewDecoder();
  EXPECT_EQ(decoder->Add(0xE2), "");
  EXPECT_EQ(decoder->Finish(), REPLACEMENT);
  EXPECT_EQ(decoder->Finish(), "");
  EXPECT_EQ(decoder->Add('x'), "x");
}

// The right texts are those of Python's bytes.decode(errors="replace").
struct BrokenText {
  std::string name;
  std::string bytes;
  std::string text;
};
class ByteTokenizerReplacement : public ::testing::TestWithParam<BrokenText> {};

TEST_P(ByteTokenizerReplacement, IsOneForEachMaximalPart) {
  EXPECT_EQ(MakeByteTokenizer(256)->Decode(BytesOf(GetParam().bytes)), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ByteTokenizerReplacement,
    ::testing::Values(BrokenText{"CutTwo", "a\xC3", "a" REPLACEMENT},
                      BrokenText{"Surrogate", "\xED\xA0\x80", REPLACEMENT REPLACEMENT REPLACEMENT},
                      BrokenText{"Overlong", "\xC0\xAF", REPLACEMENT REPLACEMENT},
                      BrokenText{"OverlongThree", "\xE0\x80\xAF", REPLACEMENT REPLACEMENT REPLACEMENT},
                      BrokenText{"TooLarge", "\xF4\x90\x80\x80", REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT},
                      BrokenText{"CutFour", "\xF0\x9F\x98x", REPLACEMENT "x"},
                      BrokenText{"LoneContinuation", "\x80z", REPLACEMENT "z"},
                      BrokenText{"NewLead", "\xE2\x82\xE2\x82\xAC", REPLACEMENT "\xE2\x82\xAC"},
                      BrokenText{"Never", "\xFF\xFE", REPLACEMENT REPLACEMENT}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(MakeTokenizer, KnowsBytesOnly) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> bytes = MakeTokenizer("bytes", 256);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT((*bytes)->Encode("a", true), ElementsAre(256, 97));
  absl::Status unknown = MakeTokenizer("sentencepiece", 1).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("sentencepiece"));
  EXPECT_EQ(MakeTokenizer("", 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tp
