#include "worker/collective/nccl/nccl_address.h"

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tp::worker {
namespace {

bool IsHex(absl::string_view text) {
  return text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}
// 22809 -> "2.28.9", 13000 -> "13.0"
std::string NcclVersion(int code) { return absl::StrCat(code / 10000, ".", code / 100 % 100, ".", code % 100); }
std::string CudaVersion(int code) { return absl::StrCat(code / 1000, ".", code / 10 % 100); }

}  // namespace

std::string NcclVersionsText(const NcclAddress& address) {
  return absl::StrCat("nccl ", NcclVersion(address.nccl), ", cuda ", CudaVersion(address.cuda));
}

std::string FormatNcclAddress(const NcclAddress& address) {
  return absl::StrCat(address.host, " gpu=", address.gpu, " nccl=", address.nccl, " cuda=", address.cuda,
                      address.id.empty() ? "" : " id=", absl::BytesToHexString(address.id));
}

absl::StatusOr<NcclAddress> ParseNcclAddress(const std::string& text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no address of a GPU rank"));
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  NcclAddress address;
  address.host = std::string(parts[0]);
  bool gpu = false, nccl = false, cuda = false;
  for (size_t i = 1; i < parts.size(); ++i) {
    absl::string_view value = parts[i];
    if (absl::ConsumePrefix(&value, "gpu=")) {
      address.gpu = std::string(value);
      gpu = !value.empty();
    } else if (absl::ConsumePrefix(&value, "nccl=")) {
      nccl = absl::SimpleAtoi(value, &address.nccl);
    } else if (absl::ConsumePrefix(&value, "cuda=")) {
      cuda = absl::SimpleAtoi(value, &address.cuda);
    } else if (absl::ConsumePrefix(&value, "id=")) {
      if (!IsHex(value)) return bad();
      address.id = absl::HexStringToBytes(value);
    } else {
      return bad();
    }
  }
  if (address.host.empty() || !gpu || !nccl || !cuda) return bad();
  return address;
}

absl::Status CheckNcclAddresses(const std::vector<NcclAddress>& addresses) {
  std::map<std::string, size_t> rank_of_gpu;
  for (size_t r = 0; r < addresses.size(); ++r) {
    const NcclAddress &first = addresses[0], &mine = addresses[r];
    if (mine.nccl != first.nccl || mine.cuda != first.cuda) {
      return absl::FailedPreconditionError(absl::StrCat("rank 0 (", first.host, ") has ", NcclVersionsText(first),
                                                        ", rank ", r, " (", mine.host, ") has ",
                                                        NcclVersionsText(mine)));
    }
    const auto [it, added] = rank_of_gpu.emplace(mine.gpu, r);
    if (!added) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", it->second, " (", addresses[it->second].host,
                                                        ") and rank ", r, " (", mine.host, ") are on one GPU, ",
                                                        mine.gpu));
    }
  }
  if (addresses.empty() || addresses[0].id.empty()) return absl::InvalidArgumentError("rank 0 gave no NCCL id");
  return absl::OkStatus();
}

}  // namespace tp::worker
