#!/usr/bin/python3
"""Makes deploy/demo/mlp.safetensors and the reference answers of the two small demo submissions.

It shares no code with the product: numpy in float64, its own Philox4x32-10 and its own safetensors writer. Weights and
inputs are rounded to float32 first, as the product holds them; answers are rounded to float32 last.

    /usr/bin/python3 tests/reference/make_references.py      (needs Debian's python3-numpy)

Files hold tensors NAME_i, one i for each case: the inputs and the answers under their names in the submission.
"""
import hashlib
import json
import math
import pathlib
import struct

import numpy as np

DEMO = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo"
DTYPES = {"float32": "F32", "int64": "I64"}


def write_safetensors(path, tensors):
    """tensors: name -> array of float32 or int64. Large items first, then by name, so that all are aligned."""
    header, data = {}, b""
    for name in sorted(tensors, key=lambda n: (-tensors[n].itemsize, n)):
        array = np.ascontiguousarray(tensors[name]).reshape(tensors[name].shape)
        raw = array.tobytes()
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# --- Initializers, as common/model/initializer.h defines them.


def philox(counter, key):
    """Philox4x32-10 of Salmon et al. 2011: four and two 32-bit words to four."""
    c, k, mask = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


# Known answers of the authors' Random123 (kat_vectors).
assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert philox([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
    0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


class States:
    """First values of states: functions of seed, path and row-major index."""

    def __init__(self, seed):
        self.seed = seed

    def words(self, path, block):
        key = self.seed ^ int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "little")
        return philox([block & 0xFFFFFFFF, block >> 32, 0, 0], [key & 0xFFFFFFFF, key >> 32])

    def make(self, shape, value):
        values = [value(i) for i in range(math.prod(shape))]
        return np.array(values, dtype=np.float64).astype(np.float32).reshape(shape)

    def uniform(self, path, shape, low, high):
        return self.make(shape, lambda i: low + (high - low) * (self.words(path, i // 4)[i % 4] >> 8) * 2.0**-24)

    def normal(self, path, shape, mean, std):
        def value(i):
            words = self.words(path, i // 2)
            u, v = ((words[2 * (i % 2) + j] >> 8) * 2.0**-24 for j in (0, 1))
            return mean + std * math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)
        return self.make(shape, value)

    def arange(self, shape, start, step):
        return self.make(shape, lambda i: start + step * i)

    def constant(self, shape, value):
        return self.make(shape, lambda i: value)


# --- Functions, in float64.


def linear(x, weight, bias):
    return x @ weight.astype(np.float64).T + bias.astype(np.float64)


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def make_mlp():
    rng = np.random.default_rng(7)
    weights = {"fc1.weight": (13, 8), "fc1.bias": (13,), "fc2.weight": (8, 13), "fc2.bias": (8,)}
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in weights.items()}
    write_safetensors(DEMO / "mlp.safetensors", weights)
    tensors = {}
    for i, batch in enumerate((5, 1, 0)):
        x = rng.normal(0, 1, (batch, 8)).astype(np.float32)
        hidden = gelu(linear(x.astype(np.float64), weights["fc1.weight"], weights["fc1.bias"]))
        y = softmax(x + linear(hidden, weights["fc2.weight"], weights["fc2.bias"]))
        tensors[f"x_{i}"], tensors[f"y_{i}"] = x, y.astype(np.float32)
    write_safetensors(DEMO / "mlp.reference.safetensors", tensors)


def make_two_inputs():
    states = States(seed=20240607)
    a_weight, a_bias = states.uniform("fc_a.weight", (10, 6), -0.5, 0.5), states.arange((10,), -0.2, 0.05)
    b_weight, b_bias = states.arange((10, 6), -0.3, 0.01), states.constant((10,), 0.25)
    mix_weight, mix_bias = states.normal("mix.weight", (9, 10), 0, 0.3), states.constant((9,), -0.1)
    score_weight, score_bias = states.uniform("score.weight", (7, 9), -1, 1), states.constant((7,), 0)
    rng = np.random.default_rng(8)
    tensors = {}
    for i, batch in enumerate((4, 1, 0)):
        a = rng.normal(0, 1, (batch, 6)).astype(np.float32)
        b = rng.normal(0, 1, (batch, 6)).astype(np.float32)
        left = np.maximum(linear(a.astype(np.float64), a_weight, a_bias), 0)
        right = linear(b.astype(np.float64), b_weight, b_bias)
        scores = linear(linear(left * right, mix_weight, mix_bias), score_weight, score_bias)
        ordered = np.sort(scores, axis=-1)
        assert (ordered[:, -1] - ordered[:, -2] > 1e-2).all(), "a case whose best is not clear"
        tensors[f"a_{i}"], tensors[f"b_{i}"] = a, b
        tensors[f"total_{i}"] = (left + right).reshape(batch, 2, 5).transpose(0, 2, 1).astype(np.float32)
        tensors[f"best_{i}"] = scores.argmax(axis=-1).astype(np.int64)
    write_safetensors(DEMO / "two_inputs.reference.safetensors", tensors)
    return tensors


if __name__ == "__main__":
    make_mlp()
    make_two_inputs()
