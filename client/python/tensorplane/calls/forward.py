"""Forward: arrays, shards or names of tensors in; arrays or shards out; the collectives counted."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy.typing as npt

from tensorplane.call import Call, new_request_id
from tensorplane.chunks import Block, Progress, array_bytes, check_whole, chunks, join, receive
from tensorplane.dtypes import Array, dtype_name, name_of, to_dtype, to_proto, to_wire
from tensorplane.errors import DataLossError, InternalError, InvalidArgumentError
from tensorplane.files import read_array
from tensorplane.layout import owned_indices
from tensorplane.placements import mesh_from_proto, placements_from_proto, placements_to_proto
from tensorplane.values import Collective, ForwardResult, OutputShard, OutputShards, Ref, Shards
from tensorplane.v1 import coordinator_pb2 as v1


def shards_to_wire(name: str, shards: Shards) -> tuple[str, dict[int, Array]]:
    """The dtype and the blocks by rank. INVALID_ARGUMENT where there are none or of several dtypes."""
    blocks = {rank: to_wire(values) for rank, values in sorted(shards.blocks.items())}
    if not blocks:
        raise InvalidArgumentError(f"'{name}': no block is given")
    first, dtype = next((rank, dtype_name(array.dtype)) for rank, array in blocks.items())
    for rank, array in blocks.items():
        if dtype_name(array.dtype) != dtype:
            raise InvalidArgumentError(f"'{name}': the block of rank {rank} is {dtype_name(array.dtype)}, "
                                       f"that of rank {first} {dtype}")
    return dtype, blocks


def _add_input(header: v1.ForwardHeader, name: str, value: npt.ArrayLike | Shards | Ref | Path,
               arrays: list[Array]) -> None:
    """Adds the input to the header, and the arrays whose bytes follow to the list."""
    proto = header.inputs.add(name=name)
    if isinstance(value, Ref):
        proto.ref = value.name
    elif isinstance(value, Shards):
        dtype, blocks = shards_to_wire(name, value)
        proto.dtype = to_proto(dtype)
        proto.shape.extend(value.shape or ())
        proto.shards.infer_shape = value.shape is None
        for axis, placement in placements_to_proto(value.placements).items():
            proto.shards.placements[axis].CopyFrom(placement)
        for rank, array in blocks.items():
            proto.shards.locals.add(rank=rank, shape=array.shape)
            arrays.append(array)
    else:
        array = to_wire(read_array(value, name) if isinstance(value, Path) else value)
        proto.dtype = to_proto(dtype_name(array.dtype))
        proto.shape.extend(array.shape)
        arrays.append(array)


class _Answer:
    """Checks the blocks of an answer as they come, and puts them together."""

    def __init__(self, shards: bool) -> None:
        self._shards = shards
        self._header: v1.ForwardResponseHeader | None = None
        self._summary = v1.ForwardSummary()
        self._blocks: list[Block] = []
        self._owners: list[int] = []  # of each block the index of its output

    def add(self, message: v1.ForwardResponse) -> None:
        kind = message.WhichOneof("kind")
        if kind == "header":
            self._begin(message.header)
        elif kind == "chunk":
            receive(self._blocks, message.chunk)
        elif kind == "summary":
            self._summary = message.summary

    def _begin(self, header: v1.ForwardResponseHeader) -> None:
        if self._header is not None:
            raise InternalError("the answer has two headers")
        self._header, mesh = header, mesh_from_proto(header.mesh)
        for proto in header.blocks:
            if proto.output >= len(header.outputs):
                raise InternalError("an answer's block names no output")
            output = header.outputs[proto.output]
            block = Block(proto.rank, tuple(proto.offset), tuple(proto.shape), to_dtype(name_of(output.dtype)),
                          f"output '{output.name}'")
            if self._shards:
                owned = owned_indices(output.shape, mesh, output.placements, proto.rank)
                if block.shape != tuple(map(len, owned)):
                    raise InternalError("an answer's block is not that of its rank")
            else:
                block.check_inside(tuple(output.shape))
            self._blocks.append(block)
            self._owners.append(proto.output)

    def result(self) -> ForwardResult:
        if self._header is None:
            raise InternalError("the answer has no header")
        check_whole(self._blocks)
        mesh = mesh_from_proto(self._header.mesh)
        outputs: dict[str, Array] = {}
        output_shards: dict[str, OutputShards] = {}
        for index, output in enumerate(self._header.outputs):
            blocks = [block for block, owner in zip(self._blocks, self._owners) if owner == index]
            dtype, shape = name_of(output.dtype), tuple(output.shape)
            if not self._shards:
                outputs[output.name] = join(blocks, shape, to_dtype(dtype))
                continue
            blocks.sort(key=lambda block: block.rank)
            if [block.rank for block in blocks] != list(range(math.prod(mesh.values()))):
                raise DataLossError("the block of a rank is missing")
            shards = [OutputShard(block.rank, block.offset, block.array()) for block in blocks]
            placements = placements_from_proto(mesh, output.placements)
            output_shards[output.name] = OutputShards(dtype, shape, placements, shards)
        collectives = [Collective(c.module, c.op, c.axis, c.bytes) for c in self._summary.collectives]
        return ForwardResult(outputs, output_shards, mesh, collectives, self._summary.wire_bytes,
                             self._summary.duration_us)


def forward(model: str, inputs: Mapping[str, npt.ArrayLike | Shards | Ref | Path], *, output_shards: bool = False,
            module_outputs: bool = False, progress: Progress | None = None) -> Call[ForwardResult]:
    """Runs the model once on arrays, on Shards (blocks of ranks) or on a Ref (a named tensor on the workers).

    A Path is a .npy file, or a .safetensors file with a tensor of the input's name (or only one).

    `output_shards`: each rank's block of every output, in place of the global arrays. `module_outputs`: the outputs of
    every module too, after the model's, named "layers.0.fc:output".
    """
    header = v1.ForwardHeader(request_id=new_request_id(), model=model, module_outputs=module_outputs)
    if output_shards:
        header.output_form = v1.OUTPUT_FORM_SHARDS
    arrays: list[Array] = []
    for name, value in inputs.items():
        _add_input(header, name, value, arrays)

    def requests() -> Iterator[v1.ForwardRequest]:
        yield v1.ForwardRequest(header=header)
        for chunk in chunks([array_bytes(array) for array in arrays], progress):
            yield v1.ForwardRequest(chunk=chunk)

    return Call("Forward", requests, lambda: _Answer(output_shards))
