"""Models: submit, the steps of a submit, list, describe, watch, delete."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tensorplane.call import Call, Stream, T, new_request_id, nothing, single, unary
from tensorplane.chunks import Progress, chunks
from tensorplane.dtypes import name_of
from tensorplane.placements import MeshLike, mesh_from_proto, mesh_to_proto, placements_from_proto
from tensorplane.submission import SubmissionLike, submission_bytes
from tensorplane.values import (InputType, LocalBlock, ModelDescription, ModelSummary, ModelWorker, Module, Parameter,
                               SubmitResult, TakenOver)
from tensorplane.v1 import coordinator_pb2 as v1
from tensorplane.v1 import submission_pb2


def summary(proto: v1.ModelSummary) -> ModelSummary:
    return ModelSummary(
        name=proto.name,
        state=v1.ModelState.Name(proto.state).removeprefix("MODEL_STATE_"),
        mesh=mesh_from_proto(proto.mesh),
        error=proto.error,
        fingerprint=proto.fingerprint,
        parameter_bytes=proto.parameter_bytes,
        loaded_bytes=proto.loaded_bytes,
        total_bytes=proto.total_bytes)


def _submit_result(proto: Any) -> SubmitResult:  # of a SubmitResponse or a ParallelizeResponse
    taken = None
    if isinstance(proto, v1.SubmitResponse) and proto.HasField("taken_over"):
        found = proto.taken_over
        taken = TakenOver(found.states, found.size_bytes, found.wire_bytes, found.bytes_read)
    return SubmitResult(summary(proto.model), list(proto.warnings), taken)


def _description(proto: v1.GetModelResponse) -> ModelDescription:
    model = summary(proto.model)
    parameters = [
        Parameter(
            name=state.name,
            shape=tuple(state.shape),
            dtype=name_of(state.dtype),
            placements=placements_from_proto(model.mesh, state.placements),
            local=[LocalBlock(block.rank, tuple(block.shape), tuple(block.offset)) for block in state.local],
            buffer=state.buffer) for state in proto.parameters
    ]
    modules = [
        Module(module.path, module.kind, module.style, list(module.inputs), list(module.outputs))
        for module in proto.modules
    ]
    workers = [ModelWorker(w.id, w.rank, w.bytes_read, w.parameter_bytes) for w in proto.workers]
    inputs = [
        InputType(name, name_of(type_.dtype), tuple(type_.shape))
        for name, type_ in zip(proto.input_names, proto.input_types)
    ]
    return ModelDescription(model, parameters, modules, workers, inputs, proto.generates, proto.submission)


def _upload(rpc: str, request: Callable[..., Any], header: Any, source: SubmissionLike, progress: Progress | None,
            decode: Callable[[Any], T]) -> Call[T]:
    data = submission_bytes(source)
    header.request_id, header.size_bytes = new_request_id(), len(data)

    def requests() -> Iterator[Any]:
        yield request(header=header)
        for chunk in chunks([data], progress):
            yield request(chunk=chunk)

    return Call(rpc, requests, single(decode))


def submit(source: SubmissionLike, *, name: str = "", mesh: MeshLike | None = None, dry_run: bool = False,
           replace: bool = False, progress: Progress | None = None) -> Call[SubmitResult]:
    """Loads a model and returns when it is READY or has failed.

    `source`: serialized tp.v1.Submission, a message, or the path of a .pb, .textproto or .json file, whose relative
    paths of weights are those of its folder. `name` and `mesh` take the place of the submission's. `dry_run` validates
    and compiles only. `replace`: the READY model of this name, which serves until all ranks hold the new one.
    """
    header = v1.SubmitHeader(name=name, dry_run=dry_run, replace=replace)
    if mesh is not None:
        header.mesh.CopyFrom(mesh_to_proto(mesh))
    return _upload("Submit", v1.SubmitRequest, header, source, progress, _submit_result)


def create_model(source: SubmissionLike, *, name: str = "", progress: Progress | None = None) -> Call[ModelSummary]:
    """Step 1 of 3 of a submit: validates and keeps a model's definition and the sources of its weights."""
    return _upload("CreateModel", v1.CreateModelRequest, v1.CreateModelHeader(name=name), source, progress,
                   lambda response: summary(response.model))


def init_states(name: str, *, buffers_on_cpu: bool = False) -> Call[ModelSummary]:
    """Step 2 or 3: the states get their first values; returns when the model is INITIALISED or READY."""
    device = v1.BUFFER_DEVICE_CPU if buffers_on_cpu else v1.BUFFER_DEVICE_DEVICE
    request = v1.InitStatesRequest(request_id=new_request_id(), name=name, buffer_device=device)
    return unary("InitStates", request, lambda response: summary(response.model))


def parallelize(name: str, *, plan_of: SubmissionLike | None = None,
                mesh: MeshLike | None = None) -> Call[SubmitResult]:
    """Step 2 or 3: places the model by its own plan, or by that of another submission; PARALLELIZED or READY."""
    request = v1.ParallelizeRequest(request_id=new_request_id(), name=name)
    if plan_of is not None:
        request.plan.CopyFrom(submission_pb2.Submission.FromString(submission_bytes(plan_of)).plan)
    if mesh is not None:
        request.mesh.CopyFrom(mesh_to_proto(mesh))
    return unary("Parallelize", request, _submit_result)


def models() -> Call[list[ModelSummary]]:
    """All models, by name."""
    return unary("ListModels", v1.ListModelsRequest(), lambda response: [summary(model) for model in response.models])


def describe(name: str, *, include_submission: bool = False) -> Call[ModelDescription]:
    """One model: its states with placements and local shapes, modules, workers, inputs."""
    return unary("GetModel", v1.GetModelRequest(name=name, include_submission=include_submission), _description)


def delete(name: str) -> Call[None]:
    """Frees a model on all its workers; requests in flight are cancelled."""
    return unary("DeleteModel", v1.DeleteModelRequest(request_id=new_request_id(), name=name), nothing)


def watch(name: str) -> Stream[ModelSummary]:
    """The model's state now, and again at every change, until it is deleted or the caller leaves the loop."""
    return Stream("WatchModel", v1.WatchModelRequest(name=name), lambda response: summary(response.model))
