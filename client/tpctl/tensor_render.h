// What the mesh and tensor commands print: tables for people, JSON for scripts. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/tp_client/tensors.h"

namespace tp::client {

// Tensors of at most so many elements are printed whole, others in numbers.
inline constexpr int64_t kPrintedElements = 4096;

std::string MeshText(const MeshInfo& mesh, bool json);
std::string MeshesText(const std::vector<MeshInfo>& meshes, bool json);

// "w: F32[2, 3] tp=S(0) on m".
std::string TensorLine(const TensorInfo& tensor);
// `verb`: "is there".
std::string TensorText(const TensorInfo& tensor, const std::string& verb, bool json);
std::string TensorsText(const std::vector<TensorInfo>& tensors, bool json);
std::string RedistributeText(const RedistributeResult& result, bool json);
// `values`: the local blocks by rank, or nullptr.
std::string ShardsText(const TensorDescription& description, const std::vector<HostTensor>* values, bool json);
std::string SaveText(const SaveResult& result, const std::string& directory, bool json);
std::string LoadText(const LoadResult& result, bool json);

// Of a value that was fetched: printed, ...
std::string ValueText(const TensorInfo& tensor, const HostTensor& value, bool json);
// ... written to a file, ...
std::string OutputText(const TensorInfo& tensor, const std::string& path, int64_t bytes, bool json);
// ... or summed up.
struct ValueSummary {
  double least = 0, largest = 0, mean = 0;  // of the numbers; NaN is left out
  int64_t nans = 0;
};
std::string SummaryText(const TensorInfo& tensor, const ValueSummary& summary, bool json);

// "[[1, 2],\n [3, 4]]"; floats in the fewest digits that read back as they are.
std::string NestedText(const HostTensor& tensor);

}  // namespace tp::client
