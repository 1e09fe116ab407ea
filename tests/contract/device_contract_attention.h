// Attention, plain and over pages of the cache.
#pragma once

#include <algorithm>

#include "tests/contract/device_contract.h"

namespace tp::testing {

using worker::AttentionArguments;
using worker::PagedCache;
using worker::SequenceSpan;

class AttentionContract : public DeviceContract {
 protected:
  struct Sizes {
    int64_t q_heads = 1;
    int64_t kv_heads = 1;
    int64_t dim = 16;
  };
  // One sequence with all its queries, keys and values, [length, heads, dim].
  struct Text {
    int64_t length = 0;
    std::vector<double> q, k, v;
  };

  static Text MakeText(DType dtype, const Sizes& s, int64_t length, uint32_t seed) {
    return Text{length, Random(dtype, length * s.q_heads * s.dim, seed),
                Random(dtype, length * s.kv_heads * s.dim, seed + 1),
                Random(dtype, length * s.kv_heads * s.dim, seed + 2)};
  }

  // Rows [begin, end) of the attention of `text`, every query against the keys that it sees.
  static std::vector<double> Reference(const Sizes& s, const Text& text, int64_t begin, int64_t end, double scale,
                                       bool causal) {
    std::vector<double> out;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < s.q_heads; ++h) {
        const int64_t kv = h * s.kv_heads / s.q_heads;
        const int64_t sees = causal ? t + 1 : text.length;
        std::vector<double> scores(static_cast<size_t>(sees));
        for (int64_t j = 0; j < sees; ++j) {
          for (int64_t i = 0; i < s.dim; ++i) {
            scores[j] += text.q[(t * s.q_heads + h) * s.dim + i] * text.k[(j * s.kv_heads + kv) * s.dim + i] * scale;
          }
        }
        const double max = *std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - max);
        for (int64_t i = 0; i < s.dim; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < sees; ++j) sum += scores[j] / total * text.v[(j * s.kv_heads + kv) * s.dim + i];
          out.push_back(sum);
        }
      }
    }
    return out;
  }

  // Rows [begin, end) of `from`, [length, heads, dim], appended to `to`.
  static void Append(const std::vector<double>& from, int64_t row, int64_t begin, int64_t end,
                     std::vector<double>& to) {
    to.insert(to.end(), from.begin() + begin * row, from.begin() + end * row);
  }

  // A cache whose pages start as NaN, so that reading a position that was not written shows.
  void MakeCache(DType dtype, const Sizes& s, int64_t pages) {
    const Shape shape = {pages, 2, s.kv_heads, 16, s.dim};
    cache_tensor_ = Put(dtype, shape, std::vector<double>(static_cast<size_t>(ElementCount(shape)), std::nan("")));
    cache_ = PagedCache{dtype, cache_tensor_.view.data, pages, s.kv_heads, s.dim};
  }

  // Runs positions [past, past + count) of each text in one call; the text's pages are `pages[i]`.
  struct Piece {
    const Text* text;
    int64_t past;
    int64_t count;
    std::vector<int32_t> pages;
  };
  std::vector<double> Run(DType dtype, const Sizes& s, const std::vector<Piece>& pieces, double scale, bool causal,
                          bool cached) {
    std::vector<double> q, k, v;
    std::vector<SequenceSpan> sequences;
    int64_t tokens = 0;
    for (const Piece& piece : pieces) {
      const int64_t end = piece.past + piece.count;
      Append(piece.text->q, s.q_heads * s.dim, piece.past, end, q);
      Append(piece.text->k, s.kv_heads * s.dim, piece.past, end, k);
      Append(piece.text->v, s.kv_heads * s.dim, piece.past, end, v);
      sequences.push_back(SequenceSpan{tokens, piece.count, piece.past, piece.pages});
      tokens += piece.count;
    }
    const DeviceTensor query = Put(dtype, {tokens, s.q_heads, s.dim}, q);
    const DeviceTensor key = Put(dtype, {tokens, s.kv_heads, s.dim}, k);
    const DeviceTensor value = Put(dtype, {tokens, s.kv_heads, s.dim}, v);
    const DeviceTensor output = Empty(dtype, {tokens, s.q_heads, s.dim});
    AttentionArguments arguments;
    arguments.query = query.view;
    arguments.key = key.view;
    arguments.value = value.view;
    arguments.output = output.view;
    arguments.sequences = sequences;
    arguments.cache = cached ? &cache_ : nullptr;
    arguments.scale = static_cast<float>(scale);
    arguments.causal = causal;
    EXPECT_EQ(Done(device_->Attention(*stream_, arguments)), absl::OkStatus());
    return Values(output);
  }

  DeviceTensor cache_tensor_;
  PagedCache cache_;
};

TEST_P(AttentionContract, PlainForwardOfSeveralSequences) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Sizes& s : std::vector<Sizes>{{8, 4, 32}, {8, 2, 16}, {8, 1, 7}, {4, 4, 17}, {1, 1, 1}, {3, 1, 128}}) {
      for (const bool causal : {true, false}) {
        std::vector<Text> texts;
        for (const int64_t length : {1, 0, 15, 16, 17, 70}) {
          texts.push_back(MakeText(dtype, s, length, static_cast<uint32_t>(20 + length)));
        }
        std::vector<Piece> pieces;
        std::vector<double> want;
        for (const Text& text : texts) {
          pieces.push_back(Piece{&text, 0, text.length, {}});
          const auto rows = Reference(s, text, 0, text.length, 0.7, causal);
          want.insert(want.end(), rows.begin(), rows.end());
        }
        ExpectNear(Run(dtype, s, pieces, 0.7, causal, false), want, Tolerance(dtype));
      }
    }
  }
}

TEST_P(AttentionContract, LargeScoresDoNotOverflow) {
  const Sizes s{2, 1, 16};
  const Text text = MakeText(DType::kF32, s, 40, 30);
  ExpectNear(Run(DType::kF32, s, {Piece{&text, 0, 40, {}}}, 300, true, false), Reference(s, text, 0, 40, 300, true),
             1e-3);
}

TEST_P(AttentionContract, PrefillInPiecesAndDecodeOverScatteredPagesEqualTheWhole) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Sizes& s : std::vector<Sizes>{{8, 4, 32}, {8, 2, 16}, {8, 1, 16}, {2, 2, 7}, {5, 1, 24}}) {
      const Text a = MakeText(dtype, s, 53, 40);
      const Text b = MakeText(dtype, s, 20, 50);
      const Text c = MakeText(dtype, s, 34, 60);
      MakeCache(dtype, s, 12);
      const std::vector<int32_t> a_pages = {7, 2, 11, 0}, b_pages = {5, 1}, c_pages = {10, 3, 8};
      const auto check = [&](const std::vector<Piece>& pieces) {
        std::vector<double> want;
        for (const Piece& p : pieces) {
          const auto rows = Reference(s, *p.text, p.past, p.past + p.count, 0.25, true);
          want.insert(want.end(), rows.begin(), rows.end());
        }
        ExpectNear(Run(dtype, s, pieces, 0.25, true, true), want, Tolerance(dtype));
      };
      // Pieces of prefill that start and end inside pages, an empty one, and all of c at once.
      check({{&a, 0, 5, a_pages}, {&b, 0, 0, {}}, {&c, 0, 34, c_pages}});
      check({{&a, 5, 40, a_pages}, {&b, 0, 16, b_pages}});
      // Decoding: one token each, of sequences of different lengths, in another order.
      for (int64_t step = 0; step < 4; ++step) {
        check({{&b, 16 + step, 1, b_pages}, {&a, 45 + step, 1, a_pages}});
      }
      // Decoding beside a piece of prefill.
      check({{&a, 49, 4, a_pages}, {&c, 33, 1, c_pages}});
    }
  }
}

TEST_P(AttentionContract, OtherPagesStayAsTheyAre) {
  const Sizes s{2, 1, 8};
  const Text text = MakeText(DType::kF32, s, 18, 70);
  MakeCache(DType::kF32, s, 4);
  Run(DType::kF32, s, {Piece{&text, 0, 18, {3, 1}}}, 1, true, true);
  const std::vector<double> cache = Values(cache_tensor_);  // [4, 2, 1, 16, 8]
  for (int64_t page = 0; page < 4; ++page) {
    for (int64_t slot = 0; slot < 16; ++slot) {
      const int64_t position = page == 3 ? slot : page == 1 ? 16 + slot : 18;
      for (int64_t i = 0; i < 8; ++i) {
        const double key = cache[((page * 2 + 0) * 16 + slot) * 8 + i];
        const double value = cache[((page * 2 + 1) * 16 + slot) * 8 + i];
        if (position < 18) {
          EXPECT_EQ(key, text.k[position * 8 + i]);
          EXPECT_EQ(value, text.v[position * 8 + i]);
        } else {
          EXPECT_TRUE(std::isnan(key) && std::isnan(value)) << "page " << page << " slot " << slot;
        }
      }
    }
  }
}

TEST_P(AttentionContract, NothingToDo) {
  const Sizes s{4, 2, 16};
  EXPECT_TRUE(Run(DType::kF32, s, {}, 1, true, false).empty());
  MakeCache(DType::kF32, s, 0);
  const Text none = MakeText(DType::kF32, s, 0, 80);
  EXPECT_TRUE(Run(DType::kF32, s, {Piece{&none, 0, 0, {}}}, 1, true, true).empty());
}

TEST_P(AttentionContract, RefusesPagesOutsideTheCacheAndHeadsThatDoNotDivide) {
  MakeCache(DType::kF32, Sizes{2, 1, 4}, 2);
  const DeviceTensor query = Put(DType::kF32, {1, 2, 4}, std::vector<double>(8, 1));
  const DeviceTensor key = Put(DType::kF32, {1, 1, 4}, std::vector<double>(4, 1));
  const DeviceTensor output = Empty(DType::kF32, {1, 2, 4});
  for (const std::vector<int32_t>& pages : std::vector<std::vector<int32_t>>{{2}, {-1}, {}}) {
    const std::vector<SequenceSpan> sequences = {SequenceSpan{0, 1, 0, pages}};
    AttentionArguments arguments;
    arguments.query = query.view;
    arguments.key = key.view;
    arguments.value = key.view;
    arguments.output = output.view;
    arguments.sequences = sequences;
    arguments.cache = &cache_;
    EXPECT_EQ(Done(device_->Attention(*stream_, arguments)).code(), absl::StatusCode::kInvalidArgument);
  }
  const DeviceTensor two = Put(DType::kF32, {1, 2, 4}, std::vector<double>(8, 1));
  const DeviceTensor three = Put(DType::kF32, {1, 3, 4}, std::vector<double>(12, 1));
  const DeviceTensor out = Empty(DType::kF32, {1, 3, 4});
  AttentionArguments arguments;
  arguments.query = three.view;
  arguments.key = two.view;
  arguments.value = two.view;
  arguments.output = out.view;
  EXPECT_EQ(Done(device_->Attention(*stream_, arguments)).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace tp::testing
