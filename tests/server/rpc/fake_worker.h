// A worker that keeps the bytes of tensors in memory and says yes to everything, over real streams. Example:
//   FakeWorker worker(endpoint, "w0");   // joins; ends with its destructor
#pragma once

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/layout/boxes.h"
#include "common/proto_convert/command.h"
#include "common/rpc/channel.h"
#include "common/rpc/chunk.h"
#include "common/tensor/host_tensor.h"
#include "tp/v1/membership.grpc.pb.h"
#include "tp/v1/worker.grpc.pb.h"

namespace tp::server {

class FakeWorker {
 public:
  FakeWorker(const std::string& endpoint, std::string id)
      : id_(std::move(id)),
        channel_(CreateChannel(endpoint)),
        membership_(v1::MembershipService::NewStub(channel_)),
        workers_(v1::WorkerService::NewStub(channel_)) {
    session_ = membership_->Session(&session_context_);
    v1::SessionRequest join;
    join.mutable_join()->set_worker_id(id_);
    join.mutable_join()->set_incarnation(id_ + "-1");
    join.mutable_join()->set_version("test");
    session_->Write(join);
    v1::SessionResponse welcome;
    EXPECT_TRUE(session_->Read(&welcome));
    check_collectives_ = welcome.welcome().check_collectives();
    commands_ = workers_->Commands(&commands_context_);
    v1::CommandsRequest hello;
    hello.mutable_hello()->set_worker_id(id_);
    hello.mutable_hello()->set_incarnation(id_ + "-1");
    hello.mutable_hello()->set_term(welcome.welcome().term());
    commands_->Write(hello);
    threads_.emplace_back([this] { Serve(); });
  }
  ~FakeWorker() { Stop(); }
  // As if its process had died.
  void Stop() {
    session_context_.TryCancel();
    commands_context_.TryCancel();
    // The first one starts the others.
    for (bool any = true; any;) {
      std::vector<std::thread> threads;
      {
        absl::MutexLock lock(&mutex_);
        threads.swap(threads_);
      }
      any = !threads.empty();
      for (std::thread& thread : threads) thread.join();
    }
  }

  bool check_collectives() const { return check_collectives_; }
  // The newest tensor's block.
  std::string NewestBlock() {
    absl::MutexLock lock(&mutex_);
    return tensors_.empty() ? "" : tensors_.rbegin()->second.bytes;
  }
  size_t TensorCount() {
    absl::MutexLock lock(&mutex_);
    return tensors_.size();
  }

 private:
  struct Held {
    DType dtype = DType::kF32;
    Shape shape;
    Placements placements;
    Mesh mesh;
    int rank = 0;
    std::string bytes;
  };

  void Serve() {
    v1::CommandsResponse response;
    while (commands_->Read(&response)) {
      if (response.has_stage()) {
        const absl::StatusOr<Stage> stage = StageFromProto(response.stage());
        ASSERT_TRUE(stage.ok()) << stage.status();
        Take(*stage);
      } else if (response.has_command()) {
        const absl::StatusOr<Command> command = CommandFromProto(response.command());
        ASSERT_TRUE(command.ok()) << command.status();
        if (const auto* drop = std::get_if<DropTensors>(&command->kind)) {
          absl::MutexLock lock(&mutex_);
          for (const uint64_t id : drop->tensor_ids) tensors_.erase(id);
        }
        v1::CommandsRequest ack;
        ack.mutable_ack()->set_sequence(command->sequence);
        ack.mutable_ack()->set_order(command->order);
        Write(ack);
      }
    }
  }

  void Take(const Stage& stage) {
    StageResult result;
    result.stage_id = stage.stage_id;
    if (std::holds_alternative<StageListen>(stage.kind)) result.address = id_;
    if (const auto* tensors = std::get_if<StageTensors>(&stage.kind)) {
      const NewTensor& made = tensors->tensors[0];
      Held held{made.state.dtype, made.state.shape, made.state.placements, tensors->mesh, tensors->rank, ""};
      const Coordinate coordinate = held.mesh.CoordinateOf(held.rank);
      const size_t size = static_cast<size_t>(
          ElementCount(LocalShape(held.shape, held.placements, held.mesh, coordinate)) * ItemSize(held.dtype));
      const uint64_t id = made.tensor_id, transfer = made.transfer_id;
      const bool receives = made.origin == NewTensor::Origin::kTransfer;
      return Start([this, held = std::move(held), id, transfer, receives, size, result]() mutable {
        if (receives) held.bytes = Download(transfer);
        if (held.bytes.size() != size && receives) result.status = absl::UnavailableError("the transfer ended early");
        held.bytes.resize(size);
        {
          absl::MutexLock lock(&mutex_);
          tensors_[id] = std::move(held);
        }
        Report(result);
      });
    }
    if (const auto* send = std::get_if<StageSend>(&stage.kind)) {
      Held held;
      {
        absl::MutexLock lock(&mutex_);
        held = tensors_.at(send->tensor_id);
      }
      Start([this, held = std::move(held), transfer = send->transfer_id] { Upload(held, transfer); });
    }
    Report(result);
  }

  v1::DataRequest Hello(uint64_t transfer, bool upload) {
    v1::DataRequest hello;
    hello.mutable_hello()->set_worker_id(id_);
    hello.mutable_hello()->set_incarnation(id_ + "-1");
    hello.mutable_hello()->set_transfer_id(transfer);
    hello.mutable_hello()->set_upload(upload);
    return hello;
  }

  std::string Download(uint64_t transfer) {
    grpc::ClientContext context;
    auto stream = workers_->Data(&context);
    stream->Write(Hello(transfer, false));
    stream->WritesDone();
    std::string bytes;
    v1::DataResponse response;
    while (stream->Read(&response)) {
      EXPECT_TRUE(CheckChunk(response.chunk()).ok());
      EXPECT_EQ(response.chunk().offset(), bytes.size());
      bytes += response.chunk().data();
    }
    return stream->Finish().ok() ? bytes : "";
  }

  void Upload(const Held& held, uint64_t transfer) {
    grpc::ClientContext context;
    auto stream = workers_->Data(&context);
    stream->Write(Hello(transfer, true));
    const Coordinate coordinate = held.mesh.CoordinateOf(held.rank);
    const Shape local = LocalShape(held.shape, held.placements, held.mesh, coordinate);
    uint32_t index = 0;
    for (const Box& box : LocalBoxes(held.shape, held.placements, held.mesh, coordinate)) {
      std::string bytes(static_cast<size_t>(ElementCount(box.shape) * ItemSize(held.dtype)), '\0');
      CopyBox(held.bytes.data(), local, box.local, bytes.data(), box.shape, Shape(box.shape.size(), 0), box.shape,
              ItemSize(held.dtype));
      for (uint64_t offset = 0; offset < bytes.size(); offset += kChunkBytes) {
        v1::DataRequest request;
        *request.mutable_chunk() = MakeChunk(index, bytes, offset);
        if (!stream->Write(request)) break;
      }
      ++index;
    }
    stream->WritesDone();
    stream->Finish();
  }

  void Report(const StageResult& result) {
    v1::CommandsRequest request;
    StageResultToProto(result, request.mutable_stage_result());
    Write(request);
  }
  void Write(const v1::CommandsRequest& request) {
    absl::MutexLock lock(&write_mutex_);
    commands_->Write(request);
  }
  void Start(std::function<void()> work) {
    absl::MutexLock lock(&mutex_);
    threads_.emplace_back(std::move(work));
  }

  const std::string id_;
  bool check_collectives_ = false;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::MembershipService::Stub> membership_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
  grpc::ClientContext session_context_, commands_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> session_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::CommandsRequest, v1::CommandsResponse>> commands_;
  absl::Mutex mutex_, write_mutex_;
  std::map<uint64_t, Held> tensors_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tp::server
