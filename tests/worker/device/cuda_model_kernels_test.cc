// Attention with its positions split over blocks, sampling, and products of mixed types: what the suite of every Device
// is too small or too general to show.
#include <cuda_runtime_api.h>
#include <fake_runtime.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/host_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/product.h"
#include "worker/runtime/sampler.h"

namespace tp::worker::cuda {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

// Device memory of the fake is host memory; copies and fills ask that it be an allocation.
class FakeBuffer : public DeviceBuffer {
 public:
  explicit FakeBuffer(int64_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, static_cast<size_t>(bytes + 1)), cudaSuccess);
  }
  ~FakeBuffer() override { cudaFree(data_); }
  void* data() override { return data_; }
  int64_t size() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  const int64_t bytes_;
};

class CudaModelKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    tp_fake::Reset(1);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }
  absl::Status Done(const absl::Status& call) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return call;
  }
  static ConstTensorView View(const HostTensor& tensor) { return {tensor.dtype, tensor.bytes.data(), tensor.shape}; }
  static TensorView Out(HostTensor& tensor) { return {tensor.dtype, tensor.bytes.data(), tensor.shape}; }
  static HostTensor Filled(DType dtype, const Shape& shape, double value) {
    return ConvertTo(
        MakeHostTensor<double>(shape, std::vector<double>(static_cast<size_t>(ElementCount(shape)), value)), dtype);
  }
  HostTensor Random(DType dtype, const Shape& shape) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> values(static_cast<size_t>(ElementCount(shape)));
    for (double& value : values) value = uniform(generator_);
    return ConvertTo(MakeHostTensor<double>(shape, values), dtype);
  }
  static std::vector<double> Doubles(const HostTensor& tensor) {
    const HostTensor wide = ConvertTo(tensor, DType::kF64);
    return {wide.data<double>(), wide.data<double>() + ElementCount(wide.shape)};
  }
  // Rounding of a value near 1.
  static double Tolerance(DType dtype) {
    return dtype == DType::kF32 ? 1e-5 : dtype == DType::kBF16 ? 1.0 / 200 : 1.0 / 1600;
  }

  std::mt19937 generator_{7};
  cudaStream_t stream_ = nullptr;
};

struct Heads {
  int64_t q, kv, dim;
};
struct Span {
  int64_t past, count;
};

class CudaAttention : public CudaModelKernels {
 protected:
  // One call over pages that hold `spans`' pasts, in scattered pages, with a token of no sequence in front; checked
  // against float64. `longest` 0: the longest there is.
  void Check(DType dtype, const Heads& h, const std::vector<Span>& spans, int64_t longest, bool wants_shares) {
    SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " heads " << h.q << "/" << h.kv << " dim " << h.dim);
    int64_t tokens = 1, page_count = 0;
    std::vector<int64_t> table;
    std::vector<int32_t> rows = {-1}, pages;
    for (size_t i = 0; i < spans.size(); ++i) {
      const int64_t length = spans[i].past + spans[i].count;
      table.insert(table.end(), {tokens, spans[i].count, spans[i].past, page_count});
      rows.insert(rows.end(), static_cast<size_t>(spans[i].count), static_cast<int32_t>(i));
      tokens += spans[i].count;
      page_count += (length + 15) / 16;
      if (longest < length) longest = length;
    }
    for (int32_t p = 0; p < page_count; ++p) pages.push_back(p);
    std::shuffle(pages.begin(), pages.end(), generator_);
    // Everything that was not written is NaN.
    const HostTensor history = Random(dtype, {page_count, 2, h.kv, 16, h.dim});
    HostTensor cache_memory = Filled(dtype, history.shape, NAN);
    const HostTensor query = Random(dtype, {tokens, h.q, h.dim}), key = Random(dtype, {tokens, h.kv, h.dim}),
                     value = Random(dtype, {tokens, h.kv, h.dim});
    const std::vector<double> old = Doubles(history), q = Doubles(query), k = Doubles(key), v = Doubles(value);
    const int64_t item = ItemSize(dtype);
    const auto at = [&](size_t s, int64_t which, int64_t head, int64_t position) {
      const int64_t page = pages[static_cast<size_t>(table[4 * s + 3] + position / 16)];
      return (((page * 2 + which) * h.kv + head) * 16 + position % 16) * h.dim;
    };
    std::vector<double> want(q.size(), 7);
    for (size_t s = 0; s < spans.size(); ++s) {
      const auto element = [&](int64_t which, int64_t head, int64_t position, int64_t d) {
        const int64_t fresh = table[4 * s] + position - spans[s].past;
        if (position < spans[s].past) return old[static_cast<size_t>(at(s, which, head, position) + d)];
        return (which == 0 ? k : v)[static_cast<size_t>((fresh * h.kv + head) * h.dim + d)];
      };
      for (int64_t position = 0; position < spans[s].past; ++position) {
        for (int64_t head = 0; head < h.kv; ++head) {
          for (int64_t which = 0; which < 2; ++which) {
            const auto offset = static_cast<size_t>(at(s, which, head, position) * item);
            std::copy_n(history.bytes.begin() + static_cast<int64_t>(offset), h.dim * item,
                        cache_memory.bytes.begin() + static_cast<int64_t>(offset));
          }
        }
      }
      for (int64_t t = 0; t < spans[s].count; ++t) {
        for (int64_t head = 0; head < h.q; ++head) {
          const int64_t row = (table[4 * s] + t) * h.q + head, kv_head = head / (h.q / h.kv);
          const int64_t sees = spans[s].past + t + 1;
          std::vector<double> weights(static_cast<size_t>(sees));
          double most = -INFINITY, total = 0;
          for (int64_t j = 0; j < sees; ++j) {
            double score = 0;
            for (int64_t d = 0; d < h.dim; ++d) {
              score += q[static_cast<size_t>(row * h.dim + d)] * element(0, kv_head, j, d) * 2.0;
            }
            weights[static_cast<size_t>(j)] = score;
            most = std::max(most, score);
          }
          for (double& weight : weights) total += weight = std::exp(weight - most);
          for (int64_t d = 0; d < h.dim; ++d) {
            double sum = 0;
            for (int64_t j = 0; j < sees; ++j) sum += weights[static_cast<size_t>(j)] * element(1, kv_head, j, d);
            want[static_cast<size_t>(row * h.dim + d)] = sum / total;
          }
        }
      }
    }
    const PagedCache cache{dtype, cache_memory.bytes.data(), page_count, h.kv, h.dim};
    AttentionArguments arguments;
    HostTensor output = Filled(dtype, query.shape, 7);
    arguments.query = View(query);
    arguments.key = View(key);
    arguments.value = View(value);
    arguments.output = Out(output);
    arguments.cache = &cache;
    arguments.scale = 2;
    const DeviceSequences sequences{
        static_cast<int64_t>(spans.size()), tokens, longest, table.data(), rows.data(), pages.data()};
    const int64_t bytes = AttentionScratchBytes(arguments, sequences);
    EXPECT_EQ(bytes > 0, wants_shares);
    std::string scratch(static_cast<size_t>(bytes), '\xff');
    ASSERT_EQ(Done(Attention(stream_, arguments, sequences, scratch.data())), absl::OkStatus());
    const std::vector<double> got = Doubles(output);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], Tolerance(dtype)) << "at " << i;
    const std::string first = output.bytes;
    ASSERT_EQ(Done(Attention(stream_, arguments, sequences, scratch.data())), absl::OkStatus());
    EXPECT_EQ(output.bytes, first);  // the same bits in a repeat
  }
};

TEST_F(CudaAttention, DecodingSplitsLongPasts) {
  for (const DType dtype : kFloats) {
    Check(dtype, {8, 2, 32}, {{700, 1}, {0, 1}, {63, 1}, {511, 1}}, 1024, true);
    Check(dtype, {4, 4, 20}, {{300, 1}}, 0, true);            // no whole packs of 16 bytes
    Check(dtype, {6, 2, 7}, {{260, 1}, {5, 1}}, 4096, true);  // most shares are empty
  }
}

TEST_F(CudaAttention, PrefillOverSeveralSequencesInOneTile) {
  for (const DType dtype : kFloats) {
    Check(dtype, {8, 2, 16}, {{0, 70}, {40, 3}, {0, 0}, {33, 1}}, 0, false);
    Check(dtype, {8, 2, 16}, {{500, 9}, {17, 40}}, 0, true);
  }
}

TEST_F(CudaAttention, LargeHeadsAndLargeGroups) {
  for (const DType dtype : kFloats) {
    Check(dtype, {10, 2, 200}, {{100, 30}, {0, 20}}, 0, true);
    Check(dtype, {2, 1, 256}, {{90, 1}}, 0, true);
    Check(dtype, {70, 1, 128}, {{20, 3}}, 0, false);  // a group over several blocks
  }
}

TEST_F(CudaAttention, OversizedHeadsAreRefused) {
  const HostTensor x = Filled(DType::kF32, {1, 1, 257}, 1);
  HostTensor output = x;
  AttentionArguments arguments;
  arguments.query = arguments.key = arguments.value = View(x);
  arguments.output = Out(output);
  EXPECT_EQ(AttentionScratchBytes(arguments, {1, 1, 4096, nullptr, nullptr, nullptr}), 0);
  EXPECT_EQ(Attention(stream_, arguments, {}, nullptr).code(), absl::StatusCode::kUnimplemented);
}

class CudaSampling : public CudaModelKernels {
 protected:
  // Every row of `logits` with every set of parameters, against the host's sampler.
  void Check(const std::vector<std::vector<float>>& logits, const std::vector<SamplingRow>& choices) {
    const auto vocabulary = static_cast<int64_t>(logits[0].size());
    std::vector<float> flat;
    std::vector<SampleParameters> parameters;
    std::vector<int64_t> want;
    int64_t most_kept = 1;
    for (const SamplingRow& choice : choices) {
      for (const std::vector<float>& row : logits) {
        flat.insert(flat.end(), row.begin(), row.end());
        parameters.push_back({choice.temperature, choice.top_p, choice.seed, choice.position, choice.top_k});
        want.push_back(SampleToken(row, choice));
      }
      most_kept = choice.top_k == 0 || most_kept == 0 ? 0 : std::max<int64_t>(most_kept, choice.top_k);
    }
    const auto rows = static_cast<int64_t>(want.size());
    std::vector<int64_t> got(want.size(), -1);
    const std::vector<double> scratch(static_cast<size_t>(SampleScratchBytes(rows, vocabulary, most_kept) / 8), NAN);
    ASSERT_EQ(Done(SampleTokens(stream_, {DType::kF32, flat.data(), {rows, vocabulary}}, parameters.data(), most_kept,
                                {DType::kI64, got.data(), {rows}}, const_cast<double*>(scratch.data()))),
              absl::OkStatus());
    EXPECT_EQ(got, want);
  }
  std::vector<float> Logits(size_t count, bool coarse) {
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> row(count);
    for (float& x : row) x = coarse ? std::round(normal(generator_)) : normal(generator_);  // coarse: many ties
    return row;
  }
  static SamplingRow Choice(double temperature, int top_k, double top_p, uint64_t seed, int64_t position) {
    SamplingRow row;
    row.temperature = temperature;
    row.top_k = top_k;
    row.top_p = top_p;
    row.seed = seed;
    row.position = position;
    return row;
  }
};

TEST_F(CudaSampling, ChoosesAsTheHostDoes) {
  const std::vector<std::vector<float>> rows = {Logits(3001, false), Logits(3001, true)};
  std::vector<SamplingRow> choices;
  for (int64_t position = 0; position < 6; ++position) {
    const uint64_t seed = uint64_t{0x9abcdef012345678} * static_cast<uint64_t>(position + 1);
    choices.push_back(Choice(0, 0, 0, seed, position));
    choices.push_back(Choice(1, 1, 0, seed, position));
    choices.push_back(Choice(0.7, 50, 0.9, seed, position));
    choices.push_back(Choice(5, 1024, 0.99, seed, position + (int64_t{1} << 33)));
  }
  Check(rows, choices);  // picked one after the other
  for (int64_t position = 0; position < 4; ++position) {
    choices.push_back(Choice(3, 0, 0, 11, position));
    choices.push_back(Choice(2, 0, 0.8, 12, position));
    choices.push_back(Choice(4, 2000, 0, 13, position));
  }
  Check(rows, choices);  // sorted
}

TEST_F(CudaSampling, OddLogitsAreGreedy) {
  const float inf = INFINITY, nan = NAN;
  const std::vector<SamplingRow> choices = {Choice(0, 0, 0, 1, 2), Choice(1, 0, 0.5, 1, 2), Choice(1, 3, 0, 1, 2)};
  Check({{1, nan, 5, nan}, {1, inf, 5, inf}, {-inf, -inf, -inf, -inf}, {-inf, 2, 2, -inf}, {-0.0f, 0, -1, 0}}, choices);
  Check({{4}}, choices);
}

class CudaProducts : public CudaModelKernels {
 protected:
  void SetUp() override {
    CudaModelKernels::SetUp();
    Create([](cudaEvent_t event) { return CudaStatus(cudaEventSynchronize(event), "waiting"); });
  }
  void Create(LtPlans::Wait wait) {
    auto created = Products::Create(
        false,
        [](int64_t bytes) -> absl::StatusOr<std::unique_ptr<DeviceBuffer>> {
          return std::make_unique<FakeBuffer>(bytes);
        },
        std::move(wait));
    ASSERT_TRUE(created.ok()) << created.status();
    products_ = std::move(*created);
  }
  // A copy of the tensor on the device.
  static std::unique_ptr<FakeBuffer> Put(const HostTensor& tensor) {
    auto buffer = std::make_unique<FakeBuffer>(static_cast<int64_t>(tensor.bytes.size()));
    std::copy(tensor.bytes.begin(), tensor.bytes.end(), static_cast<char*>(buffer->data()));
    return buffer;
  }
  void Check(DType in, DType weight_dtype, DType out, int64_t k, Activation activation, bool with_bias) {
    SCOPED_TRACE(::testing::Message() << DTypeName(in) << " x " << DTypeName(weight_dtype) << " to " << DTypeName(out)
                                      << " k=" << k << " activation " << static_cast<int>(activation));
    const int64_t m = 5, n = 6;
    const HostTensor input = Random(in, {m, k}), weight = Random(weight_dtype, {n, k}), bias = Random(in, {n});
    HostTensor output = Filled(out, {m, n}, 9);
    const auto input_memory = Put(input), weight_memory = Put(weight), bias_memory = Put(bias),
               output_memory = Put(output);
    auto packed = products_->Pack(stream_, {weight_dtype, weight_memory->data(), weight.shape});
    ASSERT_TRUE(packed.ok()) << packed.status();
    const ConstTensorView bias_view(in, bias_memory->data(), bias.shape);
    ASSERT_EQ(Done(products_->Linear(stream_, {in, input_memory->data(), input.shape}, **packed,
                                     with_bias ? &bias_view : nullptr, {out, output_memory->data(), output.shape},
                                     activation)),
              absl::OkStatus());
    std::copy_n(static_cast<const char*>(output_memory->data()), output.bytes.size(), output.bytes.begin());
    const std::vector<double> x = Doubles(input), w = Doubles(weight), b = Doubles(bias), got = Doubles(output);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double want = with_bias ? b[static_cast<size_t>(j)] : 0;
        for (int64_t c = 0; c < k; ++c) want += x[static_cast<size_t>(i * k + c)] * w[static_cast<size_t>(j * k + c)];
        if (activation == Activation::kRelu) want = std::max(want, 0.0);
        if (activation == Activation::kGelu) {
          want = 0.5 * want * (1 + std::tanh(std::sqrt(2 / M_PI) * (want + 0.044715 * want * want * want)));
        }
        ASSERT_NEAR(got[static_cast<size_t>(i * n + j)], want, Tolerance(out) * std::max(1.0, std::fabs(want)))
            << i << ", " << j;
      }
    }
  }
  std::unique_ptr<Products> products_;
};

TEST_F(CudaProducts, EveryMixOfFloatsWithBiasAndActivation) {
  for (const DType in : kFloats) {
    for (const DType weight : kFloats) {
      for (const DType out : kFloats) {
        for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
          for (const int64_t k : {0, 33}) {
            Check(in, weight, out, k, activation, true);
            Check(in, weight, out, k, activation, false);
          }
        }
      }
    }
  }
}

TEST_F(CudaProducts, AShapeIsPlannedOnce) {
  Check(DType::kF32, DType::kF32, DType::kF32, 33, Activation::kNone, true);
  const int planned = tp_fake::CallsOf("cublasLtMatmulAlgoGetHeuristic"), timed = tp_fake::CallsOf("cublasLtMatmul");
  EXPECT_EQ(planned, 1);
  EXPECT_GT(timed, 1);  // its candidates were timed
  Check(DType::kF32, DType::kF32, DType::kF32, 33, Activation::kNone, true);
  EXPECT_EQ(tp_fake::CallsOf("cublasLtMatmulAlgoGetHeuristic"), 1);
  EXPECT_EQ(tp_fake::CallsOf("cublasLtMatmul"), timed + 1);
  Check(DType::kF32, DType::kF32, DType::kF32, 33, Activation::kNone, false);
  EXPECT_EQ(tp_fake::CallsOf("cublasLtMatmulAlgoGetHeuristic"), 2);
}

// The same algorithm on every rank: that of the library's first candidate.
TEST_F(CudaProducts, NothingIsTimedUnlessAskedFor) {
  Create(nullptr);
  const int before = tp_fake::CallsOf("cublasLtMatmul");
  Check(DType::kF32, DType::kF32, DType::kF32, 33, Activation::kNone, true);
  EXPECT_EQ(tp_fake::CallsOf("cublasLtMatmul"), before + 1);
}

TEST_F(CudaProducts, ErrorsOfTheLibraryAreTold) {
  const HostTensor x = Filled(DType::kF32, {2, 2}, 1);
  HostTensor output = x;
  tp_fake::FailNext("cublasLtMatmulAlgoGetHeuristic", 15, 0);
  EXPECT_EQ(Done(products_->MatMul(stream_, View(x), View(x), Out(output))).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Done(products_->MatMul(stream_, View(x), View(x), Out(output))), absl::OkStatus());
  tp_fake::FailNext("cublasLtMatmul", 13, 0);
  EXPECT_EQ(Done(products_->MatMul(stream_, View(x), View(x), Out(output))).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tp::worker::cuda
