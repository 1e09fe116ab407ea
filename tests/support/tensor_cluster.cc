#include "tests/support/tensor_cluster.h"

#include <algorithm>
#include <cstring>

#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "common/program/redistribute_program.h"

namespace tp::testing {

HostTensor BlockAt(const HostTensor& global, const Placements& placements, const Mesh& mesh, int rank) {
  const Coordinate coordinate = mesh.CoordinateOf(rank);
  HostTensor block{global.dtype, LocalShape(global.shape, placements, mesh, coordinate), {}};
  block.bytes.resize(static_cast<size_t>(ElementCount(block.shape) * ItemSize(block.dtype)));
  for (const Box& box : LocalBoxes(global.shape, placements, mesh, coordinate)) {
    CopyBox(global.bytes.data(), global.shape, box.offset, block.bytes.data(), block.shape, box.local, box.shape,
            ItemSize(block.dtype));
  }
  return block;
}

HostTensor Counting(DType dtype, const Shape& shape) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < ElementCount(shape); ++i) values.push_back(dtype == DType::kBool ? i % 2 : i % 120);
  return ConvertTo(MakeHostTensor<int64_t>(shape, values), dtype);
}

absl::StatusOr<TestMesh> TensorCluster::Connect(const std::string& axes, std::vector<int> members) {
  TestMesh mesh;
  mesh.id = ++last_mesh_;
  TP_ASSIGN_OR_RETURN(mesh.mesh, Mesh::Parse(axes));
  mesh.members = std::move(members);
  const int size = static_cast<int>(mesh.members.size());
  std::vector<std::string> addresses;
  for (const StageResult& result : cluster_.RunStagesOn(mesh.members, [&](int rank) {
         return tp::Stage{0, 0, StageListen{mesh.id, mesh.epoch, rank, size}};
       })) {
    TP_RETURN_IF_ERROR(result.status);
    addresses.push_back(result.address);
  }
  const std::vector<StageResult> connected = cluster_.RunStagesOn(mesh.members, [&](int) {
    return tp::Stage{0, 0, StageConnect{mesh.id, mesh.epoch, addresses, absl::Seconds(30)}};
  });
  for (const StageResult& result : connected) TP_RETURN_IF_ERROR(result.status);
  TP_RETURN_IF_ERROR(Command(mesh, Commit{{connected[0].stage_id}}).status);
  return mesh;
}

absl::StatusOr<TestMesh> TensorCluster::Link(const TestMesh& a, const TestMesh& b) {
  std::vector<int> members = a.members;
  for (const int member : b.members) {
    if (std::count(members.begin(), members.end(), member) == 0) members.push_back(member);
  }
  return Connect(absl::StrCat("link=", members.size()), members);
}

absl::Status TensorCluster::Put(const TestMesh& mesh, uint64_t id, const HostTensor& global,
                                const Placements& placements) {
  std::vector<HostTensor> blocks;
  for (int rank = 0; rank < mesh.mesh.rank_count(); ++rank) {
    blocks.push_back(BlockAt(global, placements, mesh.mesh, rank));
  }
  return PutBlocks(mesh, id, global.shape, placements, blocks);
}

absl::Status TensorCluster::PutBlocks(const TestMesh& mesh, uint64_t id, const Shape& shape,
                                      const Placements& placements, const std::vector<HostTensor>& blocks) {
  const uint64_t stage_id = cluster_.NextStageId();
  const uint64_t transfer = ++last_transfer_;
  for (size_t rank = 0; rank < mesh.members.size(); ++rank) {
    NewTensor tensor;
    tensor.tensor_id = id;
    tensor.state = {absl::StrCat("t", id), shape, blocks[rank].dtype, placements, {}, false, false};
    tensor.origin = NewTensor::Origin::kTransfer;
    tensor.transfer_id = transfer;
    cluster_.runtime(mesh.members[rank])
        .StartStage({stage_id, 1, StageTensors{mesh.id, mesh.mesh, static_cast<int>(rank), 0, {tensor}}});
  }
  for (size_t rank = 0; rank < mesh.members.size(); ++rank) {
    worker::WorkerRuntime& runtime = cluster_.runtime(mesh.members[rank]);
    const std::string& bytes = blocks[rank].bytes;
    const int64_t wanted = cluster_.sink(mesh.members[rank]).WantedSize(transfer);
    if (wanted != static_cast<int64_t>(bytes.size())) {
      return absl::InternalError(absl::StrCat("rank ", rank, " wants ", wanted, " bytes of ", bytes.size()));
    }
    const size_t half = bytes.size() / 2;
    runtime.ReceiveData(stage_id, transfer, bytes.substr(0, half), false, absl::OkStatus());
    runtime.ReceiveData(stage_id, transfer, bytes.substr(half), true, absl::OkStatus());
  }
  for (const int member : mesh.members) TP_RETURN_IF_ERROR(cluster_.sink(member).ResultOf(stage_id).status);
  known_[id] = {blocks[0].dtype, shape, placements};
  return Command(mesh, Commit{{stage_id}}).status;
}

absl::Status TensorCluster::Stage(const TestMesh& mesh, const std::vector<NewTensor>& tensors, uint64_t seed,
                                  std::vector<StageResult>* results) {
  const std::vector<StageResult> staged = cluster_.RunStagesOn(mesh.members, [&](int rank) {
    return tp::Stage{0, 0, StageTensors{mesh.id, mesh.mesh, rank, seed, tensors}};
  });
  if (results != nullptr) *results = staged;
  for (const StageResult& result : staged) TP_RETURN_IF_ERROR(result.status);
  for (const NewTensor& tensor : tensors) {
    known_[tensor.tensor_id] = {tensor.state.dtype, tensor.state.shape, tensor.state.placements};
  }
  return Command(mesh, Commit{{staged[0].stage_id}}).status;
}

absl::StatusOr<HostTensor> TensorCluster::Block(const TestMesh& mesh, uint64_t id, int rank) {
  const Known& known = known_.at(id);
  const uint64_t transfer = ++last_transfer_, stage = cluster_.NextStageId();
  const int member = mesh.members[static_cast<size_t>(rank)];
  cluster_.runtime(member).StartStage({stage, 1, StageSend{id, transfer}});
  TP_RETURN_IF_ERROR(cluster_.sink(member).ResultOf(stage).status);
  const std::vector<std::string> sent = cluster_.sink(member).DataOf(transfer);
  const Coordinate coordinate = mesh.mesh.CoordinateOf(rank);
  const std::vector<Box> boxes = LocalBoxes(known.shape, known.placements, mesh.mesh, coordinate);
  HostTensor block{known.dtype, LocalShape(known.shape, known.placements, mesh.mesh, coordinate), {}};
  block.bytes.resize(static_cast<size_t>(ElementCount(block.shape) * ItemSize(block.dtype)), '?');
  if (sent.size() != boxes.size()) {
    return absl::InternalError(absl::StrCat(sent.size(), " blocks for ", boxes.size(), " boxes"));
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (static_cast<int64_t>(sent[i].size()) != ElementCount(boxes[i].shape) * ItemSize(block.dtype)) {
      return absl::InternalError(absl::StrCat("a block of ", sent[i].size(), " bytes: ", sent[i].substr(0, 100)));
    }
    CopyBox(sent[i].data(), boxes[i].shape, Shape(boxes[i].shape.size(), 0), block.bytes.data(), block.shape,
            boxes[i].local, boxes[i].shape, ItemSize(block.dtype));
  }
  return block;
}

absl::StatusOr<HostTensor> TensorCluster::Get(const TestMesh& mesh, uint64_t id) {
  const Known& known = known_.at(id);
  HostTensor whole{known.dtype, known.shape, {}};
  whole.bytes.resize(static_cast<size_t>(ElementCount(whole.shape) * ItemSize(whole.dtype)), '?');
  for (int rank = 0; rank < mesh.mesh.rank_count(); ++rank) {
    const Coordinate coordinate = mesh.mesh.CoordinateOf(rank);
    if (!IsOwner(known.placements, mesh.mesh, coordinate)) continue;
    TP_ASSIGN_OR_RETURN(const HostTensor block, Block(mesh, id, rank));
    for (const Box& box : LocalBoxes(known.shape, known.placements, mesh.mesh, coordinate)) {
      CopyBox(block.bytes.data(), block.shape, box.local, whole.bytes.data(), whole.shape, box.offset, box.shape,
              ItemSize(whole.dtype));
    }
  }
  return whole;
}

ClusterAnswer TensorCluster::Redistribute(const TestMesh& mesh, uint64_t from, uint64_t to, const Placements& target) {
  const Known known = known_.at(from);
  ClusterAnswer refused;
  const auto plan = PlanRedistribute(mesh.mesh, known.dtype, known.shape, known.placements, target);
  refused.status = plan.status();
  if (!plan.ok()) return refused;
  Transform transform;
  transform.program = std::make_shared<const ForwardProgram>(
      RedistributeProgram(mesh.mesh, known.dtype, known.shape, *plan, known.placements));
  transform.inputs = {from};
  transform.outputs = {to};
  return Learn(to, {known.dtype, known.shape, target}, Command(mesh, transform));
}

ClusterAnswer TensorCluster::Move(const TestMesh& source, uint64_t from, const TestMesh& target, uint64_t to,
                                  const Placements& placements, const TestMesh& link) {
  const Known known = known_.at(from);
  Transfer transfer;
  transfer.input = from;
  transfer.output = to;
  transfer.dtype = known.dtype;
  transfer.shape = known.shape;
  transfer.source_mesh = source.mesh;
  transfer.target_mesh = target.mesh;
  transfer.source = known.placements;
  transfer.target = placements;
  auto in_link = [&](int member) {
    return static_cast<int>(std::find(link.members.begin(), link.members.end(), member) - link.members.begin());
  };
  for (const int member : source.members) transfer.source_ranks.push_back(in_link(member));
  for (const int member : target.members) transfer.target_ranks.push_back(in_link(member));
  transfer.target_mesh_id = target.id;
  return Learn(to, {known.dtype, known.shape, placements}, Command(link, transfer));
}

ClusterAnswer TensorCluster::Learn(uint64_t id, Known known, ClusterAnswer answer) {
  // One that failed may still be asked for, which then fails.
  if (answer.status.ok() || !known_.contains(id)) known_[id] = std::move(known);
  return answer;
}

ClusterAnswer TensorCluster::Command(const TestMesh& mesh, const RuntimeCluster::Kind& kind) {
  cluster_.SendTo(mesh.id, mesh.epoch, mesh.members, [&](int) { return kind; });
  return cluster_.CollectFrom(mesh.members);
}

ClusterAnswer TensorCluster::Drop(const TestMesh& mesh, std::vector<uint64_t> ids) {
  return Command(mesh, DropTensors{std::move(ids)});
}

}  // namespace tp::testing
