#include "worker/device/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/one_dnn.h"
#include "worker/device/cpu/parallel.h"

namespace tp::worker {
namespace {

using one_dnn::DataType;
using one_dnn::Dims;
using one_dnn::Guarded;
using one_dnn::TypeOf;

constexpr int64_t kMostRows = 512;

dnnl::memory::desc RowMajor(int64_t rows, int64_t columns, DataType type) {
  return dnnl::memory::desc({rows, columns}, type, dnnl::memory::format_tag::ab);
}
// weight [out, in] seen as oneDNN's [in, out].
dnnl::memory::desc PlainWeight(int64_t in, int64_t out, DataType type) {
  return dnnl::memory::desc({in, out}, type, dnnl::memory::format_tag::ba);
}

class CpuPackedWeight : public PackedWeight {
 public:
  CpuPackedWeight(int64_t out, int64_t in, DType dtype, std::unique_ptr<DeviceBuffer> memory)
      : out_(out), in_(in), dtype_(dtype), memory_(std::move(memory)) {}
  int64_t out_features() const override { return out_; }
  int64_t in_features() const override { return in_; }
  DType dtype() const override { return dtype_; }
  int64_t memory_bytes() const override { return memory_->size(); }
  void* data() const { return memory_->data(); }

 private:
  const int64_t out_;
  const int64_t in_;
  const DType dtype_;
  const std::unique_ptr<DeviceBuffer> memory_;
};

// A product of one shape with the memory objects that each call points at its data.
struct Product {
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

}  // namespace

int64_t RowBucket(int64_t rows) {
  for (const int64_t bucket : {1, 2, 4, 8}) {
    if (rows <= bucket) return bucket;
  }
  return (rows + 15) / 16 * 16;
}

class Products::Impl {
 public:
  Impl(int threads, std::shared_ptr<MemoryAccount> account)
      : threads_(threads), account_(std::move(account)), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const auto isa = dnnl::get_effective_cpu_isa();
    has_bf16_ = isa == dnnl::cpu_isa::avx512_core || isa == dnnl::cpu_isa::avx512_core_vnni ||
                isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }

  bool has_bf16() const { return has_bf16_; }

  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const ConstTensorView& weight) {
    const int64_t out = weight.shape[0];
    const int64_t in = weight.shape[1];
    const DataType type = ComputeType(weight.dtype);
    const bool empty = out == 0 || in == 0;
    const int64_t bytes = empty ? 0 : static_cast<int64_t>(Layout(in, out, type).get_size());
    TP_ASSIGN_OR_RETURN(auto memory, AllocateCpuBuffer(account_, bytes));
    if (!empty) {
      const void* from = weight.data;
      std::unique_ptr<DeviceBuffer> wide;
      if (type != TypeOf(weight.dtype)) {
        TP_ASSIGN_OR_RETURN(wide, AllocateCpuBuffer(account_, out * in * 4));
        kernels::WidenBF16(static_cast<const uint16_t*>(from), static_cast<float*>(wide->data()), out * in);
        from = wide->data();
      }
      std::memset(memory->data(), 0, static_cast<size_t>(bytes));  // padding of the layout
      Reorder(PlainWeight(in, out, type), const_cast<void*>(from), Layout(in, out, type), memory->data());
    }
    return std::make_unique<CpuPackedWeight>(out, in, weight.dtype, std::move(memory));
  }

  absl::Status Unpack(const CpuPackedWeight& weight, const TensorView& plain) {
    const int64_t out = weight.out_features();
    const int64_t in = weight.in_features();
    if (out == 0 || in == 0) return absl::OkStatus();
    const DataType type = ComputeType(weight.dtype());
    if (type == TypeOf(weight.dtype())) {
      Reorder(Layout(in, out, type), weight.data(), PlainWeight(in, out, type), plain.data);
      return absl::OkStatus();
    }
    TP_ASSIGN_OR_RETURN(const auto wide, AllocateCpuBuffer(account_, out * in * 4));
    Reorder(Layout(in, out, type), weight.data(), PlainWeight(in, out, type), wide->data());
    // Widening appended zeros: cutting them off gives the bits back, those of NaNs too.
    const auto* bits = static_cast<const uint32_t*>(wide->data());
    auto* to = static_cast<uint16_t*>(plain.data);
    for (int64_t i = 0; i < out * in; ++i) to[i] = static_cast<uint16_t>(bits[i] >> 16);
    return absl::OkStatus();
  }

  absl::Status Linear(const ConstTensorView& input, const CpuPackedWeight& weight, const ConstTensorView* bias,
                      const TensorView& output, int64_t rows) {
    const int64_t out = weight.out_features();
    const int64_t in = weight.in_features();
    const DataType type = ComputeType(weight.dtype());
    const DataType out_type = type == DataType::bf16 ? TypeOf(output.dtype) : DataType::f32;
    const void* bias_data = bias == nullptr ? nullptr : bias->data;
    if (bias != nullptr && TypeOf(bias->dtype) != type) {
      TP_ASSIGN_OR_RETURN(void* wide, Scratch(2, out * 4));
      kernels::WidenBF16(static_cast<const uint16_t*>(bias_data), static_cast<float*>(wide), out);
      bias_data = wide;
    }
    for (int64_t first = 0; first < rows; first += kMostRows) {
      const int64_t count = std::min(kMostRows, rows - first);
      const int64_t bucket = RowBucket(count);
      const char* from = static_cast<const char*>(input.data) + first * in * ItemSize(input.dtype);
      char* to = static_cast<char*>(output.data) + first * out * ItemSize(output.dtype);
      const void* source = from;
      if (bucket != count || TypeOf(input.dtype) != type) {
        TP_ASSIGN_OR_RETURN(void* copy, PaddedInput(from, input.dtype, type, count, bucket, in));
        source = copy;
      }
      void* target = to;
      const bool direct = bucket == count && TypeOf(output.dtype) == out_type;
      if (!direct) {
        TP_ASSIGN_OR_RETURN(target, Scratch(1, bucket * out * 4));
      }
      Product& product = Find(in, out, bucket, type, out_type, bias != nullptr);
      product.arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(source));
      product.arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(weight.data());
      product.arguments.at(DNNL_ARG_DST).set_data_handle(target);
      if (bias != nullptr) product.arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(bias_data));
      product.primitive.execute(stream_, product.arguments);
      stream_.wait();
      if (direct) continue;
      if (TypeOf(output.dtype) == out_type) {
        std::memcpy(to, target, static_cast<size_t>(count * out * ItemSize(output.dtype)));
      } else {
        kernels::RoundToBF16(static_cast<const float*>(target), reinterpret_cast<uint16_t*>(to), count * out);
      }
    }
    return absl::OkStatus();
  }

 private:
  using LayoutKey = std::tuple<int64_t, int64_t, int>;
  using ProductKey = std::tuple<int64_t, int64_t, int64_t, int, int, bool>;

  // The type that products with weights of `dtype` run in.
  DataType ComputeType(DType dtype) const {
    return dtype == DType::kBF16 && has_bf16_ ? DataType::bf16 : DataType::f32;
  }

  // The packed layout of a weight, one for every number of rows: the layout that oneDNN likes. Where that is a plain
  // [in, out] whose rows are a multiple of 1 KiB apart, they are moved apart by 64 bytes more: such rows fall into the
  // same few sets of the cache, which made products of 4096 x 4096 half as fast.
  const dnnl::memory::desc& Layout(int64_t in, int64_t out, DataType type) {
    const LayoutKey key{in, out, static_cast<int>(type)};
    const auto found = layouts_.find(key);
    if (found != layouts_.end()) return found->second;
    SetThreads(threads_);
    constexpr int64_t kTypicalRows = 16;
    const dnnl::memory::desc any({in, out}, type, dnnl::memory::format_tag::any);
    const dnnl::matmul::desc operation(RowMajor(kTypicalRows, in, type), any, RowMajor(kTypicalRows, out, type));
    dnnl::memory::desc layout = dnnl::matmul::primitive_desc(operation, engine_).weights_desc();
    const int64_t item = type == DataType::bf16 ? 2 : 4;
    if (layout == RowMajor(in, out, type) && out * item % 1024 == 0) {
      layout = dnnl::memory::desc(Dims{in, out}, type, Dims{out + 64 / item, 1});
    }
    return layouts_.emplace(key, layout).first->second;
  }

  Product& Find(int64_t in, int64_t out, int64_t rows, DataType type, DataType out_type, bool bias) {
    const ProductKey key{in, out, rows, static_cast<int>(type), static_cast<int>(out_type), bias};
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    const auto source = RowMajor(rows, in, type);
    const auto& weight = Layout(in, out, type);
    const auto target = RowMajor(rows, out, out_type);
    const auto offset = RowMajor(1, out, type);
    const auto operation =
        bias ? dnnl::matmul::desc(source, weight, offset, target) : dnnl::matmul::desc(source, weight, target);
    Product product;
    product.primitive = dnnl::matmul(dnnl::matmul::primitive_desc(operation, engine_));
    product.arguments.emplace(DNNL_ARG_SRC, dnnl::memory(source, engine_, DNNL_MEMORY_NONE));
    product.arguments.emplace(DNNL_ARG_WEIGHTS, dnnl::memory(weight, engine_, DNNL_MEMORY_NONE));
    product.arguments.emplace(DNNL_ARG_DST, dnnl::memory(target, engine_, DNNL_MEMORY_NONE));
    if (bias) product.arguments.emplace(DNNL_ARG_BIAS, dnnl::memory(offset, engine_, DNNL_MEMORY_NONE));
    return products_.emplace(key, std::move(product)).first->second;
  }

  void Reorder(const dnnl::memory::desc& from, void* source, const dnnl::memory::desc& to, void* target) {
    dnnl::memory a(from, engine_, source);
    dnnl::memory b(to, engine_, target);
    dnnl::reorder(a, b).execute(stream_, a, b);
    stream_.wait();
  }

  // `count` rows of the input in the type of the product, followed by zeros up to `bucket` rows.
  absl::StatusOr<void*> PaddedInput(const char* from, DType dtype, DataType type, int64_t count, int64_t bucket,
                                    int64_t in) {
    const int64_t item = type == DataType::bf16 ? 2 : 4;
    TP_ASSIGN_OR_RETURN(void* copy, Scratch(0, bucket * in * item));
    if (TypeOf(dtype) == type) {
      std::memcpy(copy, from, static_cast<size_t>(count * in * item));
    } else {
      kernels::WidenBF16(reinterpret_cast<const uint16_t*>(from), static_cast<float*>(copy), count * in);
    }
    std::memset(static_cast<char*>(copy) + count * in * item, 0, static_cast<size_t>((bucket - count) * in * item));
    return copy;
  }

  // A block that grows and is kept; valid until the next call with the same index.
  absl::StatusOr<void*> Scratch(size_t index, int64_t bytes) {
    std::unique_ptr<DeviceBuffer>& block = scratch_[index];
    if (block == nullptr || block->size() < bytes) {
      block.reset();
      TP_ASSIGN_OR_RETURN(block, AllocateCpuBuffer(account_, bytes));
    }
    return block->data();
  }

  const int threads_;
  const std::shared_ptr<MemoryAccount> account_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  bool has_bf16_ = false;
  std::map<LayoutKey, dnnl::memory::desc> layouts_;
  std::map<ProductKey, Product> products_;
  std::unique_ptr<DeviceBuffer> scratch_[3];  // input, output, bias
};

absl::StatusOr<std::unique_ptr<Products>> Products::Create(int threads, std::shared_ptr<MemoryAccount> account) {
  SetThreads(threads);
  std::unique_ptr<Impl> impl;
  TP_RETURN_IF_ERROR(Guarded("starting", [&] {
    impl = std::make_unique<Impl>(threads, std::move(account));
    return absl::OkStatus();
  }));
  return std::unique_ptr<Products>(new Products(std::move(impl)));
}
Products::Products(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Products::~Products() = default;

bool Products::HasBF16() const { return impl_->has_bf16(); }

absl::StatusOr<std::unique_ptr<PackedWeight>> Products::Pack(const ConstTensorView& weight) {
  if (weight.dtype != DType::kF32 && weight.dtype != DType::kBF16) {
    return kernels::Unimplemented("linear's weight", weight.dtype);
  }
  if (weight.shape.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("linear: weight ", ShapeText(weight.shape), " is not [out, in]"));
  }
  std::unique_ptr<PackedWeight> result;
  TP_RETURN_IF_ERROR(Guarded("packing a weight", [&]() -> absl::Status {
    TP_ASSIGN_OR_RETURN(result, impl_->Pack(weight));
    return absl::OkStatus();
  }));
  return result;
}

absl::Status Products::Unpack(const PackedWeight& weight, const TensorView& plain) {
  const auto& packed = static_cast<const CpuPackedWeight&>(weight);
  if (plain.dtype != packed.dtype() || plain.shape != Shape{packed.out_features(), packed.in_features()}) {
    return absl::InvalidArgumentError(absl::StrCat("unpack_weight: weight [", packed.out_features(), ", ",
                                                   packed.in_features(), "] to ", ShapeText(plain.shape),
                                                   " or to another dtype"));
  }
  return Guarded("unpacking a weight", [&] { return impl_->Unpack(packed, plain); });
}

absl::Status Products::Linear(const ConstTensorView& input, const PackedWeight& weight, const ConstTensorView* bias,
                              const TensorView& output) {
  const auto& packed = static_cast<const CpuPackedWeight&>(weight);
  const int64_t out = packed.out_features();
  const int64_t in = packed.in_features();
  const int64_t rows = RowCount(input.shape);
  if (output.dtype != DType::kF32 && output.dtype != DType::kBF16) {
    return kernels::Unimplemented("linear's output", output.dtype);
  }
  if (input.dtype != packed.dtype() || (bias != nullptr && bias->dtype != input.dtype)) {
    return absl::InvalidArgumentError("linear: input, weight and bias must have one dtype");
  }
  if (RowSize(input.shape) != in || RowSize(output.shape) != out || RowCount(output.shape) != rows ||
      (bias != nullptr && ElementCount(bias->shape) != out)) {
    return absl::InvalidArgumentError(absl::StrCat("linear: input ", ShapeText(input.shape), " by weight [", out, ", ",
                                                   in, "] to ", ShapeText(output.shape)));
  }
  if (rows == 0 || out == 0) return absl::OkStatus();
  if (in == 0) {  // oneDNN divides by it
    const int64_t item = ItemSize(output.dtype);
    for (int64_t r = 0; r < rows; ++r) {
      auto* to = static_cast<char*>(output.data) + r * out * item;
      std::memset(to, 0, static_cast<size_t>(out * item));
      if (bias == nullptr) continue;
      TP_RETURN_IF_ERROR(kernels::Cast(1, ConstTensorView(bias->dtype, bias->data, {out}), {output.dtype, to, {out}}));
    }
    return absl::OkStatus();
  }
  return Guarded("a product", [&] { return impl_->Linear(input, packed, bias, output, rows); });
}

}  // namespace tp::worker
