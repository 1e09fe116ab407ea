"""Tensors: the calls that carry values."""
from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensorplane.call import Call, new_request_id, single
from tensorplane.calls.forward import shards_to_wire
from tensorplane.calls.tensors import tensor_info
from tensorplane.chunks import Block, Progress, array_bytes, check_whole, chunks, join, receive
from tensorplane.dtypes import Array, dtype_name, name_of, to_dtype, to_proto, to_wire
from tensorplane.errors import DataLossError, InternalError, InvalidArgumentError
from tensorplane.files import read_array
from tensorplane.layout import owned_indices
from tensorplane.placements import PlacementsLike, mesh_from_proto, placements_to_proto
from tensorplane.values import Shards, TensorInfo
from tensorplane.v1 import dtensor_pb2 as v1


def put_tensor(name: str, values: npt.ArrayLike | Shards | Path, *, mesh: str, placements: PlacementsLike = "",
               src_data_rank: int | None = 0, progress: Progress | None = None) -> Call[TensorInfo]:
    """Distributes an array, or the tensor `name` (or the only one) of a .npy or .safetensors file; or registers Shards.

    An axis that is not named is R. `src_data_rank`: of equal copies, the coordinate that gets the bytes and passes them
    on; None: each gets them by itself. Placements of Shards stand in them.
    """
    header = v1.PutTensorHeader(request_id=new_request_id(), name=name, mesh=mesh,
                                no_src_data_rank=src_data_rank is None)
    if src_data_rank:
        header.src_data_rank = src_data_rank
    arrays: list[Array] = []
    if isinstance(values, Shards):
        if placements:
            raise InvalidArgumentError("the placements of Shards stand in them")
        placements = values.placements
        dtype, blocks = shards_to_wire(name, values)
        header.infer_shape = values.shape is None
        header.shape.extend(values.shape or ())
        for rank, array in blocks.items():
            header.locals.add(rank=rank, shape=array.shape)
            arrays.append(array)
    else:
        array = to_wire(read_array(values, name) if isinstance(values, Path) else values)
        dtype = dtype_name(array.dtype)
        header.shape.extend(array.shape)
        arrays.append(array)
    header.dtype = to_proto(dtype)
    for axis, placement in placements_to_proto(placements).items():
        header.placements[axis].CopyFrom(placement)

    def requests() -> Iterator[v1.PutTensorRequest]:
        yield v1.PutTensorRequest(header=header)
        for chunk in chunks([array_bytes(array) for array in arrays], progress):
            yield v1.PutTensorRequest(chunk=chunk)

    return Call("PutTensor", requests, single(lambda response: tensor_info(response.tensor)))


class _Boxes:
    """Checks the boxes of an answer as they come."""

    def __init__(self) -> None:
        self._tensor: v1.TensorDescription | None = None
        self._blocks: list[Block] = []

    def add(self, message: v1.GetTensorResponse) -> None:
        if message.WhichOneof("kind") == "chunk":
            receive(self._blocks, message.chunk)
            return
        if self._tensor is not None:
            raise InternalError("the answer has two headers")
        self._tensor = tensor = message.header.tensor
        for proto in message.header.blocks:
            block = Block(proto.rank, tuple(proto.offset), tuple(proto.shape), to_dtype(name_of(tensor.dtype)),
                          f"tensor '{tensor.name}'")
            block.check_inside(tuple(tensor.shape))
            self._blocks.append(block)

    def whole(self) -> tuple[v1.TensorDescription, list[Block]]:
        if self._tensor is None:
            raise InternalError("the answer has no header")
        check_whole(self._blocks)
        return self._tensor, self._blocks


class _Global(_Boxes):

    def result(self) -> Array:
        tensor, blocks = self.whole()
        return join(blocks, tuple(tensor.shape), to_dtype(name_of(tensor.dtype)))


class _Locals(_Boxes):

    def result(self) -> list[Array]:
        tensor, blocks = self.whole()
        mesh, dtype = mesh_from_proto(tensor.axes), to_dtype(name_of(tensor.dtype))
        locals_: list[Array] = []
        for rank in range(math.prod(mesh.values())):
            owned = owned_indices(tensor.shape, mesh, tensor.placements, rank)
            local, got = np.zeros(tuple(map(len, owned)), dtype), 0
            for block in (block for block in blocks if block.rank == rank and block.size_bytes > 0):
                # A box is contiguous in the rank's block, too.
                at = [int(np.searchsorted(kept, offset)) for kept, offset in zip(owned, block.offset)]
                for kept, begin, offset, size in zip(owned, at, block.offset, block.shape):
                    if not np.array_equal(kept[begin:begin + size], np.arange(offset, offset + size)):
                        raise InternalError(f"rank {rank} sent a box that is not its own: offset {block.offset}, "
                                            f"shape {block.shape}")
                local[tuple(slice(begin, begin + size) for begin, size in zip(at, block.shape))] = block.array()
                got += math.prod(block.shape)
            if got != local.size:
                raise DataLossError(f"the block of rank {rank} is not whole")
            locals_.append(local)
        return locals_


def get_tensor(name: str) -> Call[Array]:
    """The global value; P is reduced on the way out."""
    return Call("GetTensor", lambda: iter([v1.GetTensorRequest(name=name)]), _Global)


def get_local_blocks(name: str) -> Call[list[Array]]:
    """Each rank's raw local block, terms of P as they are; a rank without elements has an empty one."""
    return Call("GetTensor", lambda: iter([v1.GetTensorRequest(name=name, local_blocks=True)]), _Locals)
