"""Bytes in chunks of at most 1 MiB, each with a CRC-32; and the blocks that are put together from them."""
from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorplane.dtypes import Array
from tensorplane.errors import DataLossError, InternalError
from tensorplane.v1 import tensor_pb2

CHUNK_BYTES = 1 << 20

# Bytes done and in all; called before the first chunk and after each.
Progress = Callable[[int, int], None]


def array_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def chunks(arrays: Sequence[bytes | memoryview], progress: Progress | None = None) -> Iterator[tensor_pb2.Chunk]:
    """The chunks of the arrays, one array after the other."""
    total, done = sum(len(data) for data in arrays), 0
    if progress is not None:
        progress(0, total)
    for index, data in enumerate(arrays):
        for offset in range(0, len(data), CHUNK_BYTES):
            piece = bytes(data[offset:offset + CHUNK_BYTES])
            yield tensor_pb2.Chunk(index=index, offset=offset, data=piece, crc32=zlib.crc32(piece))
            done += len(piece)
            if progress is not None:
                progress(done, total)


@dataclass
class Block:
    """A box of a tensor that arrives row-major."""

    rank: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    what: str  # for messages
    data: bytearray = field(default_factory=bytearray)

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self) -> Array:
        return np.frombuffer(self.data, np.uint8).view(self.dtype).reshape(self.shape)

    def check_inside(self, shape: tuple[int, ...]) -> None:
        """Raises INTERNAL where the box is none of a tensor of this shape."""
        inside = len(self.offset) == len(shape) == len(self.shape) and all(
            offset >= 0 and size >= 0 and offset + size <= whole
            for offset, size, whole in zip(self.offset, self.shape, shape))
        if not inside:
            raise InternalError(f"{self.what}: a block of the answer lies outside of its tensor")


def receive(blocks: Sequence[Block], chunk: tensor_pb2.Chunk) -> None:
    """Checks a chunk and adds it to its block."""
    if chunk.index >= len(blocks):
        raise InternalError("a chunk names no block")
    if zlib.crc32(chunk.data) != chunk.crc32:
        raise DataLossError(f"chunk {chunk.index} at offset {chunk.offset}: checksum does not match")
    block = blocks[chunk.index]
    if chunk.offset != len(block.data) or chunk.offset + len(chunk.data) > block.size_bytes:
        raise InternalError("the answer's chunks are out of order")
    block.data += chunk.data


def check_whole(blocks: Sequence[Block]) -> None:
    for block in blocks:
        if len(block.data) != block.size_bytes:
            raise DataLossError(f"{block.what}: expected {block.size_bytes} bytes of a block, got {len(block.data)}")


def join(blocks: Sequence[Block], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The tensor of which the blocks together are the whole."""
    if len(blocks) == 1 and blocks[0].shape == shape:
        return blocks[0].array()
    whole = np.zeros(shape, dtype)
    for block in blocks:
        whole[tuple(slice(o, o + n) for o, n in zip(block.offset, block.shape))] = block.array()
    return whole
