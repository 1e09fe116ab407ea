"""Named meshes and tensors: the calls that carry no values."""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from tensorplane.call import Call, new_request_id, nothing, unary
from tensorplane.dtypes import name_of, to_proto
from tensorplane.initializers import parse_initializer
from tensorplane.placements import (MeshLike, PlacementsLike, mesh_from_proto, mesh_to_proto, placements_from_proto,
                                    placements_to_proto)
from tensorplane.values import (LoadResult, MeshInfo, RedistributeResult, RedistributeStep, SaveResult,
                               TensorDescription, TensorInfo, TensorShard)
from tensorplane.v1 import dtensor_pb2 as v1


def _mesh(proto: v1.MeshDescription) -> MeshInfo:
    state = v1.MeshState.Name(proto.state).removeprefix("MESH_STATE_")
    return MeshInfo(proto.name, mesh_from_proto(proto.mesh), list(proto.workers), state, proto.epoch, proto.error,
                    list(proto.tensors))


def tensor_info(proto: v1.TensorDescription) -> TensorInfo:
    mesh = mesh_from_proto(proto.axes)
    return TensorInfo(
        name=proto.name,
        mesh_name=proto.mesh,
        mesh=mesh,
        dtype=name_of(proto.dtype),
        shape=tuple(proto.shape),
        placements=placements_from_proto(mesh, proto.placements),
        state=v1.TensorState.Name(proto.state).removeprefix("TENSOR_STATE_"),
        error=proto.error)


def create_mesh(name: str, mesh: MeshLike, *, workers: Sequence[str] = ()) -> Call[MeshInfo]:
    """Makes a named mesh and connects its workers (by rank; empty: chosen)."""
    request = v1.CreateMeshRequest(request_id=new_request_id(), name=name, mesh=mesh_to_proto(mesh), workers=workers)
    return unary("CreateMesh", request, lambda response: _mesh(response.mesh))


def meshes() -> Call[list[MeshInfo]]:
    """All named meshes, by name."""
    return unary("ListMeshes", v1.ListMeshesRequest(), lambda response: [_mesh(mesh) for mesh in response.meshes])


def delete_mesh(name: str) -> Call[None]:
    """Ends a mesh that has no tensors."""
    return unary("DeleteMesh", v1.DeleteMeshRequest(request_id=new_request_id(), name=name), nothing)


def create_tensor(name: str, *, mesh: str, shape: Sequence[int], initializer: str, placements: PlacementsLike = "",
                  dtype: str = "F32", seed: int = 0) -> Call[TensorInfo]:
    """Makes a tensor by an initializer, as "normal(0,1)" or "zeros", slice by slice on each rank."""
    request = v1.CreateTensorRequest(request_id=new_request_id(), name=name, mesh=mesh, dtype=to_proto(dtype),
                                     shape=shape, initializer=parse_initializer(initializer), seed=seed,
                                     placements=placements_to_proto(placements))
    return unary("CreateTensor", request, lambda response: tensor_info(response.tensor))


def redistribute_tensor(name: str, placements: PlacementsLike = "", *, mesh: str = "",
                        result_name: str = "") -> Call[RedistributeResult]:
    """Changes a tensor's layout, or moves it to another mesh.

    An axis that is not named keeps its placement; on another mesh it is R. The result takes the tensor's place unless
    it is given a name.
    """
    request = v1.RedistributeTensorRequest(request_id=new_request_id(), name=name, mesh=mesh,
                                           placements=placements_to_proto(placements))
    setattr(request, "as", result_name)

    def steps(protos: Iterable[v1.RedistributeStepCount]) -> list[RedistributeStep]:
        return [RedistributeStep(step.op, step.axis, step.bytes) for step in protos]

    return unary("RedistributeTensor", request, lambda response: RedistributeResult(
        tensor_info(response.tensor), steps(response.steps), steps(response.counted), response.wire_bytes,
        response.duration_us))


def describe_tensor(name: str) -> Call[TensorDescription]:
    """A tensor and the blocks of its ranks."""
    return unary("DescribeTensor", v1.DescribeTensorRequest(name=name), lambda response: TensorDescription(
        tensor_info(response.tensor), [
            TensorShard(shard.rank, shard.worker, tuple(shard.offset), tuple(shard.shape), shard.size_bytes)
            for shard in response.shards
        ]))


def tensors() -> Call[list[TensorInfo]]:
    """All tensors, by name."""
    return unary("ListTensors", v1.ListTensorsRequest(), lambda response: list(map(tensor_info, response.tensors)))


def delete_tensor(name: str) -> Call[None]:
    """Frees a tensor on all its workers."""
    return unary("DeleteTensor", v1.DeleteTensorRequest(request_id=new_request_id(), name=name), nothing)


def save_tensors(directory: str | os.PathLike[str], names: Sequence[str]) -> Call[SaveResult]:
    """Writes tensors as safetensors files to a folder that all workers see; they write their own blocks."""
    request = v1.SaveTensorsRequest(request_id=new_request_id(), directory=os.fspath(directory), names=names)
    return unary("SaveTensors", request, lambda response: SaveResult(list(response.files), response.size_bytes))


def load_tensors(directory: str | os.PathLike[str], *, mesh: str, placements: PlacementsLike = "",
                 names: Sequence[str] = ()) -> Call[LoadResult]:
    """Reads the tensors of a folder or a .safetensors file (names empty: all), each worker its own slices."""
    request = v1.LoadTensorsRequest(request_id=new_request_id(), directory=os.fspath(directory), mesh=mesh, names=names,
                                    placements=placements_to_proto(placements))
    return unary("LoadTensors", request, lambda response: LoadResult(list(map(tensor_info, response.tensors)),
                                                                     response.bytes_read))
