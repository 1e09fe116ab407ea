// Ranks of one communicator as threads of this process, for every backend. Example:
//   Ranks ranks(Kind::kGloo, 3);
//   ranks.Run([](Communicator& comm) { return comm.Barrier({0, 1, 2}, Soon()); });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/tensor/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/contract/synced_nccl.h"
#include "worker/collective/communicator.h"
#include "worker/collective/gloo/gloo_backend.h"
#include "worker/collective/in_process/in_process_backend.h"

namespace tp::worker {

// kNccl: over fakes of NCCL and CUDA, with a host group in process.
enum class Kind { kInProcess, kGloo, kNccl };

// Gloo is not built for thread sanitizer, and NCCL's fake and communicator have not been made clean under it.
inline std::vector<Kind> Kinds() {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return {Kind::kInProcess};
#endif
#endif
  return {Kind::kInProcess, Kind::kGloo, Kind::kNccl};
}
inline std::string KindName(const ::testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kGloo ? "Gloo" : info.param == Kind::kNccl ? "Nccl" : "InProcess";
}

// Far enough not to be met in a test that passes.
inline absl::Time Soon() { return absl::Now() + absl::Seconds(60); }
// What ends before this was ended by an abort or a lost peer and not by a deadline, however busy the machine is.
inline constexpr absl::Duration kFarFromTheDeadline = absl::Seconds(30);

inline std::vector<int> Upto(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class NoStream : public Stream {};

// Makes the backends of one test; all of one kind meet each other. Those of kNccl have a GPU each.
class Backends {
 public:
  explicit Backends(Kind kind) : kind_(kind), hub_(CreateInProcessHub()) {}
  std::unique_ptr<CollectiveBackend> Create() {
    if (kind_ == Kind::kInProcess) return CreateInProcessBackend(hub_);
    if (kind_ == Kind::kNccl) return CreateSyncedNcclBackend(gpus_++ % kFakeGpus, CreateInProcessBackend(hub_));
    absl::StatusOr<std::unique_ptr<CollectiveBackend>> backend = CreateGlooBackend("127.0.0.1");
    TP_CHECK(backend.ok());
    return *std::move(backend);
  }

 private:
  const Kind kind_;
  const std::shared_ptr<InProcessHub> hub_;
  int gpus_ = 0;
};

struct Outcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
};
inline Outcome OutcomeOf(const absl::Status& status) { return {status.code(), std::string(status.message())}; }

class Ranks {
 public:
  using Decorate = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
  // `decorate`: around each rank's communicator, where given.
  Ranks(Kind kind, int size, const Decorate& decorate = nullptr) : communicators_(static_cast<size_t>(size)) {
    Backends backends(kind);
    std::vector<std::unique_ptr<Connector>> connectors;
    std::vector<std::string> addresses;
    for (int r = 0; r < size; ++r) {
      auto connector = backends.Create()->Listen(r, size);
      TP_CHECK(connector.ok());
      connectors.push_back(*std::move(connector));
      addresses.push_back(connectors.back()->Address());
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        auto communicator = connectors[r]->Connect(addresses, Soon());
        EXPECT_TRUE(communicator.ok()) << communicator.status();
        if (communicator.ok()) communicators_[r] = *std::move(communicator);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& communicator : communicators_) {
      TP_CHECK(communicator != nullptr);
      if (decorate) communicator = decorate(std::move(communicator));
    }
  }

  int size() const { return static_cast<int>(communicators_.size()); }
  Communicator& operator[](int rank) { return *communicators_[rank]; }
  void Destroy(int rank) { communicators_[rank].reset(); }

  // `work` on each of the ranks, each in a thread of its own.
  std::vector<Outcome> RunOn(const std::vector<int>& ranks, const std::function<absl::Status(Communicator&)>& work) {
    std::vector<Outcome> outcomes(communicators_.size());
    std::vector<std::thread> threads;
    for (int r : ranks) {
      threads.emplace_back([&, r] { outcomes[r] = OutcomeOf(work(*communicators_[r])); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  // On all ranks, and all succeed.
  void Run(const std::function<absl::Status(Communicator&)>& work) {
    const std::vector<Outcome> outcomes = RunOn(Upto(size()), work);
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(outcomes[r].code, absl::StatusCode::kOk) << "rank " << r << ": " << outcomes[r].message;
    }
  }

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

// An array of any dtype, written and read as doubles.
class Array {
 public:
  Array(DType dtype, int64_t count) : dtype_(dtype), count_(count), words_((count * ItemSize(dtype) + 15) / 8) {}
  template <typename ValueOf>
  Array(DType dtype, int64_t count, ValueOf value_of) : Array(dtype, count) {
    for (int64_t i = 0; i < count; ++i) Set(i, value_of(i));
  }
  void* data() { return words_.data(); }
  const void* data() const { return words_.data(); }
  int64_t count() const { return count_; }
  double Get(int64_t i) const {
    switch (dtype_) {
      case DType::kF32:
        return At<float>(i);
      case DType::kBF16:
        return FloatFromBF16(At<uint16_t>(i));
      case DType::kF16:
        return FloatFromF16(At<uint16_t>(i));
      case DType::kF64:
        return At<double>(i);
      case DType::kI64:
        return static_cast<double>(At<int64_t>(i));
      case DType::kI32:
        return At<int32_t>(i);
      default:
        return At<uint8_t>(i);
    }
  }
  void Set(int64_t i, double value) {
    switch (dtype_) {
      case DType::kF32:
        At<float>(i) = static_cast<float>(value);
        break;
      case DType::kBF16:
        At<uint16_t>(i) = BF16FromFloat(static_cast<float>(value));
        break;
      case DType::kF16:
        At<uint16_t>(i) = F16FromFloat(static_cast<float>(value));
        break;
      case DType::kF64:
        At<double>(i) = value;
        break;
      case DType::kI64:
        At<int64_t>(i) = static_cast<int64_t>(value);
        break;
      case DType::kI32:
        At<int32_t>(i) = static_cast<int32_t>(value);
        break;
      default:
        At<uint8_t>(i) = static_cast<uint8_t>(value);
    }
  }
  // The value as the dtype holds it.
  double Rounded(double value) const {
    Array one(dtype_, 1);
    one.Set(0, value);
    return one.Get(0);
  }

 private:
  template <typename T>
  T& At(int64_t i) {
    return reinterpret_cast<T*>(words_.data())[i];
  }
  template <typename T>
  const T& At(int64_t i) const {
    return reinterpret_cast<const T*>(words_.data())[i];
  }
  const DType dtype_;
  const int64_t count_;
  std::vector<double> words_;
};

// The first place where `array` differs from `expected(i)`; -1 for none.
template <typename Expected>
int64_t FirstDifference(const Array& array, Expected expected) {
  for (int64_t i = 0; i < array.count(); ++i) {
    if (array.Get(i) != expected(i)) return i;
  }
  return -1;
}

}  // namespace tp::worker
