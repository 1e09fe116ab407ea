#include "client/tp_client/tensors.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "common/layout/spec.h"

namespace tp::client {
namespace {

// Keeps the boxes as they come.
class BoxCollector : public TensorSink {
 public:
  absl::Status Begin(const TensorInfo& tensor, const std::vector<TensorBlock>& blocks) override {
    tensor_ = tensor;
    blocks_ = blocks;
    bytes_.resize(blocks.size());
    return absl::OkStatus();
  }
  absl::Status Write(size_t block, int64_t, std::string_view bytes) override {
    bytes_[block].append(bytes);
    return absl::OkStatus();
  }
  const TensorInfo& tensor() const { return tensor_; }
  const std::vector<TensorBlock>& blocks() const { return blocks_; }
  const std::string& bytes(size_t block) const { return bytes_[block]; }

 private:
  TensorInfo tensor_;
  std::vector<TensorBlock> blocks_;
  std::vector<std::string> bytes_;
};

absl::StatusOr<HostTensor> EmptyTensor(DType dtype, const Shape& shape) {
  TP_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(shape, dtype));
  return HostTensor{dtype, shape, std::string(static_cast<size_t>(bytes), '\0')};
}

// Copies a received box to `offset` of `to`.
void Place(const TensorBlock& block, const std::string& bytes, const Shape& offset, HostTensor* to) {
  CopyBox(bytes.data(), block.shape, Shape(block.shape.size(), 0), to->bytes.data(), to->shape, offset, block.shape,
          ItemSize(to->dtype));
}

}  // namespace

absl::StatusOr<TensorInfo> TensorClient::PutTensor(PutTensorOptions options, const HostTensor& tensor) {
  TP_RETURN_IF_ERROR(ValidateHostTensor(tensor));
  options.dtype = tensor.dtype;
  options.shape = tensor.shape;
  return PutTensor(options, [&tensor](size_t, int64_t offset, int64_t size, char* out) {
    std::memcpy(out, tensor.bytes.data() + offset, static_cast<size_t>(size));
    return absl::OkStatus();
  });
}

absl::StatusOr<HostTensor> TensorClient::GetTensor(const std::string& name) {
  BoxCollector boxes;
  TP_RETURN_IF_ERROR(GetTensor(name, false, &boxes));
  TP_ASSIGN_OR_RETURN(HostTensor whole, EmptyTensor(boxes.tensor().dtype, boxes.tensor().shape));
  for (size_t i = 0; i < boxes.blocks().size(); ++i)
    Place(boxes.blocks()[i], boxes.bytes(i), boxes.blocks()[i].offset, &whole);
  return whole;
}

absl::StatusOr<std::vector<HostTensor>> TensorClient::GetLocalBlocks(const std::string& name) {
  BoxCollector boxes;
  TP_RETURN_IF_ERROR(GetTensor(name, true, &boxes));
  const TensorInfo& tensor = boxes.tensor();
  std::vector<HostTensor> locals;
  for (int rank = 0; rank < tensor.mesh.rank_count(); ++rank) {
    const Coordinate coordinate = tensor.mesh.CoordinateOf(rank);
    TP_ASSIGN_OR_RETURN(HostTensor local, EmptyTensor(tensor.dtype, LocalShape(tensor.shape, tensor.placements,
                                                                               tensor.mesh, coordinate)));
    std::vector<Box> expected = LocalBoxes(tensor.shape, tensor.placements, tensor.mesh, coordinate);
    for (size_t i = 0; i < boxes.blocks().size(); ++i) {
      const TensorBlock& block = boxes.blocks()[i];
      if (block.rank != rank) continue;
      const auto box = std::find_if(expected.begin(), expected.end(), [&](const Box& candidate) {
        return candidate.offset == block.offset && candidate.shape == block.shape;
      });
      if (box == expected.end())
        return absl::InternalError(absl::StrCat("rank ", rank, " sent a box that is not its own: offset ",
                                                ShapeText(block.offset), ", shape ", ShapeText(block.shape)));
      Place(block, boxes.bytes(i), box->local, &local);
      expected.erase(box);
    }
    if (!expected.empty()) return absl::DataLossError(absl::StrCat("the block of rank ", rank, " is not whole"));
    locals.push_back(std::move(local));
  }
  return locals;
}

}  // namespace tp::client
