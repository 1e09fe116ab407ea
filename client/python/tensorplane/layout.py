"""Which elements of a tensor a rank holds: the chunk rule of each placement, axis by axis. Example:

    owned_indices((5,), {"tp": 2}, [S(0)], rank=0)   # [array([0, 1, 2])]
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tensorplane.v1 import placement_pb2

Indices = npt.NDArray[np.int64]


def _chunk(n: int, k: int, r: int) -> range:
    """The chunk rule: ceil(n / k) elements each, the last ones less."""
    size = math.ceil(n / k)
    return range(min(n, r * size), min(n, (r + 1) * size))


def _parts(n: int, lengths: Iterable[int], size: int, index: int) -> Indices:
    """Parts one after the other, each cut over the axis."""
    begin, kept = 0, []
    for length in lengths:
        piece = _chunk(length, size, index)
        kept.append(np.arange(begin + piece.start, begin + piece.stop))
        begin += length
    return np.concatenate(kept) if kept else np.arange(0)


def _cut(n: int, placement: placement_pb2.Placement, size: int, index: int) -> Indices:
    """The positions of 0..n-1 that the rank at `index` of an axis of `size` ranks keeps."""
    kind = placement.WhichOneof("kind")
    if kind == "group_shard":
        groups = placement.group_shard.groups
        size, index = groups, index // (size // groups)
    if kind == "strided_shard":
        factor = placement.strided_shard.split_factor
        return _parts(n, [len(_chunk(n, factor, i)) for i in range(factor)], size, index)
    if kind == "interleaved_shard":
        parts = list(placement.interleaved_shard.parts)
        return _parts(n, [n // sum(parts) * part for part in parts], size, index)
    return np.asarray(_chunk(n, size, index), np.int64)


def owned_indices(shape: Sequence[int], mesh: Mapping[str, int], placements: Sequence[placement_pb2.Placement],
                  rank: int) -> list[Indices]:
    """Of each dim the global indices that the rank holds, in the order of its block. Dims are not negative."""
    coordinate = np.unravel_index(rank, tuple(mesh.values())) if mesh else ()
    owned = [np.arange(size) for size in shape]
    for placement, size, index in zip(placements, mesh.values(), coordinate):
        kind = placement.WhichOneof("kind")
        if kind in (None, "replicate", "partial"):
            continue
        dim = getattr(placement, kind).dim
        owned[dim] = owned[dim][_cut(len(owned[dim]), placement, size, int(index))]
    return owned
