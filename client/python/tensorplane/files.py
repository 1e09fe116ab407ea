""".npy and .safetensors files, without further packages. Arrays that are read lie in the file until they are used.

    weights = tensorplane.read_safetensors("model.safetensors")   # {"fc1.weight": array, ...}
    tensorplane.write_array("w.npy", array)
"""
from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensorplane.chunks import array_bytes
from tensorplane.dtypes import Array, dtype_name, to_dtype, to_wire
from tensorplane.errors import DataLossError, InvalidArgumentError, NotFoundError, UnimplementedError

PathLike = str | os.PathLike[str]

_MAX_HEADER = 100 << 20  # as the format says


def _header(path: Path, data: Array) -> tuple[dict[str, dict[str, object]], int]:
    size = int.from_bytes(data[:8].tobytes(), "little") if len(data) >= 8 else len(data)
    if len(data) < 8 or size > min(_MAX_HEADER, len(data) - 8):
        raise DataLossError(f"{path}: not a safetensors file, or cut off: its header is not whole")
    try:
        header = json.loads(data[8:8 + size].tobytes())
    except ValueError as error:
        raise DataLossError(f"{path}: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise DataLossError(f"{path}: the header is no object")
    header.pop("__metadata__", None)
    return header, 8 + size


def read_safetensors(path: PathLike) -> dict[str, Array]:
    """All tensors by name. NOT_FOUND, DATA_LOSS (not whole), INVALID_ARGUMENT (an element type that is not known)."""
    path = Path(path)
    try:
        data: Array = np.memmap(path, np.uint8, mode="r")
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist") from None
    except ValueError:  # an empty file
        data = np.zeros(0, np.uint8)
    header, begin = _header(path, data)
    tensors: dict[str, Array] = {}
    for name, entry in header.items():
        try:
            dtype = to_dtype(str(entry["dtype"]))
            shape = tuple(int(size) for size in entry["shape"])  # type: ignore[attr-defined]
            first, last = (int(end) for end in entry["data_offsets"])  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError) as error:
            raise DataLossError(f"{path}: the entry of tensor '{name}' is malformed: {error}") from None
        if not 0 <= first <= last <= len(data) - begin or last - first != math.prod(shape) * dtype.itemsize:
            raise DataLossError(f"{path}: tensor '{name}' does not fit the file")
        tensors[name] = np.ndarray(shape, dtype, data, begin + first)
    return tensors


def write_safetensors(path: PathLike, tensors: Mapping[str, npt.ArrayLike]) -> None:
    """The file appears only once it is whole."""
    arrays = {name: to_wire(values) for name, values in tensors.items()}
    header: dict[str, object] = {}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = Path(f"{os.fspath(path)}.partial.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(array_bytes(array))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_array(path: PathLike, name: str | None = None) -> Array:
    """The array of a .npy file; of a .safetensors file that of this name, or the only one."""
    path = Path(path)
    if path.suffix == ".npy":
        try:
            array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise NotFoundError(f"{path} does not exist") from None
        except ValueError as error:
            raise InvalidArgumentError(f"{path}: not a valid .npy file: {error}") from None
        return array
    if path.suffix != ".safetensors":
        raise InvalidArgumentError(f"file {path} is neither .npy nor .safetensors")
    tensors = read_safetensors(path)
    if name in tensors:
        return tensors[name]
    if len(tensors) == 1 and name is None:
        return next(iter(tensors.values()))
    raise NotFoundError(f"{path} has no tensor '{name or ''}'; it has {', '.join(sorted(tensors)[:8])}")


def write_array(path: PathLike, values: npt.ArrayLike, name: str = "tensor") -> None:
    """As .npy, or as the only tensor of a .safetensors file. .npy has no bfloat16."""
    path, array = Path(path), to_wire(values)
    if path.suffix == ".safetensors":
        write_safetensors(path, {name: array})
    elif path.suffix != ".npy":
        raise InvalidArgumentError(f"file {path} is neither .npy nor .safetensors")
    elif dtype_name(array.dtype) == "BF16":
        raise UnimplementedError("npy: the format has no BF16; write .safetensors")
    else:
        np.save(path, array, allow_pickle=False)
