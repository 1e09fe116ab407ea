"""Submissions: files in the three forms, and their bytes as they are sent."""
from __future__ import annotations

import os
from pathlib import Path

from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from tensorplane.errors import InvalidArgumentError, NotFoundError
from tensorplane.v1 import submission_pb2

# Serialized, a message, or the path of a .pb, .textproto or .json file.
SubmissionLike = bytes | submission_pb2.Submission | str | os.PathLike[str]


def read_submission(path: str | os.PathLike[str]) -> submission_pb2.Submission:
    """Relative paths of weights become those of the file's folder. NOT_FOUND, INVALID_ARGUMENT."""
    path = Path(path)
    message = submission_pb2.Submission()
    if path.suffix not in (".pb", ".textproto", ".pbtxt", ".json"):
        raise InvalidArgumentError(f"'{path}': a submission's file ends in .pb, .textproto or .json")
    try:
        data = path.read_bytes()
        if path.suffix == ".pb":
            message.ParseFromString(data)
        elif path.suffix == ".json":
            json_format.Parse(data.decode(), message)
        else:
            text_format.Parse(data.decode(), message)
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist") from None
    except (DecodeError, UnicodeDecodeError, json_format.ParseError, text_format.ParseError) as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    folder = path.absolute().parent
    if message.weights_file:
        message.weights_file = str(folder / message.weights_file)
    for source in message.weights.values():
        _resolve(folder, source)
    return message


def _resolve(folder: Path, source: submission_pb2.WeightSource) -> None:
    kind = source.WhichOneof("kind")
    if kind == "file":
        source.file.path = str(folder / source.file.path)
    elif kind in ("slice", "transpose"):
        _resolve(folder, getattr(source, kind).of)
    elif kind == "concat":
        for part in source.concat.parts:
            _resolve(folder, part)


def submission_bytes(source: SubmissionLike) -> bytes:
    if isinstance(source, bytes):
        return source
    message = source if isinstance(source, submission_pb2.Submission) else read_submission(source)
    return bytes(message.SerializeToString(deterministic=True))
