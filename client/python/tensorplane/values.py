"""What calls take and return. Meshes are {axis: ranks}, placements {axis: "S(0)"}, shapes tuples, sizes in bytes."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy.typing as npt

from tensorplane.dtypes import Array
from tensorplane.placements import PlacementsLike

Shape = tuple[int, ...]


# --- Given to calls.


@dataclass(frozen=True)
class Ref:
    """An input of a forward that lies on the workers: a tensor on a mesh of the model's axes and workers."""

    name: str


@dataclass(frozen=True)
class Shards:
    """A tensor as blocks of ranks, one for each rank that holds any element."""

    blocks: Mapping[int, npt.ArrayLike]  # by rank
    placements: PlacementsLike = ""  # an axis that is not named is R; P is allowed
    shape: Shape | None = None  # global; None: inferred, which needs equal blocks


# --- Models.


@dataclass(frozen=True)
class ModelSummary:
    name: str
    state: str  # "READY", "LOADING", ...
    mesh: dict[str, int]
    error: str
    fingerprint: str
    parameter_bytes: int
    loaded_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class LocalBlock:
    rank: int
    shape: Shape
    offset: Shape


@dataclass(frozen=True)
class Parameter:
    name: str
    shape: Shape
    dtype: str
    placements: dict[str, str]
    local: list[LocalBlock]  # by rank
    buffer: bool


@dataclass(frozen=True)
class Module:
    path: str  # empty for the root
    kind: str
    style: str
    inputs: list[str]
    outputs: list[str]


@dataclass(frozen=True)
class ModelWorker:
    id: str
    rank: int
    bytes_read: int
    parameter_bytes: int


@dataclass(frozen=True)
class InputType:
    name: str
    dtype: str
    shape: tuple[str, ...]  # "8", "batch"


@dataclass(frozen=True)
class ModelDescription:
    model: ModelSummary
    parameters: list[Parameter]
    modules: list[Module]
    workers: list[ModelWorker]  # by rank
    inputs: list[InputType]
    generates: bool
    submission: bytes  # serialized, where asked for


@dataclass(frozen=True)
class TakenOver:
    states: int
    size_bytes: int
    wire_bytes: int
    bytes_read: int


@dataclass(frozen=True)
class SubmitResult:
    model: ModelSummary
    warnings: list[str]
    taken_over: TakenOver | None  # of one that replaced a model


# --- Forward and generate.


@dataclass(frozen=True)
class Collective:
    """As counted in the run; `size_bytes` is the payload that the busiest rank received."""

    module: str
    op: str
    axis: str
    size_bytes: int


@dataclass(frozen=True)
class OutputShard:
    rank: int
    offset: Shape
    values: Array


@dataclass(frozen=True)
class OutputShards:
    dtype: str
    shape: Shape  # global
    placements: dict[str, str]
    shards: list[OutputShard]  # by rank


@dataclass(frozen=True)
class ForwardResult:
    """result["y"] is result.outputs["y"]."""

    outputs: dict[str, Array]  # global tensors, in the model's order
    output_shards: dict[str, OutputShards]  # in place of them, where asked for
    mesh: dict[str, int]
    collectives: list[Collective]
    wire_bytes: int
    duration_us: int

    def __getitem__(self, name: str) -> Array:
        return self.outputs[name]


@dataclass(frozen=True)
class GenerateChunk:
    token_ids: list[int]  # new since the last one
    text: str  # bytes that don't make a character yet are held back
    finish_reason: str  # of the last one: "stop" or "length"


# --- Meshes and tensors.


@dataclass(frozen=True)
class MeshInfo:
    name: str
    mesh: dict[str, int]
    workers: list[str]  # by rank
    state: str
    epoch: int
    error: str
    tensors: list[str]


@dataclass(frozen=True)
class TensorInfo:
    name: str
    mesh_name: str
    mesh: dict[str, int]
    dtype: str
    shape: Shape
    placements: dict[str, str]
    state: str
    error: str


@dataclass(frozen=True)
class TensorShard:
    rank: int
    worker: str
    offset: Shape
    shape: Shape
    size_bytes: int


@dataclass(frozen=True)
class TensorDescription:
    tensor: TensorInfo
    shards: list[TensorShard]  # by rank


@dataclass(frozen=True)
class RedistributeStep:
    op: str
    axis: str
    size_bytes: int


@dataclass(frozen=True)
class RedistributeResult:
    tensor: TensorInfo
    steps: list[RedistributeStep]  # as planned
    counted: list[RedistributeStep]  # as counted in the run
    wire_bytes: int
    duration_us: int


@dataclass(frozen=True)
class SaveResult:
    files: list[str]
    size_bytes: int


@dataclass(frozen=True)
class LoadResult:
    tensors: list[TensorInfo]
    bytes_read: int


# --- The cluster.


@dataclass(frozen=True)
class Worker:
    id: str
    host: str
    device: str
    healthy: bool
    reason: str
    memory_limit_bytes: int
    used_bytes: int
    pid: int
    version: str
    models: dict[str, int] = field(default_factory=dict)  # its rank in each
    meshes: dict[str, int] = field(default_factory=dict)  # its rank in each


@dataclass(frozen=True)
class Status:
    version: str
    term: int
    workers_healthy: int
    workers: int
    models_ready: int
    models: int
    requests: int
    uptime_ms: int
    meshes: int
    tensors: int
