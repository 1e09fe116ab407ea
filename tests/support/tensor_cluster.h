// Named tensors on the runtimes of a RuntimeCluster, driven as a coordinator would. Example:
//   TensorCluster tensors(cluster);  TestMesh mesh = *tensors.Connect("dp=2,tp=2", {0, 1, 2, 3});
//   tensors.Put(mesh, 1, value, placements);  tensors.Redistribute(mesh, 1, 2, other);  *tensors.Get(mesh, 2) == value
#pragma once

#include <string>
#include <vector>

#include "tests/support/runtime_cluster.h"

namespace tp::testing {

struct TestMesh {
  uint64_t id = 0, epoch = 1;
  Mesh mesh;
  std::vector<int> members;  // runtime of each rank
};

// A rank's block of a global tensor.
HostTensor BlockAt(const HostTensor& global, const Placements& placements, const Mesh& mesh, int rank);
// The bits of values in turn; BOOL alternates.
HostTensor Counting(DType dtype, const Shape& shape);

class TensorCluster {
 public:
  explicit TensorCluster(RuntimeCluster& cluster) : cluster_(cluster) {}
  RuntimeCluster& cluster() { return cluster_; }

  absl::StatusOr<TestMesh> Connect(const std::string& axes, std::vector<int> members);
  // A link of two meshes: all their members, each once.
  absl::StatusOr<TestMesh> Link(const TestMesh& a, const TestMesh& b);

  // Every rank gets its block over a data stream. No Partial.
  absl::Status Put(const TestMesh& mesh, uint64_t id, const HostTensor& global, const Placements& placements);
  // The ranks' own blocks.
  absl::Status PutBlocks(const TestMesh& mesh, uint64_t id, const Shape& shape, const Placements& placements,
                         const std::vector<HostTensor>& blocks);
  absl::Status Stage(const TestMesh& mesh, const std::vector<NewTensor>& tensors, uint64_t seed = 0,
                     std::vector<StageResult>* results = nullptr);
  // What owners send, put together. No Partial.
  absl::StatusOr<HostTensor> Get(const TestMesh& mesh, uint64_t id);
  // A rank's block; boxes in their order where there are several.
  absl::StatusOr<HostTensor> Block(const TestMesh& mesh, uint64_t id, int rank);

  // A Transform by the plan; knows the new tensor then.
  ClusterAnswer Redistribute(const TestMesh& mesh, uint64_t from, uint64_t to, const Placements& target);
  ClusterAnswer Move(const TestMesh& source, uint64_t from, const TestMesh& target, uint64_t to,
                     const Placements& placements, const TestMesh& link);
  ClusterAnswer Command(const TestMesh& mesh, const RuntimeCluster::Kind& kind);
  ClusterAnswer Drop(const TestMesh& mesh, std::vector<uint64_t> ids);

 private:
  struct Known {
    DType dtype = DType::kF32;
    Shape shape;
    Placements placements;
  };
  ClusterAnswer Learn(uint64_t id, Known known, ClusterAnswer answer);
  RuntimeCluster& cluster_;
  std::map<uint64_t, Known> known_;
  uint64_t last_mesh_ = 100, last_transfer_ = 1 << 20;
};

}  // namespace tp::testing
