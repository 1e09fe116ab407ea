"""A call as a value: what is sent, and how the answer is put together. Client and AsyncClient run the same values."""
from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Collector(Protocol[T_co]):
    """Takes the messages of one answer."""

    def add(self, message: Any) -> None: ...

    def result(self) -> T_co: ...


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request that is answered as a whole. `requests` and `collector` are made anew for each attempt; the request id in
    them is the same."""

    rpc: str
    requests: Callable[[], Iterator[Any]]
    collector: Callable[[], Collector[T]]


@dataclass(frozen=True)
class Stream(Generic[T]):
    """A request whose answers are handed on one by one."""

    rpc: str
    request: Any
    decode: Callable[[Any], T]


class _Single(Generic[T]):
    def __init__(self, decode: Callable[[Any], T]) -> None:
        self._decode, self._message = decode, None

    def add(self, message: Any) -> None:
        self._message = message

    def result(self) -> T:
        return self._decode(self._message)


def single(decode: Callable[[Any], T]) -> Callable[[], Collector[T]]:
    """The collector of an answer of one message."""
    return lambda: _Single(decode)


def unary(rpc: str, request: Any, decode: Callable[[Any], T]) -> Call[T]:
    return Call(rpc, lambda: iter([request]), single(decode))


def nothing(_: Any) -> None:
    """Decodes an empty answer."""


def new_request_id() -> str:
    return secrets.token_hex(16)
