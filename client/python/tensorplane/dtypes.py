"""Element types: numpy's and those of the wire, named as in safetensors.

numpy has no bfloat16. `bfloat16` is ml_dtypes' type where that package is installed; else a numpy type that marks two raw
bytes, so that such an array is never taken for one of numbers. Example:

    half = tensorplane.to_bfloat16(np.array([1.0, 2.5], np.float32))
    half.view(np.uint16)                  # the bits
    raw_bits.view(tensorplane.bfloat16)   # ... and back
    tensorplane.to_float32(half)
"""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorplane.errors import InvalidArgumentError
from tensorplane.v1 import tensor_pb2

Array = npt.NDArray[Any]

_MARKED: np.dtype[Any] = np.dtype([("bfloat16", "<u2")])
try:
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = _MARKED

_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "BF16": bfloat16,
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()} | {_MARKED: "BF16"}


def to_dtype(name: str) -> np.dtype[Any]:
    """numpy's type of "F32", "BF16", ..."""
    try:
        return _DTYPES[name]
    except KeyError:
        raise InvalidArgumentError(f"unknown dtype '{name}'; known are {', '.join(_DTYPES)}") from None


def dtype_name(dtype: npt.DTypeLike) -> str:
    """ "F32" of numpy's float32."""
    wanted = np.dtype(dtype)
    name = _NAMES.get(wanted) or _NAMES.get(wanted.newbyteorder("<"))
    if name is not None:
        return name
    hint = "; bits of bfloat16 are told by array.view(tensorplane.bfloat16)" if wanted == np.uint16 else ""
    raise InvalidArgumentError(f"numpy's {wanted} is none of {', '.join(_DTYPES)}{hint}")


def name_of(proto: tensor_pb2.DataType) -> str:
    """The name of a tp.v1.DataType."""
    return str(tensor_pb2.DataType.Name(proto))


def to_proto(name: str) -> tensor_pb2.DataType:
    to_dtype(name)
    value: Any = tensor_pb2.DataType.Value(name)
    return value  # type: ignore[no-any-return]


def to_wire(values: npt.ArrayLike) -> Array:
    """A row-major, little-endian array of a type that the wire has."""
    array = np.asarray(values)
    return np.asarray(array, dtype=to_dtype(dtype_name(array.dtype)) if array.dtype != _MARKED else None, order="C")


def to_bfloat16(values: npt.ArrayLike) -> Array:
    """Rounds to the nearest bfloat16, halves to even."""
    bits = np.asarray(values, dtype="<f4", order="C").view("<u4")
    rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype("<u4")
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    upper: Array = (np.where(nan, bits | 0x400000, rounded) >> 16).astype("<u2")
    return upper.view(bfloat16)


def to_float32(values: Array) -> Array:
    """The float32 values of an array of bfloat16; exact."""
    if dtype_name(values.dtype) != "BF16":
        raise InvalidArgumentError(f"an array of bfloat16 is expected, got {values.dtype}")
    return (np.asarray(values, order="C").view("<u2").astype("<u4") << 16).view("<f4")
