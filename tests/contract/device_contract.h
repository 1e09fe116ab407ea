// The suite that every Device passes, for the CPU and for any other: a factory is the parameter, references are naive
// loops in float64. Split by family (device_contract_*.h); a test binary includes them all and says
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceContract, ::testing::Values(DeviceFactory{"cpu", [] { return ...; }}));
// A device may report a failure at the call or at the next Synchronize; Done() accepts both.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/host_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/device.h"

namespace tp::testing {

using worker::ConstTensorView;
using worker::Device;
using worker::DeviceBuffer;
using worker::Stream;
using worker::TensorView;

struct DeviceFactory {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> create;
};
inline std::ostream& operator<<(std::ostream& out, const DeviceFactory& factory) { return out << factory.name; }

// A tensor in device memory.
struct DeviceTensor {
  std::unique_ptr<DeviceBuffer> buffer;
  TensorView view;
};

class DeviceContract : public ::testing::TestWithParam<DeviceFactory> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    ASSERT_TRUE(created.ok()) << created.status();
    device_ = std::move(*created);
    stream_ = device_->CreateStream();
  }

  // The status of a call and of the work that it started.
  absl::Status Done(const absl::Status& call) {
    const absl::Status later = device_->Synchronize(*stream_);
    return call.ok() ? later : call;
  }

  DeviceTensor Empty(DType dtype, const Shape& shape) {
    auto buffer = device_->Allocate(*CheckedBytes(shape, dtype));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    DeviceTensor tensor;
    tensor.buffer = std::move(*buffer);
    tensor.view = TensorView{dtype, tensor.buffer->data(), shape};
    return tensor;
  }
  DeviceTensor Put(const HostTensor& host) {
    DeviceTensor tensor = Empty(host.dtype, host.shape);
    const auto bytes = static_cast<int64_t>(host.bytes.size());
    EXPECT_TRUE(Done(device_->CopyToDevice(*stream_, host.bytes.data(), tensor.view.data, bytes)).ok());
    return tensor;
  }
  // `values` as `dtype`.
  DeviceTensor Put(DType dtype, const Shape& shape, const std::vector<double>& values) {
    return Put(ConvertTo(Host(shape, values), dtype));
  }
  DeviceTensor PutIds(const Shape& shape, const std::vector<int64_t>& values) {
    return Put(MakeHostTensor<int64_t>(shape, values));
  }
  HostTensor Get(const DeviceTensor& tensor) {
    HostTensor host{tensor.view.dtype, tensor.view.shape,
                    std::string(static_cast<size_t>(*CheckedBytes(tensor.view.shape, tensor.view.dtype)), '\0')};
    const auto bytes = static_cast<int64_t>(host.bytes.size());
    EXPECT_TRUE(Done(device_->CopyToHost(*stream_, tensor.view.data, host.bytes.data(), bytes)).ok());
    return host;
  }
  std::vector<double> Values(const DeviceTensor& tensor) { return Doubles(Get(tensor)); }
  std::vector<int64_t> Ids(const DeviceTensor& tensor) {
    const HostTensor host = Get(tensor);
    return std::vector<int64_t>(host.data<int64_t>(), host.data<int64_t>() + ElementCount(host.shape));
  }

  static HostTensor Host(const Shape& shape, const std::vector<double>& values) {
    return MakeHostTensor<double>(shape, values);
  }
  static std::vector<double> Doubles(const HostTensor& host) {
    const HostTensor wide = ConvertTo(host, DType::kF64);
    return std::vector<double>(wide.data<double>(), wide.data<double>() + ElementCount(wide.shape));
  }
  // What `dtype` holds of the values.
  static std::vector<double> AsDType(DType dtype, const std::vector<double>& values) {
    return Doubles(ConvertTo(Host({static_cast<int64_t>(values.size())}, values), dtype));
  }
  // Uniform values in [-1, 1) that `dtype` holds exactly.
  static std::vector<double> Random(DType dtype, int64_t count, uint32_t seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = uniform(generator);
    return AsDType(dtype, values);
  }
  // visit(index, row-major position) for every element of a shape.
  static void ForIndices(const Shape& shape, const std::function<void(const Shape&, size_t)>& visit) {
    Shape index(shape.size(), 0);
    for (int64_t i = 0; i < ElementCount(shape); ++i) {
      visit(index, static_cast<size_t>(i));
      for (size_t d = shape.size(); d-- > 0;) {
        if (++index[d] < shape[d]) break;
        index[d] = 0;
      }
    }
  }
  // Position of the element that `index` (of an output's) reads in a row-major operand of `shape`, which broadcasts.
  static size_t At(const Shape& shape, const Shape& index) {
    int64_t at = 0;
    const size_t skip = index.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + (shape[d] == 1 ? 0 : index[skip + d]);
    return static_cast<size_t>(at);
  }
  // Small integers that every dtype holds, of both signs; 0 and 1 for BOOL.
  static std::vector<double> Integers(DType dtype, int64_t count, uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) {
      const double number = static_cast<double>(generator() % 15) - 7;
      value = dtype == DType::kBool ? std::fmod(std::fabs(number), 2)
              : dtype == DType::kU8 ? std::fabs(number)
                                    : number;
    }
    return values;
  }

  // Rounding of a result: F32 with some accumulated error, BF16 half a unit in the last place and a bit.
  static double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 1.0 / 200 : 2e-6; }

  // |got - want| <= tolerance * max(1, |want|) everywhere; NaN and infinities must be equal.
  static void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i]) || std::isinf(want[i])) {
        EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << "at " << i << ": " << got[i];
        continue;
      }
      ASSERT_LE(std::fabs(got[i] - want[i]), tolerance * std::max(1.0, std::fabs(want[i])))
          << "at " << i << ": got " << got[i] << ", want " << want[i];
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tp::testing
