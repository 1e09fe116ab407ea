"""Meshes and placements in their text forms, as README.md and proto/tp/v1/placement.proto list them.

A mesh is "dp=2,tp=2" or {"dp": 2, "tp": 2}, outermost axis first. Placements are "dp=R,tp=S(0)" or {"tp": "S(0)"}.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tensorplane.errors import InvalidArgumentError
from tensorplane.v1 import mesh_pb2, placement_pb2

MeshLike = str | Mapping[str, int]
PlacementsLike = str | Mapping[str, str]

_FORMS = "R, S(dim), P(sum|avg|min|max|product), SS(dim,factor), IS(dim,parts), IS(dim,[a,b,...]), GS(dim,groups)"
_OPS: dict[str, Any] = {"sum": 1, "avg": 2, "min": 3, "max": 4, "product": 5}  # Placement.Partial.Op
_OP_NAMES = {number: name for name, number in _OPS.items()}
_INT = r"\s*(-?\d+)\s*"
_CUT = re.compile(rf"(S|SS|GS|IS)\({_INT}(?:,{_INT})?\)")
_RATIO = re.compile(rf"IS\({_INT},\s*\[([\d\s,]+)\]\s*\)")
_PARTIAL = re.compile(r"P\(\s*(\w+)\s*\)")


def parse_placement(text: str) -> placement_pb2.Placement:
    proto, word = placement_pb2.Placement(), text.strip()
    cut, ratio, partial = _CUT.fullmatch(word), _RATIO.fullmatch(word), _PARTIAL.fullmatch(word)
    if word == "R":
        proto.replicate.SetInParent()
    elif partial and partial[1] in _OPS:
        proto.partial.op = _OPS[partial[1]]
    elif ratio:
        proto.interleaved_shard.dim = int(ratio[1])
        proto.interleaved_shard.parts.extend(int(part) for part in ratio[2].split(","))
    elif cut and (cut[1] == "S") == (cut[3] is None):
        dim, count = int(cut[2]), int(cut[3] or 0)
        if cut[1] == "S":
            proto.shard.dim = dim
        elif cut[1] == "SS":
            proto.strided_shard.dim, proto.strided_shard.split_factor = dim, count
        elif cut[1] == "GS":
            proto.group_shard.dim, proto.group_shard.groups = dim, count
        else:
            proto.interleaved_shard.dim = dim
            proto.interleaved_shard.parts.extend([1] * count)
    else:
        raise InvalidArgumentError(f'bad placement "{word[:64]}"; known forms: {_FORMS}')
    return proto


def placement_text(proto: placement_pb2.Placement) -> str:
    kind = proto.WhichOneof("kind")
    if kind == "shard":
        return f"S({proto.shard.dim})"
    if kind == "partial":
        return f"P({_OP_NAMES.get(proto.partial.op, '?')})"
    if kind == "strided_shard":
        return f"SS({proto.strided_shard.dim},{proto.strided_shard.split_factor})"
    if kind == "interleaved_shard":
        parts = list(proto.interleaved_shard.parts)
        equal = all(part == 1 for part in parts)
        ratio = str(len(parts)) if equal else "[" + ",".join(map(str, parts)) + "]"
        return f"IS({proto.interleaved_shard.dim},{ratio})"
    if kind == "group_shard":
        return f"GS({proto.group_shard.dim},{proto.group_shard.groups})"
    return "R"


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def placements_to_proto(placements: PlacementsLike) -> dict[str, placement_pb2.Placement]:
    """By axis."""
    if not isinstance(placements, str):
        return {axis: parse_placement(text) for axis, text in placements.items()}
    named: dict[str, placement_pb2.Placement] = {}
    for part in _split(placements) if placements.strip() else []:
        axis, equals, text = part.partition("=")
        axis = axis.strip()
        if not equals or not axis:
            raise InvalidArgumentError(f'bad placements "{placements[:128]}"; '
                                       "expected AXIS=PLACEMENT[,AXIS=PLACEMENT...]")
        if axis in named:
            raise InvalidArgumentError(f"mesh axis {axis} is placed twice")
        named[axis] = parse_placement(text)
    return named


def placements_from_proto(mesh: Mapping[str, int], protos: Iterable[placement_pb2.Placement]) -> dict[str, str]:
    """By axis, in the mesh's order."""
    return dict(zip(mesh, map(placement_text, protos)))


def mesh_to_proto(mesh: MeshLike) -> mesh_pb2.Mesh:
    proto = mesh_pb2.Mesh()
    if not isinstance(mesh, str):
        for name, size in mesh.items():
            proto.axes.add(name=name, size=size)
        return proto
    for part in mesh.split(",") if mesh.strip() else []:
        name, _, size_text = part.partition("=")
        if not re.fullmatch(_INT, size_text):
            raise InvalidArgumentError(f'bad mesh "{mesh[:128]}"; expected NAME=SIZE[,NAME=SIZE...] as in dp=2,tp=2')
        proto.axes.add(name=name.strip(), size=int(size_text))
    return proto


def mesh_from_proto(proto: mesh_pb2.Mesh) -> dict[str, int]:
    return {axis.name: axis.size for axis in proto.axes}
