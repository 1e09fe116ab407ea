// GrpcClient: the calls that carry values of tensors, a chunk at a time.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/tp_client/rpc/grpc_client.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"

namespace tp::client {
namespace {

// Checks what arrives and hands it on.
class Receiver {
 public:
  explicit Receiver(TensorSink* sink) : sink_(sink) {}

  absl::Status Begin(const v1::GetTensorHeader& header) {
    if (begun_) return absl::InternalError("the answer has two headers");
    begun_ = true;
    TP_ASSIGN_OR_RETURN(const TensorInfo tensor, ToTensorInfo(header.tensor()));
    std::vector<TensorBlock> blocks;
    for (const v1::TensorBlock& from : header.blocks()) {
      TensorBlock block{
          from.rank(), {from.offset().begin(), from.offset().end()}, {from.shape().begin(), from.shape().end()}};
      bool inside = block.offset.size() == tensor.shape.size() && block.shape.size() == tensor.shape.size();
      for (size_t i = 0; inside && i < tensor.shape.size(); ++i)
        inside = block.offset[i] >= 0 && block.shape[i] >= 0 && block.offset[i] <= tensor.shape[i] - block.shape[i];
      if (!inside) return absl::InternalError("a block of the answer lies outside of its tensor");
      sizes_.push_back(ElementCount(block.shape) * ItemSize(tensor.dtype));
      blocks.push_back(std::move(block));
    }
    got_.resize(sizes_.size(), 0);
    return sink_->Begin(tensor, blocks);
  }

  absl::Status Add(const v1::Chunk& chunk) {
    if (!begun_ || chunk.index() >= sizes_.size()) return absl::InternalError("a chunk names no block");
    TP_RETURN_IF_ERROR(CheckChunk(chunk));
    int64_t& got = got_[chunk.index()];
    const int64_t size = static_cast<int64_t>(chunk.data().size());
    if (chunk.offset() != static_cast<uint64_t>(got) || size > sizes_[chunk.index()] - got)
      return absl::InternalError("the answer's chunks are out of order");
    TP_RETURN_IF_ERROR(sink_->Write(chunk.index(), got, chunk.data()));
    got += size;
    return absl::OkStatus();
  }

  absl::Status End() const {
    if (!begun_) return absl::InternalError("the answer has no header");
    for (size_t i = 0; i < sizes_.size(); ++i)
      if (got_[i] != sizes_[i])
        return absl::DataLossError(absl::StrCat("expected ", sizes_[i], " bytes of block ", i, ", got ", got_[i]));
    return absl::OkStatus();
  }

 private:
  TensorSink* sink_;
  bool begun_ = false;
  std::vector<int64_t> sizes_, got_;  // bytes of each block
};

}  // namespace

absl::StatusOr<TensorInfo> GrpcClient::PutTensor(const PutTensorOptions& options, const ReadTensorBytes& read) {
  v1::PutTensorRequest first;
  v1::PutTensorHeader* header = first.mutable_header();
  header->set_request_id(NewRequestId());
  header->set_name(options.name);
  header->set_mesh(options.mesh);
  PlacementsToMap(options.placements, header->mutable_placements());
  header->set_dtype(DTypeToProto(options.dtype));
  if (options.shape.has_value()) ShapeToProto(*options.shape, header->mutable_shape());
  header->set_infer_shape(!options.shape.has_value());
  std::vector<int64_t> sizes;
  for (const LocalTensor& local : options.locals) {
    v1::LocalTensor* proto = header->add_locals();
    proto->set_rank(local.rank);
    ShapeToProto(local.shape, proto->mutable_shape());
    TP_ASSIGN_OR_RETURN(sizes.emplace_back(), CheckedBytes(local.shape, options.dtype));
  }
  if (options.locals.empty()) {
    if (!options.shape.has_value()) return absl::InvalidArgumentError("the shape is missing");
    TP_ASSIGN_OR_RETURN(sizes.emplace_back(), CheckedBytes(*options.shape, options.dtype));
  }
  if (options.src_data_rank.has_value()) header->set_src_data_rank(*options.src_data_rank);
  header->set_no_src_data_rank(options.no_src_data_rank);

  grpc::ClientContext context;
  Prepare(&context);
  v1::PutTensorResponse response;
  auto writer = stub_->PutTensor(&context, &response);
  absl::Status failed;
  bool open = writer->Write(first);
  v1::PutTensorRequest request;
  for (size_t index = 0; index < sizes.size(); ++index) {
    for (int64_t offset = 0; open && offset < sizes[index]; offset += kChunkBytes) {
      v1::Chunk* chunk = request.mutable_chunk();
      chunk->set_index(static_cast<uint32_t>(index));
      chunk->set_offset(static_cast<uint64_t>(offset));
      const int64_t size = std::min<int64_t>(kChunkBytes, sizes[index] - offset);
      chunk->mutable_data()->resize(static_cast<size_t>(size));
      failed = read(index, offset, size, chunk->mutable_data()->data());
      if (!failed.ok()) {
        context.TryCancel();
        (void)writer->Finish();
        return failed;
      }
      chunk->set_crc32(Crc32(chunk->data()));
      open = writer->Write(request);
    }
  }
  writer->WritesDone();
  TP_RETURN_IF_ERROR(Finish(writer->Finish()));
  return ToTensorInfo(response.tensor());
}

absl::Status GrpcClient::GetTensor(const std::string& name, bool local_blocks, TensorSink* sink) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::GetTensorRequest request;
  request.set_name(name);
  request.set_local_blocks(local_blocks);
  auto reader = stub_->GetTensor(&context, request);
  Receiver receiver(sink);
  v1::GetTensorResponse response;
  while (reader->Read(&response)) {
    absl::Status status;
    if (response.has_header()) status = receiver.Begin(response.header());
    if (response.has_chunk()) status = receiver.Add(response.chunk());
    if (status.ok()) continue;
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    (void)reader->Finish();
    return status;
  }
  TP_RETURN_IF_ERROR(Finish(reader->Finish()));
  return receiver.End();
}

}  // namespace tp::client
