"""Files, element types, placements, layouts, initializers and the bar: no server."""
import io
import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
import tensorplane
from tensorplane.calls.generate import generate
from tensorplane.dtypes import dtype_name, to_wire
from tensorplane.initializers import parse_initializer
from tensorplane.layout import owned_indices
from tensorplane.placements import (mesh_from_proto, mesh_to_proto, parse_placement, placement_text,
                                    placements_to_proto)
from tensorplane.v1 import placement_pb2


class GenerateTest(unittest.TestCase):

    def test_token_ids_are_whole(self) -> None:
        with self.assertRaises(TypeError):
            generate("model", [1.5])  # type: ignore[list-item]


class PlacementsTest(unittest.TestCase):

    def test_texts_and_messages(self) -> None:
        message = placement_pb2.Placement
        for text, proto in (
            ("R", message(replicate=message.Replicate())),
            ("S(-1)", message(shard=message.Shard(dim=-1))),
            ("P(avg)", message(partial=message.Partial(op=message.Partial.OP_AVG))),
            ("SS(0,2)", message(strided_shard=message.StridedShard(dim=0, split_factor=2))),
            ("IS(1,3)", message(interleaved_shard=message.InterleavedShard(dim=1, parts=[1, 1, 1]))),
            ("IS(0,[8,2,2])", message(interleaved_shard=message.InterleavedShard(dim=0, parts=[8, 2, 2]))),
            ("GS(0,4)", message(group_shard=message.GroupShard(dim=0, groups=4))),
        ):
            self.assertEqual(parse_placement(f" {text} "), proto)
            self.assertEqual(placement_text(proto), text)

    def test_wrong_texts_are_refused(self) -> None:
        for text in ("", "S", "S()", "S(0,1)", "SS(0)", "GS(1)", "IS(0,[])", "P(mean)", "P", "r", "S(0)x", "S(a)"):
            with self.subTest(text), self.assertRaisesRegex(tensorplane.InvalidArgumentError, "known forms"):
                parse_placement(text)
        for text in ("tp", "=R", "tp=R,tp=R", "tp=R,"):
            with self.subTest(text), self.assertRaises(tensorplane.InvalidArgumentError):
                placements_to_proto(text)
        for text in ("tp", "tp=", "tp=a", "tp=1=2"):
            with self.subTest(text), self.assertRaises(tensorplane.InvalidArgumentError):
                mesh_to_proto(text)

    def test_several_axes(self) -> None:
        named = placements_to_proto("dp=IS(0,[1,2]), tp = S(1)")
        texts = {axis: placement_text(proto) for axis, proto in named.items()}
        self.assertEqual(texts, {"dp": "IS(0,[1,2])", "tp": "S(1)"})
        self.assertEqual(mesh_from_proto(mesh_to_proto("dp=2, tp=3")), {"dp": 2, "tp": 3})
        self.assertEqual(mesh_to_proto({"dp": 2, "tp": 3}), mesh_to_proto("dp=2,tp=3"))
        self.assertEqual(len(mesh_to_proto("").axes), 0)


class LayoutTest(unittest.TestCase):

    def rows(self, size: int, mesh: dict[str, int], *texts: str) -> list[list[int]]:
        """The indices of a tensor of one dim that each rank holds."""
        placements = [parse_placement(text) for text in texts]
        ranks = int(np.prod(list(mesh.values())))
        return [owned_indices((size,), mesh, placements, rank)[0].tolist() for rank in range(ranks)]

    def test_the_chunk_rule(self) -> None:  # worked out by hand
        self.assertEqual(self.rows(5, {"tp": 4}, "S(0)"), [[0, 1], [2, 3], [4], []])
        self.assertEqual(self.rows(2, {"tp": 3}, "P(sum)"), [[0, 1]] * 3)
        self.assertEqual(self.rows(8, {"tp": 2}, "SS(0,2)"), [[0, 1, 4, 5], [2, 3, 6, 7]])
        self.assertEqual(self.rows(8, {"tp": 2}, "IS(0,[1,3])"), [[0, 2, 3, 4], [1, 5, 6, 7]])
        self.assertEqual(self.rows(4, {"tp": 4}, "GS(0,2)"), [[0, 1], [0, 1], [2, 3], [2, 3]])
        self.assertEqual(self.rows(0, {"tp": 2}, "S(0)"), [[], []])
        self.assertEqual(self.rows(5, {"dp": 2, "tp": 2}, "S(0)", "S(0)"), [[0, 1], [2], [3], [4]])
        self.assertEqual(self.rows(3, {}), [[0, 1, 2]])


class FilesTest(unittest.TestCase):

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "a.safetensors"

    def test_safetensors_come_back(self) -> None:
        tensors = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "scalar": np.float64(2.5),
                   "none": np.zeros((0, 2), np.uint8), "flags": np.array([True, False]), "half": tensorplane.to_bfloat16([1.5, -2.0])}
        tensorplane.write_safetensors(self.path, tensors)
        read = tensorplane.read_safetensors(self.path)
        self.assertEqual(list(read), list(tensors))
        for name, array in tensors.items():
            self.assertEqual((read[name].dtype, read[name].shape), (array.dtype, array.shape))
            self.assertEqual(read[name].tobytes(), array.tobytes())
        self.assertEqual([path.name for path in self.folder.iterdir()], ["a.safetensors"])

    def test_the_files_bytes(self) -> None:
        tensorplane.write_safetensors(self.path, {"a": np.array([1, 2], ">i4")})
        data = self.path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        self.assertEqual(json.loads(data[8:8 + size]), {"a": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}})
        self.assertEqual((size % 8, data[8 + size:]), (0, b"\1\0\0\0\2\0\0\0"))

    def test_broken_safetensors(self) -> None:
        tensorplane.write_safetensors(self.path, {"a": np.arange(4.0)})
        whole = self.path.read_bytes()
        header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}'
        for data in (b"", whole[:5], whole[:20], whole[:-1], b"\xff" * 16, (2).to_bytes(8, "little") + b"[]",
                     len(header).to_bytes(8, "little") + header + b"\0" * 8):
            self.path.write_bytes(data)
            with self.subTest(data), self.assertRaises(tensorplane.DataLossError):
                tensorplane.read_safetensors(self.path)
        with self.assertRaises(tensorplane.NotFoundError):
            tensorplane.read_safetensors(self.folder / "other.safetensors")

    def test_arrays(self) -> None:
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        for name in ("w.npy", "w.safetensors"):
            tensorplane.write_array(self.folder / name, values.T)
            np.testing.assert_array_equal(tensorplane.read_array(self.folder / name), values.T)
        with self.assertRaises(tensorplane.UnimplementedError):
            tensorplane.write_array(self.folder / "h.npy", tensorplane.to_bfloat16(values))
        tensorplane.write_safetensors(self.path, {"a": values, "b": values})
        with self.assertRaisesRegex(tensorplane.NotFoundError, "it has a, b"):
            tensorplane.read_array(self.path)
        with self.assertRaises(tensorplane.InvalidArgumentError):
            tensorplane.read_array(self.folder / "a.bin")
        np.save(self.folder / "o.npy", np.array([{}]), allow_pickle=True)
        with self.assertRaises(tensorplane.InvalidArgumentError):
            tensorplane.read_array(self.folder / "o.npy")


class DtypesTest(unittest.TestCase):

    def test_bfloat16_rounds_to_nearest_even(self) -> None:
        values = np.array([1.0, -2.5, 0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0x7F800001, 0x7F7FFFFF], np.float64)
        bits = np.array([np.float32(v).view(np.uint32) if v < 4 else int(v) for v in values], np.uint32)
        half = tensorplane.to_bfloat16(bits.view(np.float32))
        self.assertEqual(list(map(hex, half.view(np.uint16))),
                         ["0x3f80", "0xc020", "0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7fc0", "0x7f80"])
        np.testing.assert_array_equal(tensorplane.to_float32(half)[:2], np.array([1.0, -2.5], np.float32))
        self.assertEqual(dtype_name(half.dtype), "BF16")
        with self.assertRaises(tensorplane.InvalidArgumentError):
            tensorplane.to_float32(values)

    def test_arrays_become_little_endian_rows(self) -> None:
        array = to_wire(np.arange(6, dtype=">i8").reshape(2, 3).T)
        self.assertEqual(array.tobytes(), np.array([0, 3, 1, 4, 2, 5], "<i8").tobytes())
        self.assertEqual(to_wire(np.float32(1)).shape, ())
        self.assertEqual(to_wire([[1.0, 2.0]]).dtype, np.float64)
        for values in (["text"], [1j], np.zeros(2, np.uint32), np.array([None])):
            with self.assertRaises(tensorplane.InvalidArgumentError):
                to_wire(values)


class InitializersTest(unittest.TestCase):

    def test_texts(self) -> None:
        self.assertEqual(parse_initializer("zeros").WhichOneof("kind"), "zeros")
        normal = parse_initializer("normal(2)").normal
        self.assertEqual((normal.mean, normal.std), (2, 1))
        uniform = parse_initializer(" uniform( -1 , 3 ) ").uniform
        self.assertEqual((uniform.low, uniform.high), (-1, 3))
        for text in ("", "zeros(1)", "constant", "normal(0,0)", "arange(0,0)", "uniform(1,2,3)", "normal(x)",
                     "constant(inf)"):
            with self.subTest(text), self.assertRaises(tensorplane.InvalidArgumentError):
                parse_initializer(text)


class ProgressTest(unittest.TestCase):

    def test_a_bar_on_terminals_only(self) -> None:
        stream = io.StringIO()
        tensorplane.ProgressBar("sending", stream)(1, 2)
        self.assertEqual(stream.getvalue(), "")
        stream.isatty = lambda: True  # type: ignore[method-assign]
        bar = tensorplane.ProgressBar("sending", stream, width=4)
        for done in (0, 50, 50, 100):
            bar(done, 100)
        self.assertEqual(stream.getvalue(), "\rsending [....]   0 %\rsending [##..]  50 %\rsending [####] 100 %\n")


if __name__ == "__main__":
    unittest.main()
