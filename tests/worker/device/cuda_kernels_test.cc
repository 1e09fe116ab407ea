// What the suite of every Device does not show of the CUDA kernels: conversions of odd values, sums of collectives, the
// lowest wrong position, limits.
#include <cuda_runtime_api.h>
#include <fake_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/host_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/reduce.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

constexpr DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                          DType::kI64, DType::kI32,  DType::kU8,  DType::kBool};

class CudaKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    tp_fake::Reset(1);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamDestroy(stream_);
    for (void* memory : memory_) cudaFree(memory);
  }
  // Waits for the call's work and brings the outputs back.
  absl::Status Done(const absl::Status& call) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (const auto& [device, host] : outputs_) std::memcpy(host->bytes.data(), device, host->bytes.size());
    outputs_.clear();
    return call;
  }
  void* Put(const HostTensor& tensor) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, std::max<size_t>(1, tensor.bytes.size())), cudaSuccess);
    std::memcpy(memory, tensor.bytes.data(), tensor.bytes.size());  // device memory of the fake is host memory
    memory_.push_back(memory);
    return memory;
  }
  ConstTensorView View(const HostTensor& tensor) { return {tensor.dtype, Put(tensor), tensor.shape}; }
  TensorView Out(HostTensor& tensor) {
    outputs_.emplace_back(Put(tensor), &tensor);
    return {tensor.dtype, outputs_.back().first, tensor.shape};
  }
  static HostTensor Empty(DType dtype, const Shape& shape) {
    return {dtype, shape, std::string(static_cast<size_t>(ElementCount(shape) * ItemSize(dtype)), '\x5a')};
  }

  std::vector<void*> memory_;
  std::vector<std::pair<void*, HostTensor*>> outputs_;
  cudaStream_t stream_ = nullptr;
  KernelFault fault_;
};

TEST_F(CudaKernels, CastEqualsConvertToBitForBit) {
  std::vector<double> values = {0,      -0.0,    NAN,    INFINITY, -INFINITY, 1e300,   -1e300, 3.4e38,    65504, 65519,
                                65520,  -65520,  1e-8,   5.9e-8,   1e-40,     1e-45,   1e-310, 255.9,     256,   -0.5,
                                0x1p31, -0x1p31, 0x1p63, -0x1p63,  0.1,       1.0 / 3, 2049,   0x1p24 + 1};
  // Halfway between two BF16s and a little beyond: twice rounded these would be wrong.
  for (const double sign : {1.0, -1.0}) {
    values.insert(values.end(), {sign * (1 + 0x1p-8), sign * (1 + 0x1p-8 + 0x1p-40), sign * (1 + 0x1p-11 + 0x1p-40),
                                 sign * (1 + 3 * 0x1p-8 - 0x1p-50)});
  }
  const auto count = static_cast<int64_t>(values.size());
  const HostTensor wide = MakeHostTensor<double>({count}, values);
  HostTensor whole =
      MakeHostTensor<int64_t>({6}, {INT64_MAX, INT64_MIN, (int64_t{1} << 60) + 1, (int64_t{257} << 40) + 1,
                                    -(int64_t{257} << 40) - 1, (int64_t{4097} << 30) + 1});
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      for (const HostTensor& source : {ConvertTo(wide, from), ConvertTo(whole, from)}) {
        HostTensor got = Empty(to, source.shape);
        ASSERT_TRUE(Done(Cast(stream_, View(source), Out(got))).ok());
        EXPECT_EQ(got, ConvertTo(source, to)) << DTypeName(from) << " to " << DTypeName(to);
      }
    }
  }
}

TEST_F(CudaKernels, ReduceTermsIsWhatCollectivesOfTheCpuDo) {
  struct Case {
    ReduceOp on_cpu;
    TermReduction op;
    bool divide;
  };
  for (const Case& c : {Case{ReduceOp::kSum, TermReduction::kSum, false},
                        {ReduceOp::kAvg, TermReduction::kSum, true},
                        {ReduceOp::kProduct, TermReduction::kProduct, false},
                        {ReduceOp::kMax, TermReduction::kMax, false},
                        {ReduceOp::kMin, TermReduction::kMin, false}}) {
    for (const DType dtype : kAll) {
      for (const int64_t n : {1, 3}) {
        std::vector<double> values;
        for (int64_t i = 0; i < n * 5; ++i) values.push_back(std::fmod(static_cast<double>(i) * 91.7, 251));
        if (n == 3) values[7] = NAN;
        const HostTensor terms = ConvertTo(MakeHostTensor<double>({n, 5}, values), dtype);
        HostTensor got = Empty(dtype, {5}), want = got;
        const absl::Status status =
            Done(ReduceTerms(stream_, c.op, c.divide, dtype, terms.bytes.data(), n, 5, got.bytes.data()));
        if (!CheckReduction(dtype, c.on_cpu).ok()) {
          EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
          continue;
        }
        ASSERT_TRUE(status.ok()) << status;
        std::vector<const void*> parts;
        for (int64_t t = 0; t < n; ++t) parts.push_back(terms.bytes.data() + t * 5 * ItemSize(dtype));
        worker::ReduceTerms(dtype, c.on_cpu, parts, 5, want.bytes.data());
        EXPECT_EQ(got, want) << DTypeName(dtype) << static_cast<int>(c.op) << c.divide;
      }
    }
  }
}

TEST_F(CudaKernels, TheLowestWrongPositionIsNotedAndTheFirstFaultStays) {
  std::vector<int64_t> ids(1000, 3);
  ids[411] = 9;
  ids[412] = -1;
  const HostTensor index = MakeHostTensor<int64_t>({1000}, ids),
                   table = MakeHostTensor<float>({8, 1}, std::vector<float>(8));
  HostTensor output = Empty(DType::kF32, {1000, 1});
  ASSERT_TRUE(Done(Embedding(stream_, &fault_, View(index), View(table), 0, 8, Out(output))).ok());
  EXPECT_EQ(fault_.kind, KernelFault::kIdOutside);
  EXPECT_EQ(fault_.position, 411);
  EXPECT_EQ(fault_.value, 9);
  EXPECT_EQ(fault_.limit, 8);
  const HostTensor zero = MakeHostTensor<int64_t>({1}, {0});
  HostTensor quotient = Empty(DType::kI64, {1000});
  ASSERT_TRUE(Done(Binary(stream_, &fault_, BinaryOp::kFloorDiv, View(index), View(zero), Out(quotient))).ok());
  EXPECT_EQ(fault_.kind, KernelFault::kIdOutside);
  fault_ = KernelFault();
  ASSERT_TRUE(Done(SelectRows(stream_, &fault_, View(table), View(index), Out(output))).ok());
  EXPECT_EQ(fault_.kind, KernelFault::kRowOutside);
}

TEST_F(CudaKernels, MoreDimsThanKernelsWalkAreRefused) {
  const Shape sizes(9, 2);
  const HostTensor from = Empty(DType::kU8, {1024});
  HostTensor to = Empty(DType::kU8, {512});
  const Shape strides(9, 1);  // no two join
  EXPECT_EQ(Done(CopyStrided(stream_, View(from), strides, Out(to), RowMajorStrides(sizes), sizes)).code(),
            absl::StatusCode::kUnimplemented);
  const Shape row_major = RowMajorStrides(sizes);  // all join
  EXPECT_TRUE(Done(CopyStrided(stream_, View(from), row_major, Out(to), row_major, sizes)).ok());
}

// Rows of 6 elements of 2 bytes, 8 apart: moved 4 bytes at a time; 7 apart: not.
TEST_F(CudaKernels, CopiesOfJoinedElementsAreExact) {
  std::vector<int32_t> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i);
  const HostTensor from = ConvertTo(MakeHostTensor<int32_t>({64}, values), DType::kBF16);
  for (const int64_t apart : {8, 7, 12}) {
    HostTensor to = Empty(DType::kBF16, {4, 6});
    ASSERT_TRUE(Done(CopyStrided(stream_, View(from), {apart, 1}, Out(to), {6, 1}, {4, 6})).ok());
    const HostTensor got = ConvertTo(to, DType::kI32);
    for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(got.data<int32_t>()[i], i / 6 * apart + i % 6) << apart;
  }
}

}  // namespace
}  // namespace tp::worker::cuda
