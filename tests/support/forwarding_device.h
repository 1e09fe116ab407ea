// A Device that passes every call on, for tests that make one of them fail. Example:
//   struct Faulty : ForwardingDevice { absl::Status Linear(...) override { return absl::InternalError("broken"); } };
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "worker/device/device.h"

namespace tp::testing {

class ForwardingDevice : public worker::Device {
 public:
  using Stream = worker::Stream;
  using In = worker::ConstTensorView;
  using Out = worker::TensorView;
  explicit ForwardingDevice(std::unique_ptr<worker::Device> device) : device_(std::move(device)) {}

  std::string Describe() const override { return device_->Describe(); }
  bool HasProduct(DType dtype) const override { return device_->HasProduct(dtype); }
  std::unique_ptr<Stream> CreateStream() override { return device_->CreateStream(); }
  absl::Status Synchronize(Stream& s) override { return device_->Synchronize(s); }
  absl::StatusOr<std::unique_ptr<worker::DeviceBuffer>> Allocate(int64_t bytes) override {
    return device_->Allocate(bytes);
  }
  absl::Status CopyToDevice(Stream& s, const void* host, void* device, int64_t bytes) override {
    return device_->CopyToDevice(s, host, device, bytes);
  }
  absl::Status CopyToHost(Stream& s, const void* device, void* host, int64_t bytes) override {
    return device_->CopyToHost(s, device, host, bytes);
  }
  absl::Status CopyOnDevice(Stream& s, const void* from, void* to, int64_t bytes) override {
    return device_->CopyOnDevice(s, from, to, bytes);
  }
  absl::Status FillZero(Stream& s, void* device, int64_t bytes) override { return device_->FillZero(s, device, bytes); }
  absl::Status CopyBox(Stream& s, const In& from, absl::Span<const int64_t> from_offset, const Out& to,
                       absl::Span<const int64_t> to_offset, absl::Span<const int64_t> sizes) override {
    return device_->CopyBox(s, from, from_offset, to, to_offset, sizes);
  }
  absl::Status CopyStrided(Stream& s, const In& from, absl::Span<const int64_t> from_strides, const Out& to,
                           absl::Span<const int64_t> to_strides, absl::Span<const int64_t> sizes) override {
    return device_->CopyStrided(s, from, from_strides, to, to_strides, sizes);
  }
  absl::Status Arange(Stream& s, int64_t start, int64_t step, const Out& output) override {
    return device_->Arange(s, start, step, output);
  }
  absl::StatusOr<std::unique_ptr<worker::PackedWeight>> PackWeight(Stream& s, const In& weight) override {
    return device_->PackWeight(s, weight);
  }
  absl::Status UnpackWeight(Stream& s, const worker::PackedWeight& weight, const Out& plain) override {
    return device_->UnpackWeight(s, weight, plain);
  }
  absl::Status Linear(Stream& s, const In& input, const worker::PackedWeight& weight, const In* bias,
                      const Out& output) override {
    return device_->Linear(s, input, weight, bias, output);
  }
  absl::Status MatMul(Stream& s, const In& a, const In& b, const Out& output) override {
    return device_->MatMul(s, a, b, output);
  }
  absl::Status Convolution(Stream& s, const worker::ConvolutionArguments& arguments) override {
    return device_->Convolution(s, arguments);
  }
  absl::Status Embedding(Stream& s, const In& ids, const In& table, int64_t row_begin, int64_t vocabulary,
                         const Out& output) override {
    return device_->Embedding(s, ids, table, row_begin, vocabulary, output);
  }
  absl::Status RmsNorm(Stream& s, const In& input, const In& weight, double eps, const Out& output) override {
    return device_->RmsNorm(s, input, weight, eps, output);
  }
  absl::Status LayerNorm(Stream& s, const In& input, const In* weight, const In* bias, int dims, double eps,
                         const Out& output) override {
    return device_->LayerNorm(s, input, weight, bias, dims, eps, output);
  }
  absl::Status Rotary(Stream& s, const In& input, const In& positions, double theta, const Out& output) override {
    return device_->Rotary(s, input, positions, theta, output);
  }
  absl::Status Attention(Stream& s, const worker::AttentionArguments& arguments) override {
    return device_->Attention(s, arguments);
  }
  absl::Status Unary(Stream& s, worker::UnaryOp op, const In& input, const Out& output) override {
    return device_->Unary(s, op, input, output);
  }
  absl::Status Binary(Stream& s, worker::BinaryOp op, const In& a, const In& b, const Out& output) override {
    return device_->Binary(s, op, a, b, output);
  }
  absl::Status BinaryScalar(Stream& s, worker::BinaryOp op, const In& a, double b, const Out& output) override {
    return device_->BinaryScalar(s, op, a, b, output);
  }
  absl::Status Where(Stream& s, const In& condition, const In& a, const In& b, const Out& output) override {
    return device_->Where(s, condition, a, b, output);
  }
  absl::Status MaskedFill(Stream& s, const In& input, const In& mask, double value, const Out& output) override {
    return device_->MaskedFill(s, input, mask, value, output);
  }
  absl::Status Scale(Stream& s, const In& input, double factor, const Out& output) override {
    return device_->Scale(s, input, factor, output);
  }
  absl::Status Cast(Stream& s, const In& input, const Out& output) override { return device_->Cast(s, input, output); }
  absl::Status Softmax(Stream& s, const In& input, int dim, const Out& output) override {
    return device_->Softmax(s, input, dim, output);
  }
  absl::Status LogSoftmax(Stream& s, const In& input, int dim, const Out& output) override {
    return device_->LogSoftmax(s, input, dim, output);
  }
  absl::Status Reduce(Stream& s, worker::Reduction op, const In& input, absl::Span<const int> dims, double divisor,
                      const Out& output) override {
    return device_->Reduce(s, op, input, dims, divisor, output);
  }
  absl::Status ArgExtreme(Stream& s, worker::Extreme which, const In& input, int dim, const Out* values,
                          const Out& indices) override {
    return device_->ArgExtreme(s, which, input, dim, values, indices);
  }
  absl::Status TopK(Stream& s, const In& input, int64_t k, int dim, const Out& values, const Out& indices) override {
    return device_->TopK(s, input, k, dim, values, indices);
  }
  absl::Status Gather(Stream& s, const In& input, const In& index, int dim, int64_t begin, int64_t limit,
                      std::optional<int64_t> ignored, const Out& output) override {
    return device_->Gather(s, input, index, dim, begin, limit, ignored, output);
  }
  absl::Status Transpose(Stream& s, const In& input, absl::Span<const int> permutation, const Out& output) override {
    return device_->Transpose(s, input, permutation, output);
  }
  absl::Status SelectRows(Stream& s, const In& input, const In& rows, const Out& output) override {
    return device_->SelectRows(s, input, rows, output);
  }

 private:
  const std::unique_ptr<worker::Device> device_;
};

}  // namespace tp::testing
