#include "tests/device/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tests/device/bench.h"
#include "tests/device/check.h"
#include "tests/device/demo.h"
#include "worker/device/cuda/cuda_status.h"

namespace tp::testing {
namespace {

using worker::ConstTensorView;
using worker::SequenceSpan;
using worker::TensorView;
using worker::cuda::CudaStatus;

int64_t Sized(int64_t full, int64_t small) { return Options().small ? small : full; }

// What is measured is kept by name: a ceiling for what comes after it.
class Table {
 public:
  // `amount` in units of 1e9 (bytes) or 1e12 (operations), done in `us`.
  void Rate(const std::string& name, double amount, double us, const std::string& unit, const std::string& ceiling) {
    const double rate = amount / (us * 1e-6) / (unit == "GB/s" ? 1e9 : 1e12);
    rates_[name] = rate;
    const auto found = rates_.find(ceiling);
    const bool has = found != rates_.end() && found->second > 0;
    Report({"measure", name, "measured", rate, unit, has ? rate / found->second : 0, has ? ceiling : ""});
  }
  void Time(const std::string& name, double us) { Report({"measure", name, "measured", us, "us", 0, ""}); }

 private:
  std::map<std::string, double> rates_;
};

const char kCopy[] = "copy on the device";

absl::Status Copies(Bench& bench, Table& table) {
  const int64_t bytes = Sized(int64_t{1} << 30, 1 << 20), host_bytes = Sized(int64_t{256} << 20, 1 << 20);
  TP_ASSIGN_OR_RETURN(const TensorView from, bench.Values(DType::kF32, {bytes / 4}));
  TP_ASSIGN_OR_RETURN(const TensorView to, bench.Values(DType::kF32, {bytes / 4}));
  const auto raw = [&](void* target, const void* source, int64_t size, cudaMemcpyKind kind) {
    return CudaStatus(cudaMemcpyAsync(target, source, static_cast<size_t>(size), kind, bench.handle()), "copy");
  };
  TP_ASSIGN_OR_RETURN(
      double us, bench.TimePlain(4, [&](int) { return raw(to.data, from.data, bytes, cudaMemcpyDeviceToDevice); }));
  table.Rate(kCopy, 2.0 * static_cast<double>(bytes), us, "GB/s", "");

  void* pinned = nullptr;
  TP_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&pinned, static_cast<size_t>(host_bytes)), "pinned memory"));
  std::fill_n(static_cast<char*>(pinned), host_bytes, char{1});
  const auto in = bench.TimePlain(2, [&](int) { return raw(to.data, pinned, host_bytes, cudaMemcpyHostToDevice); });
  const auto out = bench.TimePlain(2, [&](int) { return raw(pinned, from.data, host_bytes, cudaMemcpyDeviceToHost); });
  TP_RETURN_IF_ERROR(CudaStatus(cudaFreeHost(pinned), "pinned memory"));
  TP_RETURN_IF_ERROR(in.status());
  TP_RETURN_IF_ERROR(out.status());
  const auto amount = static_cast<double>(host_bytes);
  table.Rate("copy from pinned memory", amount, *in, "GB/s", "");
  table.Rate("copy to pinned memory", amount, *out, "GB/s", "");
  std::vector<char> pageable(static_cast<size_t>(host_bytes), 1);
  TP_ASSIGN_OR_RETURN(us, bench.TimePlain(1, [&](int) {
    return bench.device().CopyToDevice(bench.stream(), pageable.data(), to.data, host_bytes);
  }));
  table.Rate("CopyToDevice of pageable memory", amount, us, "GB/s", "copy from pinned memory");
  TP_ASSIGN_OR_RETURN(us, bench.TimePlain(1, [&](int) {
    return bench.device().CopyToHost(bench.stream(), from.data, pageable.data(), host_bytes);
  }));
  table.Rate("CopyToHost to pageable memory", amount, us, "GB/s", "copy to pinned memory");
  return absl::OkStatus();
}

absl::Status Rows(Bench& bench, Table& table) {
  const int64_t rows = Sized(65536, 16), width = Sized(4096, 64);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const double bytes = static_cast<double>(rows * width * ItemSize(dtype));
    const std::string of = absl::StrCat(" of ", std::string(DTypeName(dtype)));
    TP_ASSIGN_OR_RETURN(const TensorView a, bench.Values(dtype, {rows, width}));
    TP_ASSIGN_OR_RETURN(const TensorView b, bench.Values(dtype, {rows, width}));
    TP_ASSIGN_OR_RETURN(const TensorView c, bench.Values(dtype, {rows, width}));
    TP_ASSIGN_OR_RETURN(const TensorView weight, bench.Values(dtype, {width}));
    worker::Device& device = bench.device();
    worker::Stream& stream = bench.stream();
    const auto measure = [&](const std::string& name, double times, const std::function<absl::Status(int)>& call) {
      const auto us = bench.Time(4, call);
      if (us.ok()) table.Rate(name + of, times * bytes, *us, "GB/s", kCopy);
      return us.status();
    };
    TP_RETURN_IF_ERROR(measure("add", 3, [&](int) { return device.Binary(stream, worker::BinaryOp::kAdd, a, b, c); }));
    TP_RETURN_IF_ERROR(measure("silu", 2, [&](int) { return device.Unary(stream, worker::UnaryOp::kSilu, a, c); }));
    TP_RETURN_IF_ERROR(measure("rms_norm", 2, [&](int) { return device.RmsNorm(stream, a, weight, 1e-5, c); }));
    TP_RETURN_IF_ERROR(measure("softmax", 2, [&](int) { return device.Softmax(stream, a, 1, c); }));
    bench.Drop();
  }
  return absl::OkStatus();
}

// Products of weights [n, n]: the largest one is the peak of its kind; few rows are bound by reading the weights, of
// which there are enough not to stay in the cache.
absl::Status Products(Bench& bench, Table& table, DType dtype, const std::string& kind) {
  const int64_t n = Sized(4096, 64);
  const int weights = Options().small ? 2 : 8;
  std::vector<std::unique_ptr<worker::PackedWeight>> packed;
  for (int i = 0; i < weights; ++i) {
    TP_ASSIGN_OR_RETURN(const TensorView weight, bench.Values(dtype, {n, n}));
    TP_ASSIGN_OR_RETURN(auto one, bench.device().PackWeight(bench.stream(), weight));
    packed.push_back(std::move(one));
  }
  TP_ASSIGN_OR_RETURN(const TensorView input, bench.Values(dtype, {n, n}));
  TP_ASSIGN_OR_RETURN(const TensorView output, bench.Values(dtype, {n, n}));
  const std::string peak = absl::StrCat("product of ", kind, ", m=n=k=", n);
  for (const int64_t m : {n, std::min<int64_t>(512, n / 2), int64_t{16}, int64_t{1}}) {
    const ConstTensorView x{dtype, input.data, {m, n}};
    const TensorView y{dtype, output.data, {m, n}};
    TP_ASSIGN_OR_RETURN(const double us, bench.Time(weights, [&](int i) {
      return bench.device().Linear(bench.stream(), x, *packed[static_cast<size_t>(i)], nullptr, y);
    }));
    const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(n * n);
    const double bytes = static_cast<double>((n * n + 2 * m * n) * ItemSize(dtype));
    const std::string name = m == n ? peak : absl::StrCat("product of ", kind, ", m=", m, ", n=k=", n);
    table.Rate(name, operations, us, "TFLOP/s", m == n ? "" : peak);
    if (m <= 16) table.Rate(name + ", its bytes", bytes, us, "GB/s", kCopy);
  }
  packed.clear();
  bench.Drop();
  return absl::OkStatus();
}

struct Heads {
  int64_t queries, keys, dim;
};

absl::Status Prefill(Bench& bench, Table& table, const std::string& peak) {
  const Heads h{Sized(32, 4), Sized(8, 2), 128};
  for (const int64_t full : {512, 2048}) {
    const int64_t tokens = Sized(full, full / 32);
    TP_ASSIGN_OR_RETURN(const TensorView query, bench.Values(DType::kBF16, {tokens, h.queries, h.dim}));
    TP_ASSIGN_OR_RETURN(const TensorView output, bench.Values(DType::kBF16, {tokens, h.queries, h.dim}));
    TP_ASSIGN_OR_RETURN(const TensorView key, bench.Values(DType::kBF16, {tokens, h.keys, h.dim}));
    TP_ASSIGN_OR_RETURN(const TensorView value, bench.Values(DType::kBF16, {tokens, h.keys, h.dim}));
    const SequenceSpan span{0, tokens, 0, {}};
    worker::AttentionArguments arguments;
    arguments.query = query;
    arguments.key = key;
    arguments.value = value;
    arguments.output = output;
    arguments.sequences = {&span, 1};
    arguments.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(h.dim)));
    TP_ASSIGN_OR_RETURN(
        const double us,
        bench.Time(
            2, [&](int) { return bench.device().Attention(bench.stream(), arguments); }, {&span, 1}, tokens));
    // Two products over the pairs that a causal mask leaves.
    const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
    table.Rate(absl::StrCat("prefill attention, ", full, " tokens"), 4 * pairs * static_cast<double>(h.queries * h.dim),
               us, "TFLOP/s", peak);
    bench.Drop();
  }
  return absl::OkStatus();
}

absl::Status DecodeAttention(Bench& bench, Table& table) {
  const Heads h{Sized(32, 4), Sized(8, 2), 128};
  for (const int64_t full : {1024, 8192}) {
    for (const int64_t full_batch : {1, 16}) {
      const int64_t past = Sized(full, full / 32), batch = Sized(full_batch, std::min<int64_t>(full_batch, 2));
      const int64_t pages = past / 16 + 1;
      const int64_t cache_bytes = batch * pages * 2 * h.keys * 16 * h.dim * 2;
      // Layers enough not to stay in the cache of the processor.
      const int layers = Options().small ? 2 : static_cast<int>(std::clamp<int64_t>((512 << 20) / cache_bytes, 2, 128));
      std::vector<worker::PagedCache> caches;
      for (int i = 0; i < layers; ++i) {
        TP_ASSIGN_OR_RETURN(const TensorView memory, bench.Values(DType::kBF16, {batch * pages, 2, h.keys, 16, h.dim}));
        caches.push_back({DType::kBF16, memory.data, batch * pages, h.keys, h.dim});
      }
      TP_ASSIGN_OR_RETURN(const TensorView query, bench.Values(DType::kBF16, {batch, h.queries, h.dim}));
      TP_ASSIGN_OR_RETURN(const TensorView output, bench.Values(DType::kBF16, {batch, h.queries, h.dim}));
      TP_ASSIGN_OR_RETURN(const TensorView key, bench.Values(DType::kBF16, {batch, h.keys, h.dim}));
      TP_ASSIGN_OR_RETURN(const TensorView value, bench.Values(DType::kBF16, {batch, h.keys, h.dim}));
      std::vector<SequenceSpan> spans;
      for (int64_t s = 0; s < batch; ++s) {
        SequenceSpan span{s, 1, past, {}};
        for (int64_t p = 0; p < pages; ++p) span.pages.push_back(static_cast<int32_t>(p * batch + s));
        spans.push_back(std::move(span));
      }
      int64_t longest = 64;
      while (longest < past + 1) longest *= 2;
      worker::AttentionArguments arguments;
      arguments.query = query;
      arguments.key = key;
      arguments.value = value;
      arguments.output = output;
      arguments.sequences = spans;
      arguments.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(h.dim)));
      TP_ASSIGN_OR_RETURN(const double us, bench.Time(
                                               layers,
                                               [&](int i) {
                                                 arguments.cache = &caches[static_cast<size_t>(i)];
                                                 return bench.device().Attention(bench.stream(), arguments);
                                               },
                                               spans, longest));
      const std::string name = absl::StrCat("decode attention, past ", full, ", batch ", full_batch);
      table.Rate(name, static_cast<double>(batch * (past + 1) * 2 * h.keys * h.dim * 2), us, "GB/s", kCopy);
      bench.Drop();
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeSteps(Table& table) {
  TP_ASSIGN_OR_RETURN(const std::vector<DemoCase> cases, DemoCases());
  if (cases.empty()) return absl::DataLossError("no reference");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool graphs : {true, false}) {
      TP_ASSIGN_OR_RETURN(const std::unique_ptr<RuntimeCluster> cluster, StartDemo(graphs, dtype));
      TP_ASSIGN_OR_RETURN(Generated generated, Generate(*cluster, 1, cases[0].ids, static_cast<int>(Sized(400, 32))));
      std::vector<double>& us = generated.step_us;
      if (us.empty()) return absl::InternalError("no steps");
      std::nth_element(us.begin(), us.begin() + static_cast<ptrdiff_t>(us.size() / 2), us.end());
      table.Time(absl::StrCat("decode step of the demo model in ", std::string(DTypeName(dtype)),
                              graphs ? ", graphs" : ", call by call"),
                 us[us.size() / 2]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool Measure() {
  Table table;
  bool all = true;
  const auto attempt = [&](const std::string& name, const std::function<absl::Status()>& measure) {
    const absl::Status status = measure();
    if (status.ok()) return;
    all = false;
    std::string why(status.message());
    std::replace_if(
        why.begin(), why.end(), [](char c) { return c == '\n' || c == '\t' || c == '"' || c == '\\'; }, ' ');
    Report({"measure", absl::StrCat(name, ": ", why), "failed", 0, "", 0, ""});
    std::fprintf(stderr, "%s: %s\n", name.c_str(), why.c_str());
  };
  const auto with = [&](const std::string& name, bool tf32, const std::function<absl::Status(Bench&)>& measure) {
    attempt(name, [&]() -> absl::Status {
      TP_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench, Bench::Create(tf32));
      return measure(*bench);
    });
  };
  const std::string peak = absl::StrCat("product of BF16, m=n=k=", Sized(4096, 64));
  with("copies", false, [&](Bench& bench) { return Copies(bench, table); });
  with("rows", false, [&](Bench& bench) { return Rows(bench, table); });
  with("BF16 products", false, [&](Bench& bench) { return Products(bench, table, DType::kBF16, "BF16"); });
  with("F32 products", false, [&](Bench& bench) { return Products(bench, table, DType::kF32, "F32"); });
  with("TF32 products", true, [&](Bench& bench) { return Products(bench, table, DType::kF32, "TF32"); });
  with("prefill attention", false, [&](Bench& bench) { return Prefill(bench, table, peak); });
  with("decode attention", false, [&](Bench& bench) { return DecodeAttention(bench, table); });
  attempt("decode steps", [&] { return DecodeSteps(table); });
  return all;
}

}  // namespace tp::testing
