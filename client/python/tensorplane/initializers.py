"""Initializers in text: "normal(0,1)", as `tpctl tensor create --init` takes them."""
from __future__ import annotations

import math
import re

from tensorplane.errors import InvalidArgumentError
from tensorplane.v1 import model_pb2

# Of each: its numbers by name, with their defaults; None: must be given.
_NUMBERS: dict[str, dict[str, float | None]] = {
    "zeros": {},
    "ones": {},
    "constant": {"value": None},
    "arange": {"start": 0, "step": 1},
    "eye": {},
    "uniform": {"low": 0, "high": 1},
    "normal": {"mean": 0, "std": 1},
    "truncated_normal": {"mean": 0, "std": 1},
    "kaiming_uniform": {},
    "kaiming_normal": {},
    "xavier_uniform": {},
    "xavier_normal": {},
}


def parse_initializer(text: str) -> model_pb2.Initializer:
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    words = match[2].split(",") if match and match[2] and match[2].strip() else []
    fields = _NUMBERS.get(match[1]) if match else None
    if match is None or fields is None or len(words) > len(fields):
        raise InvalidArgumentError(f"initializer '{text[:64]}' is none of {', '.join(_NUMBERS)}")
    proto = model_pb2.Initializer()
    kind = getattr(proto, match[1])
    kind.SetInParent()
    for index, (name, default) in enumerate(fields.items()):
        try:
            value = float(words[index]) if index < len(words) else default
        except ValueError:
            raise InvalidArgumentError(f"initializer {match[1]}: '{words[index].strip()}' is not a number") from None
        if value is None or not math.isfinite(value):
            raise InvalidArgumentError(f"initializer {match[1]}: {name} must be a finite number")
        # On the wire 0 stands for the default of 1.
        if name == "step" and value == 0:
            raise InvalidArgumentError("initializer arange: a step of 0 gives a constant; use constant(V)")
        if name == "std" and value <= 0:
            raise InvalidArgumentError(f"initializer {match[1]}: the standard deviation must be over 0")
        setattr(kind, name, value)
    return proto
