#include "server/scheduler/decode_composer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <random>
#include <set>

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

NewSequence Make(uint64_t id, size_t prompt, int new_tokens) {
  NewSequence sequence;
  sequence.id = id;
  sequence.prompt.resize(prompt);
  std::iota(sequence.prompt.begin(), sequence.prompt.end(), 100);
  sequence.max_new_tokens = new_tokens;
  return sequence;
}

ComposerOptions Options() {
  ComposerOptions options;
  options.model = "m";
  options.cache_pages = 100;
  return options;
}

DecodeResult Tokens(std::vector<SequenceTokens> sequences) {
  DecodeResult result;
  result.sequences = std::move(sequences);
  return result;
}

TEST(DecodeComposerTest, OneSequenceIsDrivenToItsEndWithTwoInFlightAndGrowingSteps) {
  DecodeComposer composer(Options());
  composer.Add(Make(7, 3, 6));
  auto first = composer.Next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->model, "m");
  EXPECT_EQ(first->steps, 1);
  ASSERT_THAT(first->joins, SizeIs(1));
  EXPECT_EQ(first->joins[0].sequence_id, 7u);
  EXPECT_EQ(first->joins[0].max_new_tokens, 6);
  ASSERT_THAT(first->pieces, SizeIs(1));
  EXPECT_THAT(first->pieces[0].token_ids, ElementsAre(100, 101, 102));
  EXPECT_TRUE(first->pieces[0].last);
  auto second = composer.Next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->steps, 2);
  EXPECT_THAT(second->joins, IsEmpty());
  EXPECT_FALSE(composer.Next().has_value());  // two are in flight
  EXPECT_THAT(composer.Finish(Tokens({{7, {1}, ""}})), ElementsAre(SequenceTokens{7, {1}, ""}));
  auto third = composer.Next();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->steps, 3);  // not 4: six tokens in all
  composer.Finish(Tokens({{7, {2, 3}, ""}}));
  EXPECT_FALSE(composer.Next().has_value());  // nothing is left to ask for
  composer.Finish(Tokens({{7, {4, 5, 6}, "length"}}));
  EXPECT_FALSE(composer.Next().has_value());
  EXPECT_EQ(composer.reserved_pages(), 0);
  EXPECT_EQ(composer.admitted(), 0);
}

TEST(DecodeComposerTest, PiecesShareOneCommandUpToTheLimit) {
  ComposerOptions options = Options();
  options.prefill_tokens = 10;
  DecodeComposer composer(options);
  composer.Add(Make(1, 4, 2));
  composer.Add(Make(2, 15, 2));
  composer.Add(Make(3, 2, 2));
  auto first = composer.Next();
  ASSERT_THAT(first->pieces, SizeIs(2));
  EXPECT_THAT(first->pieces[0].token_ids, SizeIs(4));
  EXPECT_TRUE(first->pieces[0].last);
  EXPECT_THAT(first->pieces[1].token_ids, SizeIs(6));
  EXPECT_FALSE(first->pieces[1].last);
  EXPECT_THAT(first->joins, SizeIs(2));
  auto second = composer.Next();
  ASSERT_THAT(second->pieces, SizeIs(2));
  EXPECT_EQ(second->steps, 1);
  EXPECT_THAT(second->pieces[0].token_ids, SizeIs(9));
  EXPECT_EQ(second->pieces[0].token_ids[0], 106);
  EXPECT_TRUE(second->pieces[0].last);
  EXPECT_EQ(second->pieces[1].sequence_id, 3u);
  EXPECT_THAT(second->pieces[1].token_ids, SizeIs(1));
  EXPECT_FALSE(second->pieces[1].last);
}

TEST(DecodeComposerTest, SequenceThatJoinsInTheMiddleGetsItsFirstTokenInTheNextCommand) {
  DecodeComposer composer(Options());
  composer.Add(Make(1, 2, 100));
  composer.Next();
  composer.Next();
  composer.Add(Make(2, 2, 100));
  EXPECT_FALSE(composer.Next().has_value());
  composer.Finish(Tokens({{1, {5}, ""}}));
  auto third = composer.Next();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->steps, 1);
  ASSERT_THAT(third->pieces, SizeIs(1));
  EXPECT_EQ(third->pieces[0].sequence_id, 2u);
}

TEST(DecodeComposerTest, CancelledSequenceLeavesInTheNextCommandAndItsLateTokensAreDropped) {
  DecodeComposer composer(Options());
  composer.Add(Make(1, 2, 100));
  composer.Add(Make(2, 2, 100));
  composer.Next();
  composer.Next();
  composer.Remove(1);
  EXPECT_EQ(composer.reserved_pages(), 14);  // 7 each: the pages are in use until it leaves
  EXPECT_THAT(composer.Finish(Tokens({{1, {5}, ""}, {2, {6}, ""}})), ElementsAre(SequenceTokens{2, {6}, ""}));
  auto third = composer.Next();
  ASSERT_TRUE(third.has_value());
  EXPECT_THAT(third->leaves, ElementsAre(1));
  EXPECT_EQ(composer.reserved_pages(), 7);
}

TEST(DecodeComposerTest, LastSequenceThatIsCancelledStillLeaves) {
  DecodeComposer composer(Options());
  composer.Add(Make(1, 2, 100));
  composer.Next();
  composer.Remove(1);
  auto second = composer.Next();
  ASSERT_TRUE(second.has_value());
  EXPECT_THAT(second->leaves, ElementsAre(1));
  composer.Finish(Tokens({{1, {5}, ""}}));
  composer.Finish(Tokens({}));
  EXPECT_FALSE(composer.Next().has_value());
}

TEST(DecodeComposerTest, SequenceThatWaitsAndIsCancelledIsNeverSent) {
  DecodeComposer composer(Options());
  composer.Add(Make(1, 2, 4));
  composer.Remove(1);
  EXPECT_FALSE(composer.Next().has_value());
}

TEST(DecodeComposerTest, PagesLimitAdmissionFirstInFirstOut) {
  ComposerOptions options = Options();
  options.cache_pages = 4;
  DecodeComposer composer(options);
  EXPECT_EQ(DecodeComposer::PagesFor(10, 6), 1);
  EXPECT_EQ(DecodeComposer::PagesFor(10, 7), 2);
  EXPECT_FALSE(composer.CanEverFit(Make(9, 10, 55)));
  EXPECT_TRUE(composer.CanEverFit(Make(9, 10, 54)));
  composer.Add(Make(1, 10, 30));  // 3 pages
  composer.Add(Make(2, 10, 10));  // 2 pages: must wait
  composer.Add(Make(3, 10, 6));   // 1 page: would fit, but does not overtake
  auto first = composer.Next();
  EXPECT_THAT(first->joins, SizeIs(1));
  auto second = composer.Next();
  EXPECT_EQ(second->steps, 1);  // others wait
  EXPECT_THAT(second->joins, IsEmpty());
  composer.Finish(Tokens({{1, {0}, "stop"}}));
  composer.Finish(Tokens({}));
  auto third = composer.Next();
  ASSERT_TRUE(third.has_value());
  EXPECT_THAT(third->joins, SizeIs(2));
  EXPECT_EQ(composer.reserved_pages(), 3);
}

TEST(DecodeComposerTest, SequencesLimitAdmission) {
  ComposerOptions options = Options();
  options.max_sequences = 1;
  DecodeComposer composer(options);
  composer.Add(Make(1, 1, 1));
  composer.Add(Make(2, 1, 1));
  EXPECT_THAT(composer.Next()->joins, SizeIs(1));
  EXPECT_FALSE(composer.Next().has_value());
  composer.Finish(Tokens({{1, {3}, "length"}}));
  EXPECT_THAT(composer.Next()->joins, SizeIs(1));
}

TEST(DecodeComposerTest, FailedCommandEndsWhatHasJoinedAndKeepsWhatWaits) {
  ComposerOptions options = Options();
  options.max_sequences = 1;
  DecodeComposer composer(options);
  composer.Add(Make(1, 1, 9));
  composer.Add(Make(2, 1, 9));
  composer.Next();
  EXPECT_THAT(composer.Fail(), ElementsAre(1));
  auto next = composer.Next();
  EXPECT_THAT(next->leaves, ElementsAre(1));
  ASSERT_THAT(next->joins, SizeIs(1));
  EXPECT_EQ(next->joins[0].sequence_id, 2u);
  composer.Add(Make(3, 1, 9));
  EXPECT_THAT(composer.Clear(), UnorderedElementsAre(2, 3));
  EXPECT_EQ(composer.in_flight(), 0);
  EXPECT_EQ(composer.reserved_pages(), 0);
}

// Against a worker that runs commands in order: every sequence gets exactly its tokens, pages never pass the cache.
TEST(DecodeComposerTest, RandomTrafficGivesEverySequenceItsTokens) {
  const char* given = std::getenv("TP_TEST_SEED");
  const uint32_t seed = given == nullptr ? 20240601u : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  ComposerOptions options = Options();
  options.cache_pages = 12;
  options.prefill_tokens = 20;
  options.max_sequences = 5;
  DecodeComposer composer(options);
  struct Running {
    int limit = 0, given = 0, prompt = 0;
    bool ready = false;
  };
  std::map<uint64_t, Running> worker;
  std::map<uint64_t, int> wanted, got;
  std::map<uint64_t, int> lengths, prompts;
  std::set<uint64_t> cancelled;
  std::deque<Decode> flying;
  uint64_t last = 0;
  for (int turn = 0; turn < 3000 || !flying.empty() || composer.waiting() + composer.admitted() > 0; ++turn) {
    ASSERT_LT(turn, 100000);  // it comes to an end
    const bool more = turn < 3000;
    if (more && below(6) == 0) {
      NewSequence sequence = Make(++last, 1 + below(50), 1 + below(60));
      wanted[last] = sequence.max_new_tokens;
      prompts[last] = static_cast<int>(sequence.prompt.size());
      composer.Add(std::move(sequence));
    }
    if (more && last > 0 && below(40) == 0) {
      const uint64_t id = 1 + static_cast<uint64_t>(below(static_cast<int>(last)));
      if (got[id] < wanted[id]) cancelled.insert(id);
      composer.Remove(id);
    }
    while (auto decode = composer.Next()) flying.push_back(*std::move(decode));
    ASSERT_LE(flying.size(), 2u);
    if (flying.empty()) continue;
    const Decode decode = std::move(flying.front());
    flying.pop_front();
    ASSERT_GE(decode.steps, 1);
    ASSERT_LE(decode.steps, 8);
    for (const uint64_t id : decode.leaves) worker.erase(id);
    for (const JoinSequence& join : decode.joins) worker[join.sequence_id] = {join.max_new_tokens, 0, 0, false};
    int pieces = 0;
    for (const PrefillPiece& piece : decode.pieces) {
      pieces += static_cast<int>(piece.token_ids.size());
      ASSERT_TRUE(worker.count(piece.sequence_id) != 0);
      worker[piece.sequence_id].prompt += static_cast<int>(piece.token_ids.size());
      worker[piece.sequence_id].ready = piece.last;
      if (piece.last) ASSERT_EQ(worker[piece.sequence_id].prompt, prompts[piece.sequence_id]);
    }
    ASSERT_LE(pieces, options.prefill_tokens);
    int64_t pages = 0;
    for (const auto& [id, running] : worker) pages += DecodeComposer::PagesFor(prompts[id], running.limit);
    ASSERT_LE(pages, options.cache_pages);
    ASSERT_LE(worker.size(), 5u);
    DecodeResult result;
    for (auto it = worker.begin(); it != worker.end();) {
      Running& running = it->second;
      SequenceTokens tokens;
      tokens.sequence_id = it->first;
      for (int step = 0; running.ready && step < decode.steps && running.given < running.limit; ++step) {
        tokens.token_ids.push_back(running.given++);
      }
      if (running.given == running.limit) tokens.finish_reason = "length";
      if (running.ready) result.sequences.push_back(tokens);
      it = running.given == running.limit ? worker.erase(it) : std::next(it);
    }
    for (const SequenceTokens& tokens : composer.Finish(result)) {
      got[tokens.sequence_id] += static_cast<int>(tokens.token_ids.size());
    }
  }
  ASSERT_GT(last, 100u);
  EXPECT_TRUE(flying.empty());
  for (uint64_t id = 1; id <= last; ++id) {
    if (cancelled.count(id) == 0) EXPECT_EQ(got[id], wanted[id]) << id;
  }
  EXPECT_EQ(composer.reserved_pages(), 0);
}

}  // namespace
}  // namespace tp::server
