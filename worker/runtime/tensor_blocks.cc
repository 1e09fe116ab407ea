#include "worker/runtime/tensor_blocks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "worker/weights/byte_runs.h"

namespace tp::worker {
namespace {

constexpr int64_t kPiece = 4 << 20;

std::vector<Box> BoxesOf(const HeldTensor& tensor) {
  return LocalBoxes(tensor.shape, tensor.placements, tensor.mesh, tensor.mesh.CoordinateOf(tensor.rank));
}

absl::Status CopyOut(Device& device, Stream& stream, const HeldTensor& tensor, int64_t offset, int64_t bytes,
                     char* out) {
  TP_RETURN_IF_ERROR(device.CopyToHost(stream, static_cast<const char*>(tensor.buffer->data()) + offset, out, bytes));
  return absl::OkStatus();
}

}  // namespace

std::vector<DataBlock> BlocksOf(Device& device, const HeldTensorPtr& tensor) {
  std::vector<DataBlock> blocks;
  const Shape local = tensor->LocalShape();
  const std::shared_ptr<Stream> stream = device.CreateStream();
  for (const Box& box : BoxesOf(*tensor)) {
    const BoxRuns runs(box.shape, box.local, local, box.local, local, ItemSize(tensor->dtype));
    blocks.push_back({runs.count() * runs.run_bytes(),
                      [&device, tensor, stream, runs](int64_t offset, int64_t count, char* out) -> absl::Status {
                        while (count > 0) {
                          const int64_t in_run = offset % runs.run_bytes();
                          const int64_t size = std::min(count, runs.run_bytes() - in_run);
                          TP_RETURN_IF_ERROR(CopyOut(device, *stream, *tensor,
                                                     runs.At(offset / runs.run_bytes()).in_array + in_run, size, out));
                          offset += size;
                          count -= size;
                          out += size;
                        }
                        return device.Synchronize(*stream);
                      }});
  }
  return blocks;
}

absl::Status SaveBlock(Device& device, const HeldTensor& tensor, PartFiles* files, int file, int64_t begin,
                       const SaveOptions& options) {
  const Shape local = tensor.LocalShape();
  const std::unique_ptr<Stream> stream = device.CreateStream();
  std::string piece;
  int64_t written = 0;
  for (const Box& box : BoxesOf(tensor)) {
    const BoxRuns runs(box.shape, box.local, local, box.offset, tensor.shape, ItemSize(tensor.dtype));
    for (int64_t run = 0; run < runs.count(); ++run) {
      const BoxRuns::Place place = runs.At(run);
      for (int64_t at = 0; at < runs.run_bytes();) {
        if (options.cancelled != nullptr && *options.cancelled) return absl::CancelledError("the save was dropped");
        const int64_t size = std::min(kPiece, runs.run_bytes() - at);
        piece.resize(static_cast<size_t>(size));
        TP_RETURN_IF_ERROR(CopyOut(device, *stream, tensor, place.in_array + at, size, piece.data()));
        TP_RETURN_IF_ERROR(device.Synchronize(*stream));
        TP_RETURN_IF_ERROR(files->Write(file, begin + place.in_outer + at, piece.data(), size));
        if (options.progress) options.progress(size);
        at += size;
        written += size;
      }
    }
  }
  if (written == tensor.size_bytes()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("tensor ", tensor.id, ": expected ", tensor.size_bytes(), " bytes written, got ", written));
}

}  // namespace tp::worker
