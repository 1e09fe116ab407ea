#include "worker/collective/algorithms.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/reduce.h"

namespace tp::worker {
namespace {

constexpr int64_t kSmallBytes = 16 << 10;       // all_reduce: everything to everyone below this
constexpr int64_t kSlots = 8;                   // pieces of terms that may be on their way at once
constexpr int64_t kBroadcastBytes = 256 << 10;  // broadcast: scatter and all_gather from here on

char* At(void* base, int64_t offset) { return static_cast<char*>(base) + offset; }
const char* At(const void* base, int64_t offset) { return static_cast<const char*>(base) + offset; }

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

std::vector<int64_t> OffsetsOf(absl::Span<const int64_t> sizes) {
  std::vector<int64_t> offsets(sizes.size() + 1, 0);
  for (size_t i = 0; i < sizes.size(); ++i) offsets[i + 1] = offsets[i] + sizes[i];
  return offsets;
}

// The first count % n blocks are one element longer.
std::vector<int64_t> EvenOffsets(int64_t count, int64_t n) {
  std::vector<int64_t> offsets(static_cast<size_t>(n) + 1, 0);
  for (int64_t i = 0; i < n; ++i) offsets[i + 1] = offsets[i] + count / n + (i < count % n ? 1 : 0);
  return offsets;
}

// The other members, starting after this one, so that not all send to the first at once.
std::vector<int> OthersOf(const Members& members) {
  std::vector<int> others;
  for (int step = 1; step < members.size(); ++step) others.push_back((members.me + step) % members.size());
  return others;
}

absl::Status SmallAllReduce(const Members& m, void* data, int64_t count, DType dtype, ReduceOp op) {
  const int64_t bytes = count * ItemSize(dtype);
  const auto scratch = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes) * m.group.size());
  std::vector<const void*> terms;
  for (int i = 0; i < m.size(); ++i) terms.push_back(i == m.me ? data : scratch.get() + i * bytes);
  Exchange exchange(m.transport, m.deadline);
  for (int i : OthersOf(m)) exchange.Receive(m.group[i], scratch.get() + i * bytes, bytes);
  for (int i : OthersOf(m)) exchange.Send(m.group[i], data, bytes);
  TP_RETURN_IF_ERROR(exchange.Finish());
  ReduceTerms(dtype, op, terms, count, data);
  return absl::OkStatus();
}

// A block of terms is received and added in pieces; a ring of slots holds the pieces on their way from all members.
struct Pieces {
  int64_t count = 1;  // of the block
  int64_t slots = 1;
  int64_t longest = 0;  // elements
  int64_t Begin(int64_t elements, int64_t piece) const {
    return elements / count * piece + elements % count * piece / count;
  }
};
Pieces PiecesOf(const Members& m, int64_t elements, int64_t item) {
  const int64_t limit = std::max<int64_t>(1, std::min(m.memory.piece_bytes, m.memory.heap_bytes / m.size()) / item);
  Pieces pieces;
  pieces.count = std::max<int64_t>(1, (elements + limit - 1) / limit);
  pieces.longest = (elements + pieces.count - 1) / pieces.count;
  const int64_t slot_bytes = std::max<int64_t>(1, pieces.longest * item * m.size());
  pieces.slots = std::clamp<int64_t>(m.memory.heap_bytes / slot_bytes, 1, std::min(kSlots, pieces.count));
  return pieces;
}

// Member i owns block i. A rank posts, to and from each other member: the terms of as many pieces as there are slots;
// then, piece by piece, the reduced one, and the terms of the piece that takes over the slot. All members have equally
// many pieces and slots, so that messages match. A gathered piece lands where this rank's own term of that piece was:
// its owner sends it only after it has received that term, so the memory is free by then.
absl::Status LargeAllReduce(const Members& m, void* data, int64_t count, DType dtype, ReduceOp op) {
  const int64_t item = ItemSize(dtype);
  const int n = m.size();
  const std::vector<int64_t> block = EvenOffsets(count, n);
  const Pieces pieces = PiecesOf(m, block[1], item);  // of the longest block
  // Piece p of block i: elements [start(i, p), start(i, p + 1)).
  auto start = [&](int i, int64_t p) { return block[i] + pieces.Begin(block[i + 1] - block[i], p); };
  auto bytes = [&](int i, int64_t p) { return (start(i, p + 1) - start(i, p)) * item; };
  const std::vector<int> others = OthersOf(m);

  const int64_t slot_bytes = pieces.longest * item * n;
  const auto scratch = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(slot_bytes * pieces.slots));
  auto term = [&](int i, int64_t p) -> void* {
    if (i == m.me) return At(data, start(m.me, p) * item);
    return scratch.get() + p % pieces.slots * slot_bytes + i * pieces.longest * item;
  };
  std::deque<Exchange> arrivals;           // of the terms, one a piece
  Exchange rest(m.transport, m.deadline);  // our sends, and the reduced pieces of the others
  const auto post_terms = [&](int64_t p) {
    arrivals.emplace_back(m.transport, m.deadline);
    for (int i : others) arrivals.back().Receive(m.group[i], term(i, p), bytes(m.me, p));
    for (int i : others) rest.Send(m.group[i], At(data, start(i, p) * item), bytes(i, p));
  };
  for (int64_t p = 0; p < pieces.slots; ++p) post_terms(p);
  for (int64_t p = 0; p < pieces.count; ++p) {
    for (int i : others) rest.Receive(m.group[i], At(data, start(i, p) * item), bytes(i, p));
    TP_RETURN_IF_ERROR(arrivals.front().Finish());
    arrivals.pop_front();
    std::vector<const void*> terms;
    for (int i = 0; i < n; ++i) terms.push_back(term(i, p));
    ReduceTerms(dtype, op, terms, start(m.me, p + 1) - start(m.me, p), At(data, start(m.me, p) * item));
    for (int i : others) rest.Send(m.group[i], At(data, start(m.me, p) * item), bytes(m.me, p));
    if (p + pieces.slots < pieces.count) post_terms(p + pieces.slots);
  }
  return rest.Finish();
}

}  // namespace

absl::Status AllReduceHost(const Members& m, void* data, int64_t count, DType dtype, ReduceOp op) {
  if (m.size() == 1 || count == 0) return absl::OkStatus();
  if (count * ItemSize(dtype) < kSmallBytes) return SmallAllReduce(m, data, count, dtype, op);
  return LargeAllReduce(m, data, count, dtype, op);
}

// The pieces of a member's block depend on its length only, so that senders know them.
absl::Status ReduceScatterHost(const Members& m, const void* input, absl::Span<const int64_t> counts, void* output,
                               DType dtype, ReduceOp op) {
  const int64_t item = ItemSize(dtype);
  const std::vector<int64_t> offsets = OffsetsOf(counts);
  if (m.size() == 1) {
    Copy(output, input, counts[0] * item);
    return absl::OkStatus();
  }
  Exchange sends(m.transport, m.deadline);
  for (int i : OthersOf(m)) {
    const Pieces pieces = PiecesOf(m, counts[i], item);
    for (int64_t p = 0; p < pieces.count; ++p) {
      const int64_t begin = pieces.Begin(counts[i], p), end = pieces.Begin(counts[i], p + 1);
      sends.Send(m.group[i], At(input, (offsets[i] + begin) * item), (end - begin) * item);
    }
  }
  const Pieces pieces = PiecesOf(m, counts[m.me], item);
  const int64_t slot_bytes = pieces.longest * item * m.size();
  const auto scratch = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(slot_bytes * pieces.slots));
  auto begin = [&](int64_t p) { return pieces.Begin(counts[m.me], p); };
  auto term = [&](int i, int64_t p) {
    return scratch.get() + p % pieces.slots * slot_bytes + i * pieces.longest * item;
  };
  std::deque<Exchange> arrivals;
  const auto post = [&](int64_t p) {
    arrivals.emplace_back(m.transport, m.deadline);
    for (int i : OthersOf(m)) arrivals.back().Receive(m.group[i], term(i, p), (begin(p + 1) - begin(p)) * item);
  };
  for (int64_t p = 0; p < pieces.slots; ++p) post(p);
  for (int64_t p = 0; p < pieces.count; ++p) {
    TP_RETURN_IF_ERROR(arrivals.front().Finish());
    arrivals.pop_front();
    std::vector<const void*> terms;
    for (int i = 0; i < m.size(); ++i) {
      terms.push_back(i == m.me ? At(input, (offsets[i] + begin(p)) * item) : term(i, p));
    }
    ReduceTerms(dtype, op, terms, begin(p + 1) - begin(p), At(output, begin(p) * item));
    if (p + pieces.slots < pieces.count) post(p + pieces.slots);
  }
  return sends.Finish();
}

absl::Status AllGatherHost(const Members& m, const void* input, void* output, absl::Span<const int64_t> bytes) {
  const std::vector<int64_t> offsets = OffsetsOf(bytes);
  Exchange exchange(m.transport, m.deadline);
  for (int i : OthersOf(m)) exchange.Receive(m.group[i], At(output, offsets[i]), bytes[i]);
  for (int i : OthersOf(m)) exchange.Send(m.group[i], input, bytes[m.me]);
  Copy(At(output, offsets[m.me]), input, bytes[m.me]);
  return exchange.Finish();
}

absl::Status AllToAllHost(const Members& m, const void* input, absl::Span<const int64_t> send_bytes, void* output,
                          absl::Span<const int64_t> receive_bytes) {
  const std::vector<int64_t> from = OffsetsOf(send_bytes);
  const std::vector<int64_t> to = OffsetsOf(receive_bytes);
  Exchange exchange(m.transport, m.deadline);
  for (int i : OthersOf(m)) exchange.Receive(m.group[i], At(output, to[i]), receive_bytes[i]);
  for (int i : OthersOf(m)) exchange.Send(m.group[i], At(input, from[i]), send_bytes[i]);
  Copy(At(output, to[m.me]), At(input, from[m.me]), send_bytes[m.me]);
  return exchange.Finish();
}

absl::Status BroadcastHost(const Members& m, int root, void* data, int64_t bytes) {
  if (bytes >= kBroadcastBytes && m.size() > 2) {
    const std::vector<int64_t> offsets = EvenOffsets(bytes, m.size());
    std::vector<int64_t> blocks;
    for (int i = 0; i < m.size(); ++i) blocks.push_back(offsets[i + 1] - offsets[i]);
    char* mine = At(data, offsets[m.me]);
    TP_RETURN_IF_ERROR(ScatterHost(m, root, data, blocks, mine));
    return AllGatherHost(m, mine, data, blocks);
  }
  Exchange exchange(m.transport, m.deadline);
  if (m.me == root) {
    for (int i : OthersOf(m)) exchange.Send(m.group[i], data, bytes);
  } else {
    exchange.Receive(m.group[root], data, bytes);
  }
  return exchange.Finish();
}

absl::Status ScatterHost(const Members& m, int root, const void* input, absl::Span<const int64_t> bytes, void* output) {
  Exchange exchange(m.transport, m.deadline);
  if (m.me == root) {
    const std::vector<int64_t> offsets = OffsetsOf(bytes);
    for (int i : OthersOf(m)) exchange.Send(m.group[i], At(input, offsets[i]), bytes[i]);
    Copy(output, At(input, offsets[root]), bytes[root]);
  } else {
    exchange.Receive(m.group[root], output, bytes[m.me]);
  }
  return exchange.Finish();
}

absl::Status GatherHost(const Members& m, int root, const void* input, void* output, absl::Span<const int64_t> bytes) {
  Exchange exchange(m.transport, m.deadline);
  if (m.me == root) {
    const std::vector<int64_t> offsets = OffsetsOf(bytes);
    for (int i : OthersOf(m)) exchange.Receive(m.group[i], At(output, offsets[i]), bytes[i]);
    Copy(At(output, offsets[root]), input, bytes[root]);
  } else {
    exchange.Send(m.group[root], input, bytes[m.me]);
  }
  return exchange.Finish();
}

}  // namespace tp::worker
