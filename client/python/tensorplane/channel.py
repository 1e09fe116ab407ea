"""Where the coordinator is, and channels to it."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorplane.errors import InvalidArgumentError

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
