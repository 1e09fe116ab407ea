"""AsyncClient: the calls of Client as coroutines and asynchronous iterators."""
from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio

from tensorplane.call import Call, Stream
from tensorplane.calls import forward as forward_calls
from tensorplane.calls import generate as generate_calls
from tensorplane.calls import models as model_calls
from tensorplane.calls import tensor_values
from tensorplane.calls import tensors as tensor_calls
from tensorplane.channel import CHANNEL_OPTIONS, Feed, make_credentials, server_address
from tensorplane.client import as_method
from tensorplane.errors import TensorplaneError, from_rpc
from tensorplane.retry import Attempts, Retry
from tensorplane.v1.coordinator_pb2_grpc import CoordinatorServiceStub

P = ParamSpec("P")
T = TypeVar("T")


def _call(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(build(*args, **kwargs))

    as_method(method, build)
    return method


def _stream(build: Callable[P, Stream[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]]:

    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return self._iterate(build(*args, **kwargs))

    as_method(method, build)
    return method


class AsyncClient:
    """As Client, for asyncio; make it inside of a running loop. Cancelling a task ends its call."""

    def __init__(self, server: str | None = None, timeout: float | None = None, *, retry: Retry = Retry(),
                 credentials: grpc.ChannelCredentials | None = None, tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None) -> None:
        self.server = server_address(server)
        self._timeout, self._retry = timeout, retry
        if credentials is None:
            credentials = make_credentials(tls_ca, tls_cert, tls_key)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(self.server, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(self.server, credentials, CHANNEL_OPTIONS)
        self._stub: Any = CoordinatorServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Ends the calls that still run."""
        await self._channel.close(None)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await self.close()

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

    async def _answers(self, rpc: str, feed: Feed, timeout: float | None) -> AsyncGenerator[Any, None]:
        """The messages of one attempt. The call is cancelled where they are left early."""
        method = getattr(self._stub, rpc)
        takes_one = isinstance(method, (grpc.aio.UnaryUnaryMultiCallable, grpc.aio.UnaryStreamMultiCallable))
        call = method(next(feed) if takes_one else feed, timeout=timeout)
        feed.cancels(call.cancel)
        try:
            if isinstance(method, (grpc.aio.UnaryUnaryMultiCallable, grpc.aio.StreamUnaryMultiCallable)):
                yield await call
            else:
                async for message in call:
                    yield message
        finally:
            call.cancel()

    async def _attempt(self, rpc: str, requests: Iterator[Any], timeout: float | None) -> AsyncGenerator[Any, None]:
        """As _answers; errors are ours."""
        feed = Feed(requests)
        try:
            async with aclosing(self._answers(rpc, feed, timeout)) as messages:
                async for message in messages:
                    yield message
        except grpc.RpcError as error:
            if feed.error is not None:
                raise feed.error from None
            raise from_rpc(error, self.server) from None
        except asyncio.CancelledError:
            if feed.error is not None:  # the feed cancelled the call, nobody this task
                raise feed.error from None
            raise

    async def _run(self, call: Call[T]) -> T:
        attempts = Attempts(self._retry, self._timeout)
        while True:
            collector, begun = call.collector(), False
            try:
                async with aclosing(self._attempt(call.rpc, call.requests(), attempts.timeout())) as messages:
                    async for message in messages:
                        begun = True
                        collector.add(message)
                return collector.result()
            except TensorplaneError as error:
                pause = attempts.pause(error, begun)
            await asyncio.sleep(pause)

    async def _iterate(self, stream: Stream[T]) -> AsyncGenerator[T, None]:
        attempts = Attempts(self._retry, self._timeout)
        while True:
            begun, requests = False, iter([stream.request])
            try:
                async with aclosing(self._attempt(stream.rpc, requests, attempts.timeout())) as messages:
                    async for message in messages:
                        begun = True
                        yield stream.decode(message)
                return
            except TensorplaneError as error:
                pause = attempts.pause(error, begun)
            await asyncio.sleep(pause)
