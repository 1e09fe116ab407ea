"""A bar for uploads: `client.submit(path, progress=tensorplane.ProgressBar("sending"))`."""
from __future__ import annotations

import sys
from typing import TextIO


class ProgressBar:
    """Draws on a terminal, and nothing where the stream is none. Called with bytes done and in all."""

    def __init__(self, label: str = "sending", stream: TextIO | None = None, width: int = 30) -> None:
        self._label, self._stream, self._width = label, stream or sys.stderr, width
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 if total == 0 else done * 100 // total
        if not self._stream.isatty() or percent == self._shown:
            return
        self._shown = percent
        filled = percent * self._width // 100
        bar = "#" * filled + "." * (self._width - filled)
        self._stream.write(f"\r{self._label} [{bar}] {percent:3d} %" + ("\n" if percent == 100 else ""))
        self._stream.flush()
