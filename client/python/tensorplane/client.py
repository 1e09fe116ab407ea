"""Client: every call blocks until it is answered or the timeout has passed. Thread-safe."""
from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from tensorplane.call import Call, Stream
from tensorplane.calls import forward as forward_calls
from tensorplane.calls import generate as generate_calls
from tensorplane.calls import models as model_calls
from tensorplane.calls import tensor_values
from tensorplane.calls import tensors as tensor_calls
from tensorplane.channel import CHANNEL_OPTIONS, Feed, make_credentials, server_address
from tensorplane.errors import TensorplaneError, from_rpc
from tensorplane.retry import Attempts, Retry
from tensorplane.v1.coordinator_pb2_grpc import CoordinatorServiceStub

P = ParamSpec("P")
T = TypeVar("T")


def as_method(method: Callable[..., Any], build: Callable[..., Any]) -> None:
    """Gives a method the name, the documentation and the parameters of what builds its call."""
    functools.update_wrapper(method, build)
    own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *inspect.signature(build).parameters.values()]
    method.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]


def _call(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(build(*args, **kwargs))

    as_method(method, build)
    return method


def _stream(build: Callable[P, Stream[T]]) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._iterate(build(*args, **kwargs))

    as_method(method, build)
    return method


class Client:
    """A coordinator's API. Errors are TensorplaneErrors.

    `server`: HOST:PORT; None: TPCTL_SERVER, or the cluster of `tpctl local up`. `timeout`: seconds of each call, its
    retries included; None: no limit. `tls_ca`, `tls_cert`, `tls_key`: PEM files for TLS (the authority that is trusted;
    what is shown to a server that asks); None: TP_TLS_CA, TP_TLS_CERT and TP_TLS_KEY, plain text where none is set.
    `credentials`: gRPC's own, in place of them.
    """

    def __init__(self, server: str | None = None, timeout: float | None = None, *, retry: Retry = Retry(),
                 credentials: grpc.ChannelCredentials | None = None, tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None) -> None:
        self.server = server_address(server)
        self._timeout, self._retry = timeout, retry
        if credentials is None:
            credentials = make_credentials(tls_ca, tls_cert, tls_key)
        if credentials is None:
            self._channel = grpc.insecure_channel(self.server, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(self.server, credentials, CHANNEL_OPTIONS)
        self._stub: Any = CoordinatorServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Ends the calls that still run."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    submit = _call(model_calls.submit)
    create_model = _call(model_calls.create_model)
    init_states = _call(model_calls.init_states)
    parallelize = _call(model_calls.parallelize)
    models = _call(model_calls.models)
    describe = _call(model_calls.describe)
    delete = _call(model_calls.delete)
    watch = _stream(model_calls.watch)
    forward = _call(forward_calls.forward)
    generate = _stream(generate_calls.generate)
    workers = _call(generate_calls.workers)
    status = _call(generate_calls.status)
    create_mesh = _call(tensor_calls.create_mesh)
    meshes = _call(tensor_calls.meshes)
    delete_mesh = _call(tensor_calls.delete_mesh)
    put_tensor = _call(tensor_values.put_tensor)
    create_tensor = _call(tensor_calls.create_tensor)
    redistribute_tensor = _call(tensor_calls.redistribute_tensor)
    get_tensor = _call(tensor_values.get_tensor)
    get_local_blocks = _call(tensor_values.get_local_blocks)
    describe_tensor = _call(tensor_calls.describe_tensor)
    tensors = _call(tensor_calls.tensors)
    delete_tensor = _call(tensor_calls.delete_tensor)
    save_tensors = _call(tensor_calls.save_tensors)
    load_tensors = _call(tensor_calls.load_tensors)

    def _answers(self, rpc: str, feed: Feed, timeout: float | None) -> Generator[Any, None, None]:
        """The messages of one attempt. The call is cancelled where they are left early."""
        method = getattr(self._stub, rpc)
        call: Any
        if isinstance(method, grpc.UnaryUnaryMultiCallable):
            yield method(next(feed), timeout=timeout)
            return
        if isinstance(method, grpc.StreamUnaryMultiCallable):
            call = method.future(feed, timeout=timeout)
        elif isinstance(method, grpc.UnaryStreamMultiCallable):
            call = method(next(feed), timeout=timeout)
        else:
            call = method(feed, timeout=timeout)
        feed.cancels(call.cancel)
        try:
            if isinstance(method, grpc.StreamUnaryMultiCallable):
                yield call.result()
            else:
                yield from call
        finally:
            call.cancel()

    def _attempt(self, rpc: str, requests: Iterator[Any], timeout: float | None) -> Generator[Any, None, None]:
        """As _answers; errors are ours."""
        feed = Feed(requests)
        try:
            yield from self._answers(rpc, feed, timeout)
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            if feed.error is not None:
                raise feed.error from None
            raise from_rpc(error, self.server) from None

    def _run(self, call: Call[T]) -> T:
        attempts = Attempts(self._retry, self._timeout)
        while True:
            collector, begun = call.collector(), False
            try:
                with contextlib.closing(self._attempt(call.rpc, call.requests(), attempts.timeout())) as messages:
                    for message in messages:
                        begun = True
                        collector.add(message)
                return collector.result()
            except TensorplaneError as error:
                pause = attempts.pause(error, begun)
            time.sleep(pause)

    def _iterate(self, stream: Stream[T]) -> Generator[T, None, None]:
        attempts = Attempts(self._retry, self._timeout)
        while True:
            begun = False
            try:
                requests = iter([stream.request])
                with contextlib.closing(self._attempt(stream.rpc, requests, attempts.timeout())) as messages:
                    for message in messages:
                        begun = True
                        yield stream.decode(message)
                return
            except TensorplaneError as error:
                pause = attempts.pause(error, begun)
            time.sleep(pause)
