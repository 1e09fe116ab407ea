#include "worker/weights/weight_loader.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/initializer.h"
#include "worker/weights/byte_runs.h"

namespace tp::worker {
namespace {

int64_t SizeOf(const std::vector<Interval>& intervals) {
  int64_t size = 0;
  for (const Interval& interval : intervals) size += interval.end - interval.begin;
  return size;
}

Shape ShapeOf(const std::vector<std::vector<Interval>>& region) {
  Shape shape;
  for (const auto& dim : region) shape.push_back(SizeOf(dim));
  return shape;
}

absl::StatusOr<HostTensor> EmptyTensor(DType dtype, Shape shape, bool with_bytes) {
  HostTensor tensor{dtype, std::move(shape), {}};
  if (!with_bytes) return tensor;
  TP_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(tensor.shape, dtype));
  try {
    tensor.bytes.resize(static_cast<size_t>(bytes));
  } catch (const std::exception&) {  // bad_alloc, length_error
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  return tensor;
}

// The `count` indices (fewer at the end) from the `begin`-th on of those in the intervals.
std::vector<Interval> PartOf(const std::vector<Interval>& intervals, int64_t begin, int64_t count) {
  std::vector<Interval> part;
  for (const Interval& interval : intervals) {
    const int64_t size = interval.end - interval.begin;
    const int64_t skipped = std::min(begin, size), taken = std::min(count, size - skipped);
    if (taken > 0) part.push_back({interval.begin + skipped, interval.begin + skipped + taken});
    begin -= skipped;
    count -= taken;
  }
  return part;
}

absl::Status CheckDim(const WeightSource& source, const Shape& shape, absl::string_view what) {
  if (source.dim >= 0 && source.dim < static_cast<int>(shape.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": dim ", source.dim, " of shape ", ShapeText(shape)));
}

}  // namespace

absl::Status WeightLoader::CheckCancelled() const {
  if (options_.cancelled != nullptr && options_.cancelled->load()) return absl::CancelledError("the load was dropped");
  return absl::OkStatus();
}

absl::StatusOr<const WeightFile*> WeightLoader::FileAt(const std::string& path) {
  std::unique_ptr<WeightFile>& file = open_[path];
  if (file == nullptr) {
    TP_ASSIGN_OR_RETURN(file, files_.Open(path));
  }
  return file.get();
}

absl::StatusOr<WeightLoader::Type> WeightLoader::TypeOf(const WeightSource& source) {
  switch (source.kind) {
    case WeightSource::Kind::kFile: {
      TP_ASSIGN_OR_RETURN(const WeightFile* file, FileAt(source.path));
      TP_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file->Get(source.tensor));
      return Type{tensor->dtype, tensor->shape};
    }
    case WeightSource::Kind::kSlice: {
      if (source.parts.size() != 1) return absl::InvalidArgumentError("slice: needs one part");
      TP_ASSIGN_OR_RETURN(Type type, TypeOf(source.parts[0]));
      TP_RETURN_IF_ERROR(CheckDim(source, type.shape, "slice"));
      const int64_t n = type.shape[source.dim];
      if (source.start < 0 || source.length < 0 || source.start > n || source.length > n - source.start) {
        return absl::InvalidArgumentError(absl::StrCat("slice: [", source.start, ", ", source.start, " + ",
                                                       source.length, ") of dim ", source.dim, " with ", n));
      }
      type.shape[source.dim] = source.length;
      return type;
    }
    case WeightSource::Kind::kTranspose: {
      if (source.parts.size() != 1) return absl::InvalidArgumentError("transpose: needs one part");
      TP_ASSIGN_OR_RETURN(const Type type, TypeOf(source.parts[0]));
      std::vector<int> sorted = source.permutation;
      std::sort(sorted.begin(), sorted.end());
      Type out{type.dtype, {}};
      for (size_t d = 0; d < sorted.size(); ++d) {
        if (sorted.size() != type.shape.size() || sorted[d] != static_cast<int>(d)) {
          return absl::InvalidArgumentError(
              absl::StrCat("transpose: not a permutation of the dims of ", ShapeText(type.shape)));
        }
        out.shape.push_back(type.shape[source.permutation[d]]);
      }
      if (out.shape.size() != type.shape.size()) return absl::InvalidArgumentError("transpose: permutation is missing");
      return out;
    }
    case WeightSource::Kind::kConcat: {
      if (source.parts.empty()) return absl::InvalidArgumentError("concat: has no parts");
      TP_ASSIGN_OR_RETURN(Type type, TypeOf(source.parts[0]));
      TP_RETURN_IF_ERROR(CheckDim(source, type.shape, "concat"));
      for (size_t i = 1; i < source.parts.size(); ++i) {
        TP_ASSIGN_OR_RETURN(const Type part, TypeOf(source.parts[i]));
        Shape expected = type.shape;
        if (part.shape.size() == expected.size()) expected[source.dim] = part.shape[source.dim];
        if (part.dtype != type.dtype || part.shape != expected) {
          return absl::InvalidArgumentError(absl::StrCat("concat: part ", i, " is ", std::string(DTypeName(part.dtype)),
                                                         ShapeText(part.shape), ", part 0 ",
                                                         std::string(DTypeName(type.dtype)), ShapeText(type.shape)));
        }
        type.shape[source.dim] += part.shape[source.dim];
      }
      return type;
    }
    case WeightSource::Kind::kInitializer:
      return absl::UnimplementedError("an initializer inside a slice, transpose or concat");
    case WeightSource::Kind::kAlias:
      return absl::InvalidArgumentError(absl::StrCat("alias of '", source.path, "' was not resolved"));
  }
  return absl::InvalidArgumentError("unknown kind of source");
}

absl::StatusOr<HostTensor> WeightLoader::Evaluate(const WeightSource& source, const Region& region, int64_t* count) {
  switch (source.kind) {
    case WeightSource::Kind::kFile:
      return EvaluateFile(source, region, count);
    case WeightSource::Kind::kSlice: {
      Region inner = region;
      for (Interval& interval : inner[source.dim]) {
        interval.begin += source.start;
        interval.end += source.start;
      }
      return Evaluate(source.parts[0], inner, count);
    }
    case WeightSource::Kind::kTranspose:
      return EvaluateTranspose(source, region, count);
    case WeightSource::Kind::kConcat:
      return EvaluateConcat(source, region, count);
    case WeightSource::Kind::kInitializer:
    case WeightSource::Kind::kAlias:
      break;
  }
  return TypeOf(source).status();
}

absl::StatusOr<HostTensor> WeightLoader::EvaluateFile(const WeightSource& source, const Region& region,
                                                      int64_t* count) {
  TP_ASSIGN_OR_RETURN(const WeightFile* file, FileAt(source.path));
  TP_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file->Get(source.tensor));
  TP_ASSIGN_OR_RETURN(HostTensor out, EmptyTensor(tensor->dtype, ShapeOf(region), count == nullptr));
  if (count != nullptr) {
    for (const Read& read : ReadsOf(ByteRunsOf(tensor->shape, ItemSize(tensor->dtype), tensor->begin, region))) {
      *count += read.size;
    }
    return out;
  }
  TP_RETURN_IF_ERROR(ReadFile(source, region, out.bytes.data(), nullptr));
  return out;
}

absl::Status WeightLoader::ReadFile(const WeightSource& source, const Region& region, char* block,
                                    const WriteBlock& write) {
  TP_ASSIGN_OR_RETURN(const WeightFile* file, FileAt(source.path));
  TP_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file->Get(source.tensor));
  const std::vector<ByteRun> runs = ByteRunsOf(tensor->shape, ItemSize(tensor->dtype), tensor->begin, region);
  std::string span;
  for (const Read& read : ReadsOf(runs)) {
    TP_RETURN_IF_ERROR(CheckCancelled());
    const ByteRun& first = runs[read.first_run];
    const int64_t begin = first.to + (read.offset - first.offset);
    const bool direct = block != nullptr && read.run_count == 1;
    if (!direct) span.resize(static_cast<size_t>(read.size));
    const absl::Status status = file->ReadRange(read.offset, read.size, direct ? block + begin : span.data());
    if (!status.ok()) return Annotate(status, absl::StrCat("tensor '", source.tensor, "'"));
    bytes_read_ += read.size;
    if (options_.progress) options_.progress(bytes_read_);
    if (direct) continue;
    // Runs follow each other in the block, so they move together in the span.
    int64_t size = read.run_count == 1 ? read.size : 0;
    for (size_t i = read.first_run; read.run_count > 1 && i < read.first_run + read.run_count; ++i) {
      std::memmove(span.data() + size, span.data() + (runs[i].offset - read.offset), static_cast<size_t>(runs[i].size));
      size += runs[i].size;
    }
    if (block != nullptr) {
      std::memcpy(block + begin, span.data(), static_cast<size_t>(size));
    } else {
      TP_RETURN_IF_ERROR(write(begin, span.data(), size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HostTensor> WeightLoader::EvaluateTranspose(const WeightSource& source, const Region& region,
                                                           int64_t* count) {
  const size_t rank = region.size();
  Region inner(rank);
  for (size_t d = 0; d < rank; ++d) inner[source.permutation[d]] = region[d];
  TP_ASSIGN_OR_RETURN(const HostTensor from, Evaluate(source.parts[0], inner, count));
  TP_ASSIGN_OR_RETURN(HostTensor out, EmptyTensor(from.dtype, ShapeOf(region), count == nullptr));
  if (count != nullptr) return out;
  const size_t item = static_cast<size_t>(ItemSize(from.dtype));
  const Shape from_strides = RowMajorStrides(from.shape);
  Shape strides(rank), index(rank, 0);
  for (size_t d = 0; d < rank; ++d) strides[d] = from_strides[source.permutation[d]];
  int64_t at = 0;
  const int64_t elements = ElementCount(out.shape);
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(out.bytes.data() + static_cast<size_t>(i) * item, from.bytes.data() + static_cast<size_t>(at) * item,
                item);
    for (size_t d = rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < out.shape[d]) break;
      at -= strides[d] * out.shape[d];
      index[d] = 0;
    }
  }
  return out;
}

absl::StatusOr<HostTensor> WeightLoader::EvaluateConcat(const WeightSource& source, const Region& region,
                                                        int64_t* count) {
  const int dim = source.dim;
  TP_ASSIGN_OR_RETURN(const Type type, TypeOf(source));
  TP_ASSIGN_OR_RETURN(HostTensor out, EmptyTensor(type.dtype, ShapeOf(region), count == nullptr));
  int64_t begin = 0, to = 0;  // global index of the part's first element; local index of its first in the block
  for (const WeightSource& part : source.parts) {
    TP_ASSIGN_OR_RETURN(const Type part_type, TypeOf(part));
    const int64_t end = begin + part_type.shape[dim];
    Region inner = region;
    inner[dim].clear();
    for (const Interval& interval : region[dim]) {
      const int64_t from = std::max(interval.begin, begin), until = std::min(interval.end, end);
      if (from < until) inner[dim].push_back({from - begin, until - begin});
    }
    begin = end;
    if (inner[dim].empty()) continue;
    TP_ASSIGN_OR_RETURN(const HostTensor piece, Evaluate(part, inner, count));
    const Shape zeros(region.size(), 0);
    Shape offset = zeros;
    offset[dim] = to;
    to += piece.shape[dim];
    if (count == nullptr && ElementCount(piece.shape) > 0) {
      CopyBox(piece.bytes.data(), piece.shape, zeros, out.bytes.data(), out.shape, offset, piece.shape,
              ItemSize(out.dtype));
    }
  }
  return out;
}

absl::Status WeightLoader::Initial(const LoadState& state, const Region& region, const WriteBlock& write) const {
  const int64_t item = ItemSize(state.dtype), most = kMaxRead / item;
  const Shape shape = ShapeOf(region);
  if (ElementCount(shape) == 0) return CheckInitializer(state.source.initializer, state.shape);
  // A piece has one index of each dim before `cut`, some of dim `cut`, and all of those after it.
  size_t cut = shape.size();
  int64_t inner = 1;
  while (cut > 0 && inner * shape[cut - 1] <= most) inner *= shape[--cut];
  Region piece = region;
  Shape at(shape.size(), 0);  // local index
  std::string bytes;
  int64_t written = 0;
  const auto fill = [&]() -> absl::Status {
    TP_RETURN_IF_ERROR(CheckCancelled());
    bytes.resize(static_cast<size_t>(ElementCount(ShapeOf(piece)) * item));
    TP_RETURN_IF_ERROR(
        FillInitial(state.source.initializer, seed_, state.path, state.shape, piece, state.dtype, bytes.data()));
    TP_RETURN_IF_ERROR(write(written, bytes.data(), static_cast<int64_t>(bytes.size())));
    written += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  };
  if (cut == 0) return fill();
  const int64_t rows = most / inner;  // of dim cut - 1; at least 1
  while (true) {
    for (size_t d = 0; d < cut; ++d) piece[d] = PartOf(region[d], at[d], d + 1 == cut ? rows : 1);
    TP_RETURN_IF_ERROR(fill());
    at[cut - 1] += rows;
    for (size_t d = cut; d-- > 0;) {
      if (at[d] < shape[d]) break;
      if (d == 0) return absl::OkStatus();
      at[d] = 0;
      ++at[d - 1];
    }
  }
}

absl::StatusOr<WeightLoader::Region> WeightLoader::RegionOf(const LoadState& state) const {
  TP_RETURN_IF_ERROR(CheckedBytes(state.shape, state.dtype).status());
  TP_ASSIGN_OR_RETURN(const Placements placements,
                      NormalizePlacements(state.placements, static_cast<int>(state.shape.size()), state.dtype, mesh_));
  TP_RETURN_IF_ERROR(ValidateForShape(state.shape, placements, mesh_));
  Region region;
  for (size_t d = 0; d < state.shape.size(); ++d) {
    region.push_back(OwnedIntervals(state.shape[d], static_cast<int>(d), placements, mesh_, coordinate_));
  }
  return region;
}

absl::StatusOr<WeightLoader::Type> WeightLoader::CheckedTypeOf(const LoadState& state) {
  TP_ASSIGN_OR_RETURN(const Type type, TypeOf(state.source));
  if (type.shape != state.shape) {
    return absl::InvalidArgumentError(absl::StrCat("expected shape ", ShapeText(state.shape), ", its source '",
                                                   state.source.tensor, "' has ", ShapeText(type.shape)));
  }
  return type;
}

absl::StatusOr<HostTensor> WeightLoader::EvaluateState(const LoadState& state) {
  TP_ASSIGN_OR_RETURN(const Region region, RegionOf(state));
  if (state.source.kind == WeightSource::Kind::kInitializer) {
    TP_ASSIGN_OR_RETURN(HostTensor out, EmptyTensor(state.dtype, ShapeOf(region), true));
    TP_RETURN_IF_ERROR(Initial(state, region, [&](int64_t offset, const char* data, int64_t size) {
      std::memcpy(out.bytes.data() + offset, data, static_cast<size_t>(size));
      return absl::OkStatus();
    }));
    return out;
  }
  TP_RETURN_IF_ERROR(CheckedTypeOf(state).status());
  return Evaluate(state.source, region, nullptr);
}

absl::StatusOr<HostTensor> WeightLoader::Load(const LoadState& state) {
  absl::StatusOr<HostTensor> tensor = EvaluateState(state);
  if (!tensor.ok()) return Annotate(tensor.status(), state.path);
  if (tensor->dtype == state.dtype) return tensor;
  return ConvertTo(*tensor, state.dtype);
}

absl::Status WeightLoader::LoadInto(const LoadState& state, const WriteBlock& write) {
  auto load = [&]() -> absl::Status {
    TP_ASSIGN_OR_RETURN(const Region region, RegionOf(state));
    if (state.source.kind == WeightSource::Kind::kInitializer) return Initial(state, region, write);
    TP_ASSIGN_OR_RETURN(const Type type, CheckedTypeOf(state));
    if (state.source.kind == WeightSource::Kind::kFile && type.dtype == state.dtype) {
      return ReadFile(state.source, region, nullptr, write);
    }
    TP_ASSIGN_OR_RETURN(HostTensor tensor, Evaluate(state.source, region, nullptr));
    if (tensor.dtype != state.dtype) tensor = ConvertTo(tensor, state.dtype);
    if (tensor.bytes.empty()) return absl::OkStatus();
    return write(0, tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()));
  };
  return Annotate(load(), state.path);
}

absl::StatusOr<int64_t> WeightLoader::PlannedBytes(const LoadState& state) {
  int64_t bytes = 0;
  auto plan = [&]() -> absl::Status {
    TP_ASSIGN_OR_RETURN(const Region region, RegionOf(state));
    if (state.source.kind == WeightSource::Kind::kInitializer) return absl::OkStatus();
    TP_RETURN_IF_ERROR(CheckedTypeOf(state).status());
    return Evaluate(state.source, region, &bytes).status();
  };
  TP_RETURN_IF_ERROR(Annotate(plan(), state.path));
  return bytes;
}

}  // namespace tp::worker
