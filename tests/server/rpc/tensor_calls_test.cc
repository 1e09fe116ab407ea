// Puts and gets through a whole coordinator, with workers that only keep bytes.
#include <gmock/gmock.h>

#include <thread>

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "server/rpc/coordinator_server.h"
#include "tests/server/rpc/fake_worker.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::server {
namespace {

using ::testing::HasSubstr;

class TensorCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CoordinatorServerOptions options;
    options.listen = "127.0.0.1:0";
    options.version = "test";
    options.time_scale = 100;  // no heartbeats are sent
    options.check_collectives = true;
    auto started = CoordinatorServer::Start(options, &clock_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    for (const char* id : {"w0", "w1"}) workers_.push_back(std::make_unique<FakeWorker>(server_->endpoint(), id));
    stub_ = v1::CoordinatorService::NewStub(CreateChannel(server_->endpoint()));
    v1::CreateMeshRequest request;
    request.set_name("m");
    v1::MeshAxis* axis = request.mutable_mesh()->add_axes();
    axis->set_name("tp");
    axis->set_size(2);
    v1::CreateMeshResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->CreateMesh(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.mesh().state(), v1::MESH_STATE_READY);
    EXPECT_EQ(response.mesh().workers(1), "w1");
  }
  void TearDown() override {
    workers_.clear();
    if (server_ != nullptr) server_->Stop(absl::ZeroDuration(), nullptr);
  }

  // U8 [rows, columns], S(dim).
  static v1::PutTensorHeader Header(const std::string& name, int64_t rows, int64_t columns, int dim) {
    v1::PutTensorHeader header;
    header.set_name(name);
    header.set_mesh("m");
    header.set_dtype(v1::U8);
    header.add_shape(rows);
    header.add_shape(columns);
    (*header.mutable_placements())["tp"].mutable_shard()->set_dim(dim);
    return header;
  }
  // Sends `bytes` as the global tensor, `extra` after it.
  grpc::Status Put(const v1::PutTensorHeader& header, const std::string& bytes, v1::PutTensorResponse* response,
                   const std::string& extra = "") {
    grpc::ClientContext context;
    auto writer = stub_->PutTensor(&context, response);
    v1::PutTensorRequest request;
    *request.mutable_header() = header;
    bool open = writer->Write(request);
    for (uint64_t offset = 0; offset < bytes.size() && open; offset += kChunkBytes) {
      *request.mutable_chunk() = MakeChunk(0, bytes, offset);
      open = writer->Write(request);
    }
    if (!extra.empty() && open) {
      *request.mutable_chunk() = MakeChunk(0, extra, 0);
      request.mutable_chunk()->set_offset(bytes.size());
      writer->Write(request);
    }
    writer->WritesDone();
    return writer->Finish();
  }
  // The global value, put together by the blocks of the header.
  grpc::Status Get(const std::string& name, int64_t rows, int64_t columns, std::string* value) {
    grpc::ClientContext context;
    v1::GetTensorRequest request;
    request.set_name(name);
    auto reader = stub_->GetTensor(&context, request);
    v1::GetTensorResponse response;
    v1::GetTensorHeader header;
    std::vector<std::string> blocks;
    while (reader->Read(&response)) {
      if (response.has_header()) {
        header = response.header();
        blocks.resize(static_cast<size_t>(header.blocks_size()));
        continue;
      }
      EXPECT_TRUE(CheckChunk(response.chunk()).ok());
      std::string& block = blocks.at(response.chunk().index());
      EXPECT_EQ(response.chunk().offset(), block.size());
      block += response.chunk().data();
    }
    value->assign(static_cast<size_t>(rows * columns), '?');
    for (int i = 0; i < header.blocks_size(); ++i) {
      const Shape offset(header.blocks(i).offset().begin(), header.blocks(i).offset().end());
      const Shape shape(header.blocks(i).shape().begin(), header.blocks(i).shape().end());
      CopyBox(blocks[static_cast<size_t>(i)].data(), shape, {0, 0}, value->data(), {rows, columns}, offset, shape, 1);
    }
    return reader->Finish();
  }
  int64_t TensorCount() {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    EXPECT_TRUE(stub_->GetStatus(&context, {}, &response).ok());
    return response.tensors();
  }

  RealClock clock_;
  std::unique_ptr<CoordinatorServer> server_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

std::string Numbers(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

TEST_F(TensorCallsTest, BytesGoInAndOutWhateverTheCut) {
  EXPECT_TRUE(workers_[0]->check_collectives());
  constexpr int64_t kRows = 3001, kColumns = 1999;  // several chunks, none aligned to a row
  const std::string bytes = Numbers(static_cast<size_t>(kRows * kColumns));
  for (const int dim : {0, 1}) {
    SCOPED_TRACE(dim);
    v1::PutTensorResponse response;
    const std::string name = dim == 0 ? "rows" : "columns";
    const grpc::Status put = Put(Header(name, kRows, kColumns, dim), bytes, &response);
    ASSERT_TRUE(put.ok()) << put.error_message();
    EXPECT_EQ(response.tensor().state(), v1::TENSOR_STATE_READY);
    // The first rank's block, cut by hand.
    std::string expected;
    if (dim == 0) {
      expected = bytes.substr(0, 1501 * kColumns);
    } else {
      for (int64_t row = 0; row < kRows; ++row) expected += bytes.substr(static_cast<size_t>(row * kColumns), 1000);
    }
    EXPECT_EQ(workers_[0]->NewestBlock() == expected, true);
    std::string value;
    const grpc::Status get = Get(name, kRows, kColumns, &value);
    ASSERT_TRUE(get.ok()) << get.error_message();
    EXPECT_EQ(value == bytes, true);
  }
}

TEST_F(TensorCallsTest, PutsThatAreWrongLeaveNothing) {
  v1::PutTensorResponse response;
  grpc::Status status = Put(Header("t", 4, 4, 2), Numbers(16), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("placements: "));
  status = Put(Header("t", 4, 4, 0), Numbers(15), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ended early: got 15 of 16 bytes of block 0"));
  status = Put(Header("t", 4, 4, 0), Numbers(16), &response, "x");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("more bytes than the tensor has"));
  {
    grpc::ClientContext context;
    auto writer = stub_->PutTensor(&context, &response);
    v1::PutTensorRequest request;
    *request.mutable_header() = Header("t", 4, 4, 0);
    writer->Write(request);
    *request.mutable_chunk() = MakeChunk(0, "abcd", 0);
    request.mutable_chunk()->set_crc32(7);
    writer->Write(request);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  }
  {
    grpc::ClientContext context;
    auto writer = stub_->PutTensor(&context, &response);
    v1::PutTensorRequest request;
    *request.mutable_header() = Header("t", 4, 4, 0);
    writer->Write(request);
    context.TryCancel();  // the client disappears
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // The name is free, and the whole works.
  status = Put(Header("t", 4, 4, 0), Numbers(16), &response);
  for (int i = 0; i < 100 && status.error_code() == grpc::StatusCode::ALREADY_EXISTS; ++i) {
    status = Put(Header("t", 4, 4, 0), Numbers(16), &response);  // the coordinator learns a little later of a cancel
  }
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(TensorCount(), 1);
}

TEST_F(TensorCallsTest, LocalBlocksGoToTheirRanks) {
  v1::PutTensorHeader header = Header("t", 3, 2, 0);
  for (const int64_t rows : {2, 1}) {
    v1::LocalTensor* local = header.add_locals();
    local->set_rank(rows == 2 ? 0 : 1);
    local->add_shape(rows);
    local->add_shape(2);
  }
  v1::PutTensorResponse response;
  grpc::ClientContext context;
  auto writer = stub_->PutTensor(&context, &response);
  v1::PutTensorRequest request;
  *request.mutable_header() = header;
  writer->Write(request);
  *request.mutable_chunk() = MakeChunk(0, "abcd", 0);
  writer->Write(request);
  *request.mutable_chunk() = MakeChunk(1, "ef", 0);
  writer->Write(request);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(workers_[0]->NewestBlock(), "abcd");
  EXPECT_EQ(workers_[1]->NewestBlock(), "ef");
  std::string value;
  ASSERT_TRUE(Get("t", 3, 2, &value).ok());
  EXPECT_EQ(value, "abcdef");
}

TEST_F(TensorCallsTest, LostWorkerEndsAPutInTheMiddleOfIt) {
  v1::PutTensorResponse response;
  grpc::ClientContext context;
  auto writer = stub_->PutTensor(&context, &response);
  v1::PutTensorRequest request;
  *request.mutable_header() = Header("t", 2, 64 << 20, 0);
  writer->Write(request);
  const std::string chunk = Numbers(kChunkBytes);
  *request.mutable_chunk() = MakeChunk(0, chunk, 0);
  writer->Write(request);
  while (TensorCount() == 0) std::this_thread::yield();  // until it is accepted
  workers_[1]->Stop();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("rank 1 (worker w1) was lost"));
  EXPECT_EQ(TensorCount(), 0);
}

TEST_F(TensorCallsTest, DeletionFreesOnTheWorkers) {
  v1::PutTensorResponse put;
  ASSERT_TRUE(Put(Header("t", 4, 4, 0), Numbers(16), &put).ok());
  v1::DescribeTensorRequest describe;
  describe.set_name("t");
  v1::DescribeTensorResponse shards;
  grpc::ClientContext describe_context;
  ASSERT_TRUE(stub_->DescribeTensor(&describe_context, describe, &shards).ok());
  ASSERT_EQ(shards.shards_size(), 2);
  EXPECT_EQ(shards.shards(1).worker(), "w1");
  EXPECT_EQ(shards.shards(1).offset(0), 2);
  EXPECT_EQ(shards.shards(1).size_bytes(), 8u);
  v1::DeleteTensorRequest request;
  request.set_name("t");
  v1::DeleteTensorResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->DeleteTensor(&context, request, &response).ok());
  EXPECT_EQ(workers_[0]->TensorCount(), 0u);
  EXPECT_EQ(workers_[1]->TensorCount(), 0u);
  grpc::ClientContext again;
  EXPECT_EQ(stub_->DeleteTensor(&again, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace tp::server
