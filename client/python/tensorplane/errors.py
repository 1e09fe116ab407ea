"""What calls raise: TensorplaneError with a code and a text, and one subclass for each code. Example:

    try:
        client.describe("nobody")
    except tensorplane.NotFoundError as error:
        print(error.code, error.text)
"""
from __future__ import annotations

import grpc


class TensorplaneError(Exception):
    """A call failed. `code`: a gRPC code by name, "NOT_FOUND"; `text` names the field, what was given, what is allowed."""

    code = "UNKNOWN"

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class CancelledError(TensorplaneError):
    code = "CANCELLED"


class InvalidArgumentError(TensorplaneError):
    """Wrong whatever the state."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(TensorplaneError):
    """The client's timeout passed."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(TensorplaneError):
    code = "NOT_FOUND"


class AlreadyExistsError(TensorplaneError):
    code = "ALREADY_EXISTS"


class PermissionDeniedError(TensorplaneError):
    code = "PERMISSION_DENIED"


class UnauthenticatedError(TensorplaneError):
    code = "UNAUTHENTICATED"


class ResourceExhaustedError(TensorplaneError):
    """A limit, named in the text."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(TensorplaneError):
    """The right request in the wrong state."""

    code = "FAILED_PRECONDITION"


class AbortedError(TensorplaneError):
    code = "ABORTED"


class OutOfRangeError(TensorplaneError):
    code = "OUT_OF_RANGE"


class UnimplementedError(TensorplaneError):
    code = "UNIMPLEMENTED"


class InternalError(TensorplaneError):
    code = "INTERNAL"


class UnavailableError(TensorplaneError):
    """Nobody answers, or a worker was lost; the client has retried already."""

    code = "UNAVAILABLE"


class DataLossError(TensorplaneError):
    """Bytes are wrong or missing."""

    code = "DATA_LOSS"


_BY_CODE: dict[str, type[TensorplaneError]] = {kind.code: kind for kind in TensorplaneError.__subclasses__()}


def make_error(code: str, text: str) -> TensorplaneError:
    kind = _BY_CODE.get(code)
    return TensorplaneError(text, code) if kind is None else kind(text)


def from_rpc(error: BaseException, server: str) -> TensorplaneError:
    """Of an error of gRPC; names the address where nobody answers."""
    if isinstance(error, grpc.FutureCancelledError):
        return CancelledError("the call was cancelled")
    if not isinstance(error, grpc.RpcError) or not hasattr(error, "code"):
        return TensorplaneError(str(error))
    code, text = error.code().name, error.details() or ""
    if code == "UNAVAILABLE" and "failed to connect" in text:
        text = f"no coordinator answers at {server}: {text}"
    return make_error(code, text)
