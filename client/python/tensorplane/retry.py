"""Repeating what was UNAVAILABLE: exponential backoff, bounded by a number of attempts and by the call's timeout.

Every attempt of a call carries the same request id, so what was done already is not done twice. Once a part of an answer
has arrived nothing is repeated.
"""
from __future__ import annotations

import random
import time
from dataclasses import dataclass

from tensorplane.errors import TensorplaneError, UnavailableError


@dataclass(frozen=True)
class Retry:
    attempts: int = 5  # 1: nothing is repeated
    first_pause: float = 0.1  # seconds; doubles
    longest_pause: float = 2.0


class Attempts:
    """The attempts of one call."""

    def __init__(self, retry: Retry, timeout: float | None) -> None:
        self._retry, self._made = retry, 0
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._first_error: TensorplaneError | None = None

    def timeout(self) -> float | None:
        """Seconds that the next attempt has."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def pause(self, error: TensorplaneError, begun: bool) -> float:
        """Seconds to wait before the next attempt; raises the error where there is none."""
        self._made += 1
        longest = min(self._retry.longest_pause, self._retry.first_pause * 2.0**(self._made - 1))
        pause = longest * random.uniform(0.8, 1.0)
        left = self.timeout()
        if (begun or not isinstance(error, UnavailableError) or self._made >= self._retry.attempts or
                (left is not None and left <= pause)):
            raise error from self._first_error
        if self._first_error is None:
            self._first_error = error
        return pause
