#include "worker/collective/checking_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

constexpr size_t kTextBytes = 256;                  // of a description on the wire
constexpr uint32_t kCheckFlag = uint32_t{1} << 31;  // a header of ours: no caller's has it

uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::string List(absl::Span<const int64_t> counts) { return absl::StrCat("[", absl::StrJoin(counts, ", "), "]"); }
std::string TypeText(absl::string_view op, DType dtype) {
  return absl::StrCat(op, " of ", std::string(DTypeName(dtype)));
}

// What ShareBytes() takes; the end of a long text is lost.
std::string PaddedText(absl::string_view text) {
  std::string padded(text.substr(0, kTextBytes));
  padded.resize(kTextBytes, '\0');
  return padded;
}

absl::Status Mismatch(int a, absl::string_view a_text, int b, absl::string_view b_text) {
  return absl::AbortedError(
      absl::StrCat("collective mismatch rank ", a, " (", a_text, ") rank ", b, " (", b_text, ")"));
}

class CheckingCommunicator : public Communicator {
 public:
  explicit CheckingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  absl::Status AllReduce(Stream& stream, absl::Span<const int> group, void* data, int64_t count, DType dtype,
                         ReduceOp op, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(Agree(
        group, absl::StrCat(TypeText("all_reduce", dtype), ", op ", std::string(ReduceOpName(op)), ", count ", count),
        deadline));
    return inner_->AllReduce(stream, group, data, count, dtype, op, deadline);
  }
  absl::Status ReduceScatter(Stream& stream, absl::Span<const int> group, const void* input,
                             absl::Span<const int64_t> counts, void* output, DType dtype, ReduceOp op,
                             absl::Time deadline) override {
    TP_RETURN_IF_ERROR(Agree(group,
                             absl::StrCat(TypeText("reduce_scatter", dtype), ", op ", std::string(ReduceOpName(op)),
                                          ", counts ", List(counts)),
                             deadline));
    return inner_->ReduceScatter(stream, group, input, counts, output, dtype, op, deadline);
  }
  absl::Status AllGather(Stream& stream, absl::Span<const int> group, const void* input, void* output,
                         absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(Agree(group, absl::StrCat(TypeText("all_gather", dtype), ", counts ", List(counts)), deadline));
    return inner_->AllGather(stream, group, input, output, counts, dtype, deadline);
  }
  absl::Status AllToAll(Stream& stream, absl::Span<const int> group, const void* input,
                        absl::Span<const int64_t> send_counts, void* output, absl::Span<const int64_t> receive_counts,
                        DType dtype, absl::Time deadline) override;
  absl::Status Broadcast(Stream& stream, absl::Span<const int> group, int root, void* data, int64_t count, DType dtype,
                         absl::Time deadline) override {
    TP_RETURN_IF_ERROR(
        Agree(group, absl::StrCat(TypeText("broadcast", dtype), ", root ", root, ", count ", count), deadline));
    return inner_->Broadcast(stream, group, root, data, count, dtype, deadline);
  }
  absl::Status Scatter(Stream& stream, absl::Span<const int> group, int root, const void* input,
                       absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(
        Agree(group, absl::StrCat(TypeText("scatter", dtype), ", root ", root, ", counts ", List(counts)), deadline));
    return inner_->Scatter(stream, group, root, input, counts, output, dtype, deadline);
  }
  absl::Status Gather(Stream& stream, absl::Span<const int> group, int root, const void* input, void* output,
                      absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(
        Agree(group, absl::StrCat(TypeText("gather", dtype), ", root ", root, ", counts ", List(counts)), deadline));
    return inner_->Gather(stream, group, root, input, output, counts, dtype, deadline);
  }
  absl::Status SendReceive(Stream& stream, int to, const void* input, int64_t send_count, int from, void* output,
                           int64_t receive_count, DType dtype, absl::Time deadline) override {
    return inner_->SendReceive(stream, to, input, send_count, from, output, receive_count, dtype, deadline);
  }
  absl::Status Barrier(absl::Span<const int> group, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(Agree(group, "barrier", deadline));
    return inner_->Barrier(group, deadline);
  }
  absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                          absl::Time deadline) override {
    TP_RETURN_IF_ERROR(Agree(group, "header exchange", deadline));
    return inner_->ExchangeHeaders(group, mine, deadline);
  }
  absl::Status PrepareGroups(absl::Span<const std::vector<std::vector<int>>> partitions, absl::Time deadline) override {
    return inner_->PrepareGroups(partitions, deadline);
  }
  absl::Status CheckPeers(absl::Span<const int> group) override { return inner_->CheckPeers(group); }
  void Abort(absl::string_view reason) override { inner_->Abort(reason); }
  WireCounters wire() const override { return inner_->wire(); }

 private:
  // OK where all members describe the call alike. The headers carry a hash; only where hashes differ do the texts
  // follow, which all members see alike and therefore all do.
  absl::Status Agree(absl::Span<const int> group, absl::string_view call, absl::Time deadline) {
    const std::string text = absl::StrCat(call, ", group [", absl::StrJoin(group, ", "), "]");
    StepHeader mine;
    mine.flags = kCheckFlag;
    mine.fingerprint = HashOf(text);
    TP_ASSIGN_OR_RETURN(const std::vector<StepHeader> headers, inner_->ExchangeHeaders(group, mine, deadline));
    const bool same = std::all_of(headers.begin(), headers.end(), [&](const StepHeader& h) { return h == headers[0]; });
    if (same) return absl::OkStatus();
    TP_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ShareBytes(group, PaddedText(text), deadline));
    return FirstMismatch(group, texts);
  }

  // Of the members in order of rank, the first and the first that differs from it.
  static absl::Status FirstMismatch(absl::Span<const int> group, const std::vector<std::string>& texts) {
    std::vector<std::pair<int, std::string>> members;
    for (size_t i = 0; i < group.size(); ++i) members.emplace_back(group[i], texts[i].substr(0, texts[i].find('\0')));
    std::sort(members.begin(), members.end());
    for (const auto& [rank, text] : members) {
      if (text != members[0].second) return Mismatch(members[0].first, members[0].second, rank, text);
    }
    // Texts that were cut at the same place.
    return Mismatch(members[0].first, members[0].second, members.back().first, members.back().second);
  }

  // Every member's bytes, the same multiple of 16 from each, in headers: the other calls take device memory.
  absl::StatusOr<std::vector<std::string>> ShareBytes(absl::Span<const int> group, const std::string& mine,
                                                      absl::Time deadline) {
    constexpr size_t kPiece = 2 * sizeof(uint64_t);  // in sequence and fingerprint
    std::vector<std::string> all(group.size());
    for (size_t at = 0; at < mine.size(); at += kPiece) {
      StepHeader header;
      header.flags = kCheckFlag;
      std::memcpy(&header.sequence, &mine[at], sizeof(uint64_t));
      std::memcpy(&header.fingerprint, &mine[at + sizeof(uint64_t)], sizeof(uint64_t));
      TP_ASSIGN_OR_RETURN(const std::vector<StepHeader> headers, inner_->ExchangeHeaders(group, header, deadline));
      for (size_t i = 0; i < group.size(); ++i) {
        all[i].append(reinterpret_cast<const char*>(&headers[i].sequence), sizeof(uint64_t));
        all[i].append(reinterpret_cast<const char*>(&headers[i].fingerprint), sizeof(uint64_t));
      }
    }
    return all;
  }

  const std::unique_ptr<Communicator> inner_;
};

// The counts legally differ between ranks: what rank i sends to rank j must be what rank j expects of rank i. So all
// tell all what they send and expect, and each checks every pair.
absl::Status CheckingCommunicator::AllToAll(Stream& stream, absl::Span<const int> group, const void* input,
                                            absl::Span<const int64_t> send_counts, void* output,
                                            absl::Span<const int64_t> receive_counts, DType dtype,
                                            absl::Time deadline) {
  const size_t n = group.size();
  TP_RETURN_IF_ERROR(Agree(group,
                           absl::StrCat(TypeText("all_to_all", dtype), ", ", send_counts.size(), " counts to send, ",
                                        receive_counts.size(), " to receive"),
                           deadline));
  if (send_counts.size() == n && receive_counts.size() == n) {
    std::string mine;
    for (const absl::Span<const int64_t> counts : {send_counts, receive_counts}) {
      mine.append(reinterpret_cast<const char*>(counts.data()), n * sizeof(int64_t));
    }
    TP_ASSIGN_OR_RETURN(const std::vector<std::string> all, ShareBytes(group, mine, deadline));
    const auto count = [&](size_t member, size_t index) {
      int64_t value = 0;
      std::memcpy(&value, &all[member][index * sizeof value], sizeof value);
      return value;
    };
    for (size_t from = 0; from < n; ++from) {
      for (size_t to = 0; to < n; ++to) {
        const int64_t sent = count(from, to), expected = count(to, n + from);
        if (sent == expected) continue;
        const std::string call = TypeText("all_to_all", dtype);
        const std::string sends = absl::StrCat(call, ", sends ", sent, " to rank ", group[to]);
        const std::string expects = absl::StrCat(call, ", expects ", expected, " from rank ", group[from]);
        return group[from] < group[to] ? Mismatch(group[from], sends, group[to], expects)
                                       : Mismatch(group[to], expects, group[from], sends);
      }
    }
  }
  return inner_->AllToAll(stream, group, input, send_counts, output, receive_counts, dtype, deadline);
}

}  // namespace

std::unique_ptr<Communicator> CreateCheckingCommunicator(std::unique_ptr<Communicator> inner) {
  return std::make_unique<CheckingCommunicator>(std::move(inner));
}

}  // namespace tp::worker
