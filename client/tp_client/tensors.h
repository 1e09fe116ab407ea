// Meshes and distributed tensors as C++ calls on plain values; a part of Client. Big tensors stream through callbacks
// and never lie in memory as a whole. Example:
//   client->CreateMesh("m", *Mesh::Parse("tp=2"), {});
//   client->PutTensor({.name = "w", .mesh = "m", .placements = {{"tp", Placement::Shard(0)}}}, tensor);
//   client->RedistributeTensor({.name = "w", .placements = {{"tp", Placement::Shard(1)}}});
//   HostTensor whole = *client->GetTensor("w");
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/placement.h"
#include "common/mesh/mesh.h"
#include "common/model/model.h"
#include "common/tensor/host_tensor.h"

namespace tp::client {

struct MeshInfo {
  std::string name = {}, state = {}, error = {};  // state: "READY", ...
  Mesh mesh = {};
  std::vector<std::string> workers = {};  // by rank
  int64_t epoch = 0;
  std::vector<std::string> tensors = {};  // by name
};
struct TensorInfo {
  std::string name = {}, mesh_name = {}, state = {}, error = {};  // state: "READY", "LOST", ...
  Mesh mesh = {};
  DType dtype = DType::kF32;
  Shape shape = {};
  Placements placements = {};  // one for each axis of the mesh
};
struct TensorShard {
  int rank = 0;
  std::string worker;
  Shape offset = {}, shape = {};
  int64_t bytes = 0;
};
struct TensorDescription {
  TensorInfo tensor;
  std::vector<TensorShard> shards;  // by rank
};

// Axis -> placement; what an axis that is not named gets is said by each call. Dims may be negative.
using NamedPlacements = std::map<std::string, Placement>;

struct LocalTensor {
  int rank = 0;
  Shape shape = {};
};
struct PutTensorOptions {
  std::string name, mesh;
  NamedPlacements placements = {};  // an axis that is not named is R
  DType dtype = DType::kF32;
  std::optional<Shape> shape = {};        // global; absent with `locals`: inferred, which needs equal locals
  std::vector<LocalTensor> locals = {};   // the bytes are these blocks, in this order; P is allowed
  std::optional<int> src_data_rank = {};  // which of equal copies gets the bytes; absent: 0
  bool no_src_data_rank = false;          // every copy gets the bytes from the coordinator
};
struct CreateTensorOptions {
  std::string name, mesh;
  NamedPlacements placements = {};  // an axis that is not named is R
  DType dtype = DType::kF32;
  Shape shape = {};
  Initializer initializer = {};
  uint64_t seed = 0;
};
struct RedistributeOptions {
  std::string name;
  std::string mesh = {};            // target mesh; "" = its own
  NamedPlacements placements = {};  // an axis that is not named keeps its placement, on another mesh it is R
  std::string as = {};              // name of the result; "" = it takes the tensor's place
};
struct RedistributeStepCount {
  std::string op, axis;  // "all_to_all", "tp"
  int64_t bytes = 0;     // payload received by the busiest rank
};
struct RedistributeResult {
  TensorInfo tensor;
  std::vector<RedistributeStepCount> steps, counted;  // as planned; as counted in the run
  int64_t wire_bytes = 0, duration_us = 0;
};
// A box of a tensor that arrives row-major.
struct TensorBlock {
  int rank = 0;
  Shape offset = {}, shape = {};
};
struct SaveResult {
  std::vector<std::string> files;
  int64_t bytes = 0;
};
struct LoadOptions {
  std::string directory, mesh;
  NamedPlacements placements = {};      // of every tensor; an axis that is not named is R
  std::vector<std::string> names = {};  // empty: all
};
struct LoadResult {
  std::vector<TensorInfo> tensors;
  int64_t bytes_read = 0;
};

// Fills `out` with the `size` bytes at `offset` of array `index` (0, or an index in `locals`). Called in order, each
// byte once, at most 1 MiB at a time.
using ReadTensorBytes = std::function<absl::Status(size_t index, int64_t offset, int64_t size, char* out)>;
// What a streamed tensor is written to. `Begin` once, then `Write` for the bytes of each block in order.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  virtual absl::Status Begin(const TensorInfo& tensor, const std::vector<TensorBlock>& blocks) = 0;
  virtual absl::Status Write(size_t block, int64_t offset, std::string_view bytes) = 0;
};

// Blocking and errors as Client says; the errors of each are those of its RPC in proto/tp/v1/coordinator.proto.
class TensorClient {
 public:
  virtual ~TensorClient() = default;

  // `workers` by rank; empty: chosen.
  virtual absl::StatusOr<MeshInfo> CreateMesh(const std::string& name, const Mesh& mesh,
                                              const std::vector<std::string>& workers) = 0;
  virtual absl::StatusOr<std::vector<MeshInfo>> ListMeshes() = 0;
  virtual absl::Status DeleteMesh(const std::string& name) = 0;

  // A failing `read` gives the put up (nothing is left of it) and is returned.
  virtual absl::StatusOr<TensorInfo> PutTensor(const PutTensorOptions& options, const ReadTensorBytes& read) = 0;
  // A global tensor in memory; dtype and shape are its own.
  absl::StatusOr<TensorInfo> PutTensor(PutTensorOptions options, const HostTensor& tensor);
  virtual absl::StatusOr<TensorInfo> CreateTensor(const CreateTensorOptions& options) = 0;
  virtual absl::StatusOr<RedistributeResult> RedistributeTensor(const RedistributeOptions& options) = 0;

  // Streams the global value, or with `local_blocks` each rank's raw block (several boxes where it is not one).
  // DATA_LOSS for a wrong checksum or too few bytes. A failing sink gives the call up and is returned.
  virtual absl::Status GetTensor(const std::string& name, bool local_blocks, TensorSink* sink) = 0;
  // The global value in memory.
  absl::StatusOr<HostTensor> GetTensor(const std::string& name);
  // The raw local blocks by rank, in memory; a rank without elements has an empty one.
  absl::StatusOr<std::vector<HostTensor>> GetLocalBlocks(const std::string& name);
  virtual absl::StatusOr<TensorDescription> DescribeTensor(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<TensorInfo>> ListTensors() = 0;
  virtual absl::Status DeleteTensor(const std::string& name) = 0;

  virtual absl::StatusOr<SaveResult> SaveTensors(const std::string& directory,
                                                 const std::vector<std::string>& names) = 0;
  virtual absl::StatusOr<LoadResult> LoadTensors(const LoadOptions& options) = 0;
};

}  // namespace tp::client
