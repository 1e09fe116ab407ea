"""Tensorplane from Python: tensor-parallel models as a service, with numpy in and out. Example:

    with tensorplane.Client("127.0.0.1:7050") as client:
        client.submit("deploy/demo/mlp.textproto")
        print(client.forward("mlp", {"x": np.ones((1, 8), np.float32)})["y"])
"""
from tensorplane.aio import AsyncClient
from tensorplane.client import Client
from tensorplane.dtypes import bfloat16, to_bfloat16, to_float32
from tensorplane.errors import (AbortedError, AlreadyExistsError, CancelledError, DataLossError, DeadlineExceededError,
                                FailedPreconditionError, InternalError, InvalidArgumentError, NotFoundError,
                                OutOfRangeError, PermissionDeniedError, ResourceExhaustedError, TensorplaneError,
                                UnauthenticatedError, UnavailableError, UnimplementedError)
from tensorplane.files import read_array, read_safetensors, write_array, write_safetensors
from tensorplane.progress import ProgressBar
from tensorplane.retry import Retry
from tensorplane.submission import read_submission
from tensorplane.values import (Collective, ForwardResult, GenerateChunk, InputType, LoadResult, LocalBlock, MeshInfo,
                                ModelDescription, ModelSummary, ModelWorker, Module, OutputShard, OutputShards,
                                Parameter, RedistributeResult, RedistributeStep, Ref, SaveResult, Shards, Status,
                                SubmitResult, TakenOver, TensorDescription, TensorInfo, TensorShard, Worker)

__all__ = [
    "AbortedError", "AlreadyExistsError", "AsyncClient", "CancelledError", "Client", "Collective", "DataLossError",
    "DeadlineExceededError", "FailedPreconditionError", "ForwardResult", "GenerateChunk", "InputType", "InternalError",
    "InvalidArgumentError", "LoadResult", "LocalBlock", "MeshInfo", "ModelDescription", "ModelSummary", "ModelWorker",
    "Module", "NotFoundError", "OutOfRangeError", "OutputShard", "OutputShards", "Parameter", "PermissionDeniedError",
    "ProgressBar", "RedistributeResult", "RedistributeStep", "Ref", "ResourceExhaustedError", "Retry", "SaveResult",
    "Shards", "Status", "SubmitResult", "TakenOver", "TensorDescription", "TensorInfo", "TensorShard",
    "TensorplaneError", "UnauthenticatedError", "UnavailableError", "UnimplementedError", "Worker", "bfloat16",
    "read_array", "read_safetensors", "read_submission", "to_bfloat16", "to_float32", "write_array",
    "write_safetensors",
]
