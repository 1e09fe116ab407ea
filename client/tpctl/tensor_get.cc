// tpctl tensor get: the global value, into a file or onto the screen.
#include <cmath>
#include <cstdio>
#include <limits>

#include "client/tpctl/commands.h"
#include "client/tpctl/progress.h"
#include "client/tpctl/tensor_file.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {
namespace {

// Sums up what streams by; keeps nothing.
class SummarySink : public TensorSink {
 public:
  absl::Status Begin(const TensorInfo& tensor, const std::vector<TensorBlock>&) override {
    tensor_ = tensor;
    return absl::OkStatus();
  }
  absl::Status Write(size_t, int64_t, std::string_view bytes) override {
    rest_.append(bytes);  // an element may be cut by the end of a chunk
    const int64_t item = ItemSize(tensor_.dtype), count = static_cast<int64_t>(rest_.size()) / item;
    HostTensor piece{tensor_.dtype, {count}, rest_.substr(0, static_cast<size_t>(count * item))};
    rest_.erase(0, piece.bytes.size());
    const HostTensor wide = ConvertTo(piece, DType::kF64);
    for (int64_t i = 0; i < count; ++i) {
      const double value = wide.data<double>()[i];
      if (std::isnan(value)) {
        ++summary_.nans;
        continue;
      }
      summary_.least = numbers_ == 0 ? value : std::min(summary_.least, value);
      summary_.largest = numbers_ == 0 ? value : std::max(summary_.largest, value);
      sum_ += value;
      ++numbers_;
    }
    return absl::OkStatus();
  }
  const TensorInfo& tensor() const { return tensor_; }
  ValueSummary summary() const {
    ValueSummary result = summary_;
    if (numbers_ == 0) result.least = result.largest = std::numeric_limits<double>::quiet_NaN();
    result.mean = sum_ / static_cast<double>(numbers_);
    return result;
  }

 private:
  TensorInfo tensor_;
  std::string rest_;
  ValueSummary summary_;
  double sum_ = 0;
  int64_t numbers_ = 0;
};

}  // namespace

absl::Status TensorGet(const GlobalOptions& globals, const TensorGetOptions& options) {
  if (!options.output.empty()) TP_RETURN_IF_ERROR(CheckTensorPath(options.output, "--output"));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  if (!options.output.empty()) {
    ProgressBar bar("fetching " + options.name);
    TensorFileSink file(options.output, options.name, [&](int64_t done, int64_t total) { bar.Update(done, total); });
    TP_RETURN_IF_ERROR(client->GetTensor(options.name, false, &file));
    TP_RETURN_IF_ERROR(file.Commit());
    std::fputs(OutputText(file.tensor(), options.output, file.tensor_bytes(), globals.json()).c_str(), stdout);
    return absl::OkStatus();
  }
  TP_ASSIGN_OR_RETURN(const TensorDescription description, client->DescribeTensor(options.name));
  if (ElementCount(description.tensor.shape) <= kPrintedElements) {
    TP_ASSIGN_OR_RETURN(const HostTensor value, client->GetTensor(options.name));
    std::fputs(ValueText(description.tensor, value, globals.json()).c_str(), stdout);
    return absl::OkStatus();
  }
  SummarySink sink;
  TP_RETURN_IF_ERROR(client->GetTensor(options.name, false, &sink));
  std::fputs(SummaryText(sink.tensor(), sink.summary(), globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
