"""Where the coordinator is, and channels to it."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from tensorplane.errors import InvalidArgumentError, NotFoundError

# Those of the C++ client: keepalive, reconnecting, sizes.
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 256 << 20),
]


def server_address(server: str | None) -> str:
    """HOST:PORT: as given, or TPCTL_SERVER, or what `tpctl local up` left in its default folder."""
    if server:
        return server
    from_environment = os.environ.get("TPCTL_SERVER")
    if from_environment:
        return from_environment
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.environ.get("HOME") or "/tmp", ".local/state")
    endpoint = Path(state) / "tensorplane/endpoint"
    try:
        return endpoint.read_text().strip()
    except OSError:
        raise InvalidArgumentError("no server: give HOST:PORT, or set TPCTL_SERVER, or start one with `tpctl local up`"
                                   ) from None


def _pem(option: str, path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFoundError(f"{option}: {os.fspath(path)} can't be read: {error.strerror}") from None


def make_credentials(ca: str | os.PathLike[str] | None, cert: str | os.PathLike[str] | None,
                     key: str | os.PathLike[str] | None) -> grpc.ChannelCredentials | None:
    """Of PEM files; where none is named those of TP_TLS_CA, TP_TLS_CERT and TP_TLS_KEY; None where there are none either.

    Without `ca` the system's authorities are trusted; with `cert` and `key` the client shows its own certificate.
    """
    if ca is None and cert is None and key is None:
        ca, cert, key = (os.environ.get(f"TP_TLS_{name}") or None for name in ("CA", "CERT", "KEY"))
    if ca is None and cert is None and key is None:
        return None
    if (cert is None) != (key is None):
        raise InvalidArgumentError(f"tls_cert and tls_key belong together; got {cert!r} and {key!r}")
    roots, chain, secret = (None if path is None else _pem(option, path)
                            for option, path in (("tls_ca", ca), ("tls_cert", cert), ("tls_key", key)))
    return grpc.ssl_channel_credentials(roots, secret, chain)


class Feed(Iterator[Any]):
    """Requests as gRPC takes them. What their making raises (a progress callback) gRPC would swallow: it is kept, and the
    call is cancelled."""

    def __init__(self, requests: Iterator[Any]) -> None:
        self._requests = requests
        self._cancel: Callable[[], object] | None = None
        self.error: BaseException | None = None

    def cancels(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        if self.error is not None:
            cancel()

    def __next__(self) -> Any:
        try:
            return next(self._requests)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            if self._cancel is not None:
                self._cancel()
            raise StopIteration from None
