#include "worker/tensor/exchange.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {

absl::Status NeedScratch(absl::string_view what, const Scratch& scratch, int64_t bytes) {
  if (bytes <= scratch.bytes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " needs ", bytes, " bytes of scratch memory, got ", scratch.bytes));
}

absl::Status ExchangeParts(Device& device, Stream& stream, Communicator& communicator, absl::Span<const int> group,
                           const std::vector<PeerParts>& peers, int64_t rounds, const ConstTensorView& source,
                           const TensorView& result, const Scratch& scratch, absl::Time deadline) {
  const int64_t item = ItemSize(source.dtype);
  int64_t most_sent = 0;  // in a round, rounded up for each peer
  int64_t most_received = 0;
  for (const PeerParts& peer : peers) {
    most_sent += (peer.send.elements + rounds - 1) / rounds * item;
    most_received += (peer.receive.elements + rounds - 1) / rounds * item;
  }
  most_sent = (most_sent + 63) / 64 * 64;
  TP_RETURN_IF_ERROR(NeedScratch("an exchange", scratch, most_sent + most_received));
  char* const out = static_cast<char*>(scratch.data);
  char* const in = out + most_sent;
  std::vector<int64_t> send_counts(peers.size()), receive_counts(peers.size());
  for (int64_t round = 0; round < rounds; ++round) {
    int64_t at = 0;
    for (size_t i = 0; i < peers.size(); ++i) {
      const SharedPart& part = peers[i].send;
      const int64_t begin = RoundBegin(part.elements, round, rounds),
                    end = RoundBegin(part.elements, round + 1, rounds);
      TP_RETURN_IF_ERROR(PackShared(device, stream, part, begin, end, source, out + at * item));
      send_counts[i] = end - begin;
      at += end - begin;
    }
    for (size_t i = 0; i < peers.size(); ++i) {
      const int64_t elements = peers[i].receive.elements;
      receive_counts[i] = RoundBegin(elements, round + 1, rounds) - RoundBegin(elements, round, rounds);
    }
    TP_RETURN_IF_ERROR(
        communicator.AllToAll(stream, group, out, send_counts, in, receive_counts, source.dtype, deadline));
    at = 0;
    for (size_t i = 0; i < peers.size(); ++i) {
      const SharedPart& part = peers[i].receive;
      const int64_t begin = RoundBegin(part.elements, round, rounds);
      TP_RETURN_IF_ERROR(UnpackShared(device, stream, part, begin, begin + receive_counts[i], in + at * item, result));
      at += receive_counts[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace tp::worker
