#include "worker/weights/weight_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
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

// Truncated, the nearest one where it is out of range, 0 for NaN: as casts of tensors.
int64_t IntegerFrom(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (std::isnan(value)) return 0;
  if (value >= kLimit) return std::numeric_limits<int64_t>::max();
  if (value < -kLimit) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
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
  const std::vector<ByteRun> runs = ByteRunsOf(tensor->shape, ItemSize(tensor->dtype), tensor->begin, region);
  std::string span;
  for (const Read& read : ReadsOf(runs)) {
    if (count != nullptr) {
      *count += read.size;
      continue;
    }
    TP_RETURN_IF_ERROR(CheckCancelled());
    const ByteRun& first = runs[read.first_run];
    char* to = out.bytes.data() + first.to + (read.offset - first.offset);
    if (read.run_count > 1) {
      span.resize(static_cast<size_t>(read.size));
      to = span.data();
    }
    const absl::Status status = file->ReadRange(read.offset, read.size, to);
    if (!status.ok()) return Annotate(status, absl::StrCat("tensor '", source.tensor, "'"));
    for (size_t i = read.first_run; read.run_count > 1 && i < read.first_run + read.run_count; ++i) {
      std::memcpy(out.bytes.data() + runs[i].to, span.data() + (runs[i].offset - read.offset),
                  static_cast<size_t>(runs[i].size));
    }
    bytes_read_ += read.size;
    if (options_.progress) options_.progress(bytes_read_);
  }
  return out;
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

absl::StatusOr<HostTensor> WeightLoader::Initial(const LoadState& state, const Region& region) const {
  const DType wide = IsFloating(state.dtype) ? DType::kF64 : DType::kI64;
  TP_ASSIGN_OR_RETURN(HostTensor out, EmptyTensor(wide, ShapeOf(region), true));
  std::vector<std::vector<int64_t>> indices;
  for (const auto& dim : region) {
    indices.emplace_back();
    for (const Interval& interval : dim) {
      for (int64_t i = interval.begin; i < interval.end; ++i) indices.back().push_back(i);
    }
  }
  const Shape strides = RowMajorStrides(state.shape);
  const int64_t elements = ElementCount(out.shape);
  Shape at(region.size(), 0);
  for (int64_t i = 0; i < elements; ++i) {
    if (i % 65536 == 0) TP_RETURN_IF_ERROR(CheckCancelled());
    int64_t global = 0;
    for (size_t d = 0; d < at.size(); ++d) global += indices[d][static_cast<size_t>(at[d])] * strides[d];
    const double value = InitialValue(state.source.initializer, seed_, state.path, state.shape, global);
    if (wide == DType::kF64) {
      out.data<double>()[i] = value;
    } else {
      out.data<int64_t>()[i] = IntegerFrom(value);
    }
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < out.shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

absl::StatusOr<HostTensor> WeightLoader::EvaluateState(const LoadState& state, int64_t* count) {
  TP_RETURN_IF_ERROR(CheckedBytes(state.shape, state.dtype).status());
  TP_ASSIGN_OR_RETURN(const Placements placements,
                      NormalizePlacements(state.placements, static_cast<int>(state.shape.size()), state.dtype, mesh_));
  TP_RETURN_IF_ERROR(ValidateForShape(state.shape, placements, mesh_));
  Region region;
  for (size_t d = 0; d < state.shape.size(); ++d) {
    region.push_back(OwnedIntervals(state.shape[d], static_cast<int>(d), placements, mesh_, coordinate_));
  }
  if (state.source.kind == WeightSource::Kind::kInitializer) {
    if (count != nullptr) return HostTensor{};
    return Initial(state, region);
  }
  TP_ASSIGN_OR_RETURN(const Type type, TypeOf(state.source));
  if (type.shape != state.shape) {
    return absl::InvalidArgumentError(absl::StrCat("expected shape ", ShapeText(state.shape), ", its source '",
                                                   state.source.tensor, "' has ", ShapeText(type.shape)));
  }
  return Evaluate(state.source, region, count);
}

absl::StatusOr<HostTensor> WeightLoader::Load(const LoadState& state) {
  absl::StatusOr<HostTensor> tensor = EvaluateState(state, nullptr);
  if (!tensor.ok()) return Annotate(tensor.status(), state.path);
  if (tensor->dtype == state.dtype) return tensor;
  return ConvertTo(*tensor, state.dtype);
}

absl::StatusOr<int64_t> WeightLoader::PlannedBytes(const LoadState& state) {
  int64_t bytes = 0;
  const absl::Status status = EvaluateState(state, &bytes).status();
  if (!status.ok()) return Annotate(status, state.path);
  return bytes;
}

}  // namespace tp::worker
