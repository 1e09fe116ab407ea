"""Meshes and tensors on a live cluster."""
import math
import tempfile
import unittest
from pathlib import Path

import numpy as np
import tensorplane
from support import placements_text, tpctl, tpctl_error

VALUES = np.arange(15, dtype=np.float32).reshape(5, 3)


class TensorsTest(unittest.TestCase):

    def setUp(self) -> None:
        self.client = tensorplane.Client(timeout=120)
        self.addCleanup(self.client.close)
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(self.delete)
        self.client.create_mesh("m", "tp=2")

    def delete(self) -> None:
        for tensor in self.client.tensors():
            self.client.delete_tensor(tensor.name)
        for mesh in self.client.meshes():
            self.client.delete_mesh(mesh.name)

    def test_put_redistribute_get(self) -> None:
        put = self.client.put_tensor("w", VALUES, mesh="m", placements="tp=S(0)")
        self.assertEqual((put.state, put.shape, put.dtype), ("READY", (5, 3), "F32"))
        tpctl("tensor", "put", "v", self.saved("v", VALUES), "--mesh", "m", "--placements", "tp=S(0)")
        for placements in ("tp=S(1)", "tp=R", "tp=IS(1,[1,2])", "tp=SS(0,2)", "tp=S(-1)"):
            got = self.client.redistribute_tensor("w", placements)
            told = tpctl("tensor", "redistribute", "v", "--placements", placements)
            for steps, wanted in ((got.steps, told["steps"]), (got.counted, told["counted"]["steps"])):
                self.assertEqual([{"op": s.op, "axis": s.axis, "bytes": s.size_bytes} for s in steps], wanted)
            self.assertEqual(got.wire_bytes, told["counted"]["wire_bytes"])
            np.testing.assert_array_equal(self.client.get_tensor("w"), VALUES)
            shards = tpctl("tensor", "shards", "w", "--values")
            self.assertEqual(placements_text(got.tensor.placements), shards["placements"])
            for local, shard in zip(self.client.get_local_blocks("w"), shards["shards"], strict=True):
                self.assertEqual(local.tolist(), shard["values"])
        named = self.client.redistribute_tensor("w", {"tp": "R"}, result_name="w2")
        self.assertEqual(named.tensor.name, "w2")
        self.assertEqual([tensor.name for tensor in self.client.tensors()], ["v", "w", "w2"])

    def saved(self, name: str, values: object) -> Path:
        path = self.folder / f"{name}.npy"
        np.save(path, values)
        return path

    def test_local_blocks_follow_the_chunk_rule(self) -> None:
        self.client.put_tensor("w", VALUES, mesh="m", placements="tp=SS(0,2)")  # chunks of 3 and 2 rows, each cut in two
        first, second = self.client.get_local_blocks("w")
        np.testing.assert_array_equal(first, VALUES[[0, 1, 3]])
        np.testing.assert_array_equal(second, VALUES[[2, 4]])
        shards = self.client.describe_tensor("w").shards
        self.assertEqual([(s.rank, s.shape, s.size_bytes) for s in shards], [(0, (3, 3), 36), (1, (2, 3), 24)])

    def test_partial_blocks_are_reduced_on_the_way_out(self) -> None:
        self.client.put_tensor("p", tensorplane.Shards({0: VALUES, 1: 10 * VALUES}, "tp=P(sum)"), mesh="m")
        np.testing.assert_array_equal(self.client.get_tensor("p"), 11 * VALUES)
        np.testing.assert_array_equal(self.client.get_local_blocks("p")[1], 10 * VALUES)
        with self.assertRaisesRegex(tensorplane.InvalidArgumentError, "that of rank 0 F32"):
            mixed = tensorplane.Shards({0: VALUES, 1: VALUES.astype(np.float64)}, "tp=P(sum)")
            self.client.put_tensor("q", mixed, mesh="m")

    def test_every_dtype_and_odd_shapes(self) -> None:
        for dtype in (np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_, tensorplane.bfloat16):
            for shape in ((), (0, 3), (7,), (1, 2, 3)):
                values = np.arange(math.prod(shape)).reshape(shape)
                array = tensorplane.to_bfloat16(values) if dtype is tensorplane.bfloat16 else values.astype(dtype)
                self.client.put_tensor("d", array, mesh="m", placements="tp=S(0)" if shape else "")
                got = self.client.get_tensor("d")
                self.assertEqual((got.dtype, got.shape), (array.dtype, shape))
                self.assertEqual(got.tobytes(), array.tobytes())
                self.client.delete_tensor("d")
        for array in (VALUES.T, VALUES[::2], VALUES.astype(">f4")):
            self.client.put_tensor("d", array, mesh="m")
            np.testing.assert_array_equal(self.client.get_tensor("d"), array)
            self.client.delete_tensor("d")
        with self.assertRaisesRegex(tensorplane.InvalidArgumentError, "bfloat16"):
            self.client.put_tensor("d", np.zeros(3, np.uint16), mesh="m")

    def test_more_than_one_chunk(self) -> None:
        values = np.random.default_rng(1).standard_normal((700, 1000)).astype(np.float32)  # 2.7 MiB
        seen: list[tuple[int, int]] = []
        self.client.put_tensor("big", values, mesh="m", placements="tp=S(1)", progress=lambda *sizes: seen.append(sizes))
        self.assertEqual(seen, [(min(values.nbytes, i << 20), values.nbytes) for i in range(4)])
        np.testing.assert_array_equal(self.client.get_tensor("big"), values)
        np.testing.assert_array_equal(self.client.get_local_blocks("big")[1], values[:, 500:])

    def test_a_progress_that_raises_gives_the_put_up(self) -> None:
        def fail(done: int, total: int) -> None:
            raise KeyError(done)

        with self.assertRaises(KeyError):
            self.client.put_tensor("w", VALUES, mesh="m", progress=fail)
        while self.client.tensors():  # the server learns of it later; bounded by the test's time limit
            pass
        self.client.put_tensor("w", VALUES, mesh="m")

    def test_files_and_folders(self) -> None:
        tensorplane.write_safetensors(self.folder / "two.safetensors", {"a": VALUES, "b": VALUES.astype(np.int64)})
        self.client.put_tensor("b", self.folder / "two.safetensors", mesh="m", placements="tp=S(1)", src_data_rank=None)
        self.client.put_tensor("c", self.saved("c", VALUES), mesh="m", src_data_rank=1)
        np.testing.assert_array_equal(self.client.get_tensor("b"), VALUES.astype(np.int64))
        saved = self.client.save_tensors(self.folder / "saved", ["b", "c"])
        self.assertEqual(saved.size_bytes, 15 * 8 + 15 * 4)
        self.client.delete_tensor("b")
        loaded = self.client.load_tensors(self.folder / "saved", mesh="m", placements="tp=S(0)", names=["b"])
        self.assertEqual([(tensor.name, tensor.placements) for tensor in loaded.tensors], [("b", {"tp": "S(0)"})])
        np.testing.assert_array_equal(self.client.get_tensor("b"), VALUES.astype(np.int64))

    def test_created_tensors_are_tpctls(self) -> None:
        self.client.create_tensor("w", mesh="m", shape=(5, 6), initializer="normal(0,1)", placements="tp=S(0)", seed=1)
        here = self.client.get_tensor("w")
        self.client.delete_tensor("w")
        tpctl("tensor", "create", "w", "--mesh", "m", "--shape", "5x6", "--init", "normal(0,1)", "--seed", 1)
        np.testing.assert_array_equal(self.client.get_tensor("w"), here)
        self.client.create_tensor("a", mesh="m", shape=[4], initializer="arange(1,2)", dtype="I32")
        np.testing.assert_array_equal(self.client.get_tensor("a"), np.array([1, 3, 5, 7], np.int32))

    def test_errors_are_tpctls(self) -> None:
        for call, arguments in (
            (lambda: self.client.get_tensor("nothing"), ("tensor", "get", "nothing")),
            (lambda: self.client.put_tensor("w", VALUES, mesh="nowhere"),
             ("tensor", "put", "w", self.saved("w", VALUES), "--mesh", "nowhere")),
            (lambda: self.client.put_tensor("w", VALUES, mesh="m", placements="tp=S(2)"),
             ("tensor", "put", "w", self.saved("w", VALUES), "--mesh", "m", "--placements", "tp=S(2)")),
            (lambda: self.client.create_mesh("big", "tp=3"), ("mesh", "create", "big", "tp=3")),
        ):
            with self.assertRaises(tensorplane.TensorplaneError) as error:
                call()
            self.assertEqual(str(error.exception), tpctl_error(*arguments))


if __name__ == "__main__":
    unittest.main()
