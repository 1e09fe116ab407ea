#include "nccl_comm.h"

#include <chrono>
#include <cstring>

#include "fake_runtime.h"
#include "nccl_reduce.h"

using tp_fake::Batch;
using tp_fake::ElementBytes;
using tp_fake::Fault;
using tp_fake::MessageHeader;
using tp_fake::Operation;
using Lock = std::unique_lock<std::mutex>;

ncclComm::~ncclComm() {
  aborted = true;
  if (worker_.joinable()) worker_.join();
}

void ncclComm::Start(std::function<Fault()> work) {
  WaitForStarted();
  const Lock lock(mutex_);
  started_ = true;
  polls_left_ = tp_fake::NcclPolls();
  worker_ = std::thread([this, work = std::move(work)] {
    const Fault fault = work();
    Note(fault);
    const Lock own(mutex_);
    started_ = false;
    changed_.notify_all();
  });
}

void ncclComm::WaitForStarted() {
  if (worker_.joinable()) worker_.join();
}

ncclResult_t ncclComm::Defer(std::function<Fault()> launch) {
  {
    const Lock lock(mutex_);
    if (!blocking && tp_fake::NcclPolls() > 0) {
      polls_left_ = tp_fake::NcclPolls();
      deferred_.push_back(std::move(launch));
      return ncclInProgress;
    }
  }
  return Note(launch());
}

void ncclComm::AfterStarted(std::function<Fault()> launch) {
  const Lock lock(mutex_);
  deferred_.push_back(std::move(launch));
}

ncclResult_t ncclComm::Ask() {
  std::vector<std::function<Fault()>> due;
  {
    const Lock lock(mutex_);
    if (error_ != ncclSuccess) return error_;
    if (polls_left_ > 0) {
      --polls_left_;
      return ncclInProgress;
    }
    if (started_) return ncclInProgress;
    due.swap(deferred_);
  }
  for (const auto& launch : due) {
    if (const ncclResult_t code = Note(launch()); code != ncclSuccess) return code;
  }
  return ncclSuccess;
}

bool ncclComm::busy() {
  const Lock lock(mutex_);
  return started_ || polls_left_ > 0 || !deferred_.empty();
}

ncclResult_t ncclComm::Note(const Fault& fault) {
  if (!fault) return ncclSuccess;
  const Lock lock(mutex_);
  if (error_ == ncclSuccess) {
    error_ = fault.code;
    error_text_ = fault.text;
  }
  return fault.code;
}

ncclResult_t ncclComm::error() {
  const Lock lock(mutex_);
  return error_;
}
std::string ncclComm::error_text() {
  const Lock lock(mutex_);
  return error_text_;
}

std::shared_ptr<uint64_t> ncclComm::Ticket() {
  const Lock lock(mutex_);
  outstanding_.insert(++issued_);
  return std::shared_ptr<uint64_t>(new uint64_t(issued_), [this](const uint64_t* ticket) {
    const Lock own(mutex_);
    outstanding_.erase(*ticket);
    delete ticket;
    changed_.notify_all();
  });
}

int ncclComm::outstanding() {
  const Lock lock(mutex_);
  return static_cast<int>(outstanding_.size());
}
bool ncclComm::running() {
  const Lock lock(mutex_);
  return running_ > 0;
}

void ncclComm::Abort() {
  const Lock lock(mutex_);
  aborted = true;
  changed_.notify_all();
}

void ncclComm::Free() {
  WaitForStarted();
  Lock lock(mutex_);
  deferred_.clear();
  changed_.wait(lock, [this] { return running_ == 0; });
  lock.unlock();
  const std::lock_guard run(run_mutex);
  mesh.Close();
}

void ncclComm::Run(const std::vector<Operation>& operations, const uint64_t* ticket) {
  {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return aborted || ticket == nullptr || *outstanding_.begin() == *ticket; });
    if (aborted) return;
    ++running_;
  }
  {
    const std::lock_guard run(run_mutex);
    Fault fault;
    if (const int injected = tp_fake::InjectedError("ncclAsync"); injected != 0) {
      fault = {static_cast<ncclResult_t>(injected), "an injected asynchronous error"};
    }
    std::vector<Operation> points;
    for (const Operation& operation : operations) {
      if (operation.kind >= Operation::kSend) {
        points.push_back(operation);
      } else if (!fault && !aborted) {
        fault = Collective(operation);
      }
    }
    if (!fault && !aborted && !points.empty()) fault = Points(points);
    Note(fault);
    while (fault && !aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Lock lock(mutex_);
  --running_;
  changed_.notify_all();
}

MessageHeader ncclComm::HeaderOf(const Operation& operation) const {
  MessageHeader header;
  header.kind = MessageHeader::kCollective;
  header.operation = operation.kind;
  header.type = operation.type;
  header.reduction = operation.reduction;
  header.root = operation.root;
  header.count = operation.count;
  header.sequence = sequence_;
  return header;
}

Fault ncclComm::Collective(const Operation& operation) {
  ++sequence_;
  const MessageHeader header = HeaderOf(operation);
  const size_t bytes = operation.count * ElementBytes(operation.type);
  const auto ranks = static_cast<size_t>(size);
  const auto* send = static_cast<const char*>(operation.send);
  auto* receive = static_cast<char*>(operation.receive);
  std::vector<std::vector<char>> terms(ranks);
  Batch batch(mesh, aborted);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto p = static_cast<size_t>(peer);
    switch (operation.kind) {
      case Operation::kAllReduce:
        terms[p].resize(bytes);
        batch.Send(peer, header, send, bytes);
        batch.Receive(peer, header, terms[p].data(), bytes);
        break;
      case Operation::kReduceScatter:
        terms[p].resize(bytes);
        batch.Send(peer, header, send + p * bytes, bytes);
        batch.Receive(peer, header, terms[p].data(), bytes);
        break;
      case Operation::kAllGather:
        batch.Send(peer, header, send, bytes);
        batch.Receive(peer, header, receive + p * bytes, bytes);
        break;
      case Operation::kBroadcast:
        batch.Send(peer, header, send, rank == operation.root ? bytes : 0);
        batch.Receive(peer, header, receive, peer == operation.root ? bytes : 0);
        break;
      default:  // kReduce
        terms[p].resize(bytes);
        batch.Send(peer, header, send, peer == operation.root ? bytes : 0);
        batch.Receive(peer, header, terms[p].data(), rank == operation.root ? bytes : 0);
    }
  }
  // What others write may only come in once this rank's input went out: in place, block by block, they never meet.
  if (const Fault fault = batch.Finish()) return fault;
  if (aborted) return {};
  const auto reduce = [&](const char* mine) {
    std::vector<const void*> all;
    for (size_t r = 0; r < ranks; ++r) all.push_back(static_cast<int>(r) == rank ? mine : terms[r].data());
    std::vector<char> result(bytes);
    tp_fake::ReduceInto(operation.type, operation.reduction, all, operation.count, result.data());
    std::memcpy(receive, result.data(), bytes);
  };
  const size_t me = static_cast<size_t>(rank);
  if (operation.kind == Operation::kAllReduce) reduce(send);
  if (operation.kind == Operation::kReduceScatter) reduce(send + me * bytes);
  if (operation.kind == Operation::kReduce && rank == operation.root) reduce(send);
  if (operation.kind == Operation::kAllGather) std::memmove(receive + me * bytes, send, bytes);
  if (operation.kind == Operation::kBroadcast && rank == operation.root) std::memmove(receive, send, bytes);
  return {};
}

Fault ncclComm::Points(const std::vector<Operation>& operations) {
  Batch batch(mesh, aborted);
  std::vector<const Operation*> to_self, from_self;
  for (const Operation& operation : operations) {
    const bool sends = operation.kind == Operation::kSend;
    if (operation.root == rank) {
      (sends ? to_self : from_self).push_back(&operation);
      continue;
    }
    MessageHeader header;
    header.kind = MessageHeader::kPoint;
    header.operation = Operation::kSend;
    header.type = operation.type;
    header.count = operation.count;
    const size_t bytes = operation.count * ElementBytes(operation.type);
    if (sends) {
      batch.Send(operation.root, header, operation.send, bytes);
    } else {
      batch.Receive(operation.root, header, operation.receive, bytes);
    }
  }
  if (to_self.size() != from_self.size()) {
    return {ncclInvalidUsage, "rank " + std::to_string(rank) + " sends to itself " + std::to_string(to_self.size()) +
                                  " times and receives " + std::to_string(from_self.size()) + " times"};
  }
  for (size_t i = 0; i < to_self.size(); ++i) {
    const Operation &from = *to_self[i], &to = *from_self[i];
    if (from.count != to.count || from.type != to.type) return {ncclInvalidUsage, "a send to itself of other length"};
    std::memmove(to.receive, from.send, from.count * ElementBytes(from.type));
  }
  return batch.Finish();
}
