"""One scenario on a live cluster: submit, watch, describe, forward, put, redistribute, get, generate, delete. Values are
those of numpy, of the demo's references and of tpctl."""
import asyncio
import dataclasses
import json
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import tensorplane
from support import DEMO, placements_text, tpctl, tpctl_error


def as_json(value: Any) -> Any:
    """With lists for tuples."""
    return json.loads(json.dumps(dataclasses.asdict(value)))


class ModelsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        self.client = tensorplane.Client(timeout=120)
        self.addCleanup(self.client.close)
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.sent: list[tuple[int, int]] = []
        self.addCleanup(self.delete)
        result = self.client.submit(DEMO / "mlp.textproto", progress=lambda *sizes: self.sent.append(sizes))
        self.submitted = result.model

    def delete(self) -> None:
        for model in self.client.models():
            self.client.delete(model.name)

    def test_submit_is_ready_and_listed_as_tpctl_lists_it(self) -> None:
        self.assertEqual(self.submitted.state, "READY")
        self.assertEqual([as_json(self.submitted)], tpctl("models")["models"])
        size = self.sent[-1][0]
        self.assertEqual(self.sent, [(0, size), (size, size)])
        self.assertGreater(size, 100)

    def test_forms_of_a_submission_and_options(self) -> None:
        message = tensorplane.read_submission(DEMO / "mlp.textproto")
        self.assertEqual(message.weights_file, str(DEMO / "mlp.safetensors"))
        dry = self.client.submit(message, name="other", mesh={"tp": 1}, dry_run=True)
        self.assertEqual(dry.model.mesh, {"tp": 1})
        self.assertEqual([model.name for model in self.client.models()], ["mlp"])
        (self.folder / "plan.pb").write_bytes(message.SerializeToString())
        self.assertEqual(self.client.submit(self.folder / "plan.pb", name="pb").model.fingerprint,
                         self.submitted.fingerprint)
        replaced = self.client.submit(message.SerializeToString(), mesh="tp=1", replace=True)
        self.assertEqual(replaced.model.mesh, {"tp": 1})
        assert replaced.taken_over is not None
        self.assertEqual((replaced.taken_over.states, replaced.taken_over.bytes_read), (4, 0))

    def test_a_submit_step_by_step(self) -> None:
        path = DEMO / "mlp_sharding.textproto"
        self.assertEqual(self.client.create_model(path).state, "CREATED")
        self.assertEqual(self.client.parallelize("mlp_sharding", plan_of=path, mesh="tp=2").model.state, "PARALLELIZED")
        self.assertEqual(self.client.init_states("mlp_sharding").state, "READY")

    def test_watch_ends_with_the_model(self) -> None:
        states = []
        first = threading.Event()

        def watch() -> None:
            for model in self.client.watch("mlp"):
                states.append(model.state)
                first.set()

        thread = threading.Thread(target=watch)
        thread.start()
        self.assertTrue(first.wait(60))
        self.client.delete("mlp")
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertEqual(states[0], "READY")
        self.assertEqual(self.client.models(), [])

    def test_describe_is_that_of_tpctl(self) -> None:
        told, wanted = self.client.describe("mlp"), tpctl("describe", "mlp")
        self.assertEqual(told.parameters[0].local[1], tensorplane.LocalBlock(1, (6, 8), (7, 0)))  # 13 rows on 2 ranks
        parameters = [as_json(p) | {"placements": placements_text(p.placements)} for p in told.parameters]
        lists = {name: list(map(as_json, getattr(told, name))) for name in ("inputs", "modules", "workers")}
        got = as_json(told.model) | lists | {"parameters": parameters, "generates": told.generates}
        self.assertEqual(got, wanted)
        self.assertEqual(self.client.describe("mlp", include_submission=True).submission[:5], b"\n\x03mlp")

    def test_forward_is_numpys_and_tpctls(self) -> None:
        reference = tensorplane.read_safetensors(DEMO / "mlp.reference.safetensors")
        for index in range(3):  # batches of 5, 1 and 0
            x, y = reference[f"x_{index}"], reference[f"y_{index}"]
            result = self.client.forward("mlp", {"x": x})
            self.assertEqual(result["y"].dtype, np.float32)
            self.assertEqual(result["y"].shape, y.shape)
            np.testing.assert_allclose(result["y"], y, rtol=1e-5, atol=1e-6)
            tensorplane.write_array(self.folder / "x.npy", x)
            told = tpctl("forward", "mlp", "--input", f"x={self.folder}/x.npy", "--output", self.folder / "y.npy")
            np.testing.assert_array_equal(result["y"], np.load(self.folder / "y.npy"))
            np.testing.assert_array_equal(self.client.forward("mlp", {"x": self.folder / "x.npy"})["y"], result["y"])
            counted = [[c.module, c.op, c.axis, c.size_bytes] for c in result.collectives]
            self.assertEqual(counted, [list(record.values()) for record in told["collectives"]])
            self.assertEqual(counted[0], ["fc2", "all_reduce", "tp", 4 * y.size])

    def test_forward_of_shards_and_refs(self) -> None:
        x = tensorplane.read_safetensors(DEMO / "mlp.reference.safetensors")["x_0"]
        wanted = self.client.forward("mlp", {"x": x})["y"]
        blocks = {0: x[:3], 1: x[3:]}
        for shards in (tensorplane.Shards(blocks, "tp=S(0)", (5, 8)),
                       tensorplane.Shards({0: x * 2, 1: -x}, {"tp": "P(sum)"})):
            result = self.client.forward("mlp", {"x": shards}, output_shards=True)
            output = result.output_shards["y"]
            self.assertEqual([(shard.rank, shard.offset) for shard in output.shards], [(0, (0, 0)), (1, (0, 0))])
            self.assertEqual(output.placements, {"tp": "R"})
            for shard in output.shards:
                np.testing.assert_allclose(shard.values, wanted, rtol=1e-6)
        self.client.create_mesh("t", "tp=2", workers=["worker-0", "worker-1"])
        self.addCleanup(self.client.delete_mesh, "t")
        self.client.put_tensor("hidden", x, mesh="t", placements="tp=S(1)")
        self.addCleanup(self.client.delete_tensor, "hidden")
        np.testing.assert_array_equal(self.client.forward("mlp", {"x": tensorplane.Ref("hidden")})["y"], wanted)

    def test_module_outputs(self) -> None:
        x = np.ones((2, 8), np.float32)
        result = self.client.forward("mlp", {"x": x}, module_outputs=True)
        weights = tensorplane.read_safetensors(DEMO / "mlp.safetensors")
        np.testing.assert_allclose(result["fc1:output"], x @ weights["fc1.weight"].T + weights["fc1.bias"], rtol=1e-5)

    def test_errors_are_exceptions_with_tpctls_texts(self) -> None:
        with self.assertRaises(tensorplane.NotFoundError) as missing:
            self.client.forward("nobody", {"x": np.ones((1, 8), np.float32)})
        self.assertEqual(str(missing.exception), tpctl_error("forward", "nobody", "--input", "x=1,2,3,4,5,6,7,8"))
        with self.assertRaises(tensorplane.InvalidArgumentError) as wrong:
            self.client.forward("mlp", {"x": np.ones((1, 3), np.float32)})
        self.assertEqual(str(wrong.exception), tpctl_error("forward", "mlp", "--input", "x=1,2,3"))
        self.assertEqual(wrong.exception.code, "INVALID_ARGUMENT")
        with self.assertRaises(tensorplane.AlreadyExistsError):
            self.client.submit(DEMO / "mlp.textproto")
        with self.assertRaises(tensorplane.NotFoundError):
            next(self.client.watch("nobody"))
        with self.assertRaises(tensorplane.NotFoundError):
            self.client.submit("/nowhere/plan.pb")
        with self.assertRaisesRegex(tensorplane.InvalidArgumentError, "plan.txt"):
            self.client.submit(self.folder / "plan.txt")

    def test_workers_and_status_are_those_of_tpctl(self) -> None:
        told = [as_json(worker) for worker in self.client.workers()]
        wanted = tpctl("workers")["workers"]
        for worker in told + wanted:
            del worker["used_bytes"]  # changes while a worker runs
        for worker in wanted:
            for kind in ("models", "meshes"):
                worker[kind] = {entry["name"]: entry["rank"] for entry in worker[kind]}
        self.assertEqual(told, wanted)
        self.assertEqual([worker["models"] for worker in wanted], [{"mlp": 0}, {"mlp": 1}])
        status = self.client.status()
        self.assertEqual((status.workers_healthy, status.models_ready, status.version),
                         (2, 1, tpctl("status")["version"]))


class GenerateTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls) -> None:
        cls.client = cls.enterClassContext(tensorplane.Client(timeout=120))
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        subprocess.run(["tpctl", "import", DEMO / "kjv", "--tp", "2", "--out", folder / "plan.pb"], check=True)
        cls.client.submit(folder / "plan.pb", name="kjv")
        cls.addClassCleanup(cls.client.delete, "kjv")

    def generated(self, *arguments: object, **options: object) -> dict[str, object]:
        """As `tpctl generate` prints it."""
        chunks = list(self.client.generate(*arguments, **options))  # type: ignore[arg-type]
        return {"text": "".join(chunk.text for chunk in chunks),
                "token_ids": [token for chunk in chunks for token in chunk.token_ids],
                "finish_reason": chunks[-1].finish_reason}

    def test_greedy_text_is_the_references(self) -> None:
        case = json.loads((DEMO / "kjv/reference.json").read_text())["cases"][0]
        wanted = {"text": bytes(case["greedy"]).decode(), "token_ids": case["greedy"], "finish_reason": "length"}
        options = {"max_new_tokens": 64, "ignore_eos": True}
        self.assertEqual(self.generated("kjv", case["prompt"], **options), wanted)
        self.assertEqual(self.generated("kjv", case["ids"], **options), wanted)

    def test_sampled_text_is_tpctls(self) -> None:
        got = self.generated("kjv", "In the", max_new_tokens=24, temperature=0.9, top_k=40, top_p=0.95, seed=7)
        told = tpctl("generate", "kjv", "--prompt", "In the", "--max-new-tokens", 24, "--temperature", 0.9, "--top-k", 40,
                     "--top-p", 0.95, "--seed", 7)
        self.assertEqual(got, told)
        self.assertNotEqual(got, self.generated("kjv", "In the", max_new_tokens=24, temperature=0.9, seed=8))

    def test_leaving_the_loop_stops_it(self) -> None:
        stream = self.client.generate("kjv", "And", max_new_tokens=200, ignore_eos=True)
        self.assertTrue(next(stream).token_ids)
        stream.close()
        while self.client.status().requests:  # bounded by the test's time limit
            pass

    def test_errors(self) -> None:
        with self.assertRaises(tensorplane.InvalidArgumentError) as error:
            next(self.client.generate("kjv", [1, 100000]))
        self.assertEqual(str(error.exception), tpctl_error("generate", "kjv", "--prompt-ids", "1,100000"))


class AsyncTest(unittest.IsolatedAsyncioTestCase):

    async def test_the_scenario(self) -> None:
        values = np.arange(15, dtype=np.float32).reshape(5, 3)
        async with tensorplane.AsyncClient(timeout=120) as client:
            submitted = await client.submit(DEMO / "mlp.textproto")
            self.assertEqual(submitted.model.state, "READY")
            async for model in client.watch("mlp"):
                self.assertEqual(model, submitted.model)
                break
            self.assertEqual((await client.describe("mlp")).model, submitted.model)
            reference = tensorplane.read_safetensors(DEMO / "mlp.reference.safetensors")
            results = await asyncio.gather(*(client.forward("mlp", {"x": reference[f"x_{i}"]}) for i in range(3)))
            for index, result in enumerate(results):
                np.testing.assert_allclose(result["y"], reference[f"y_{index}"], rtol=1e-5, atol=1e-6)
            await client.create_mesh("m", "tp=2")
            await client.put_tensor("w", values, mesh="m", placements="tp=S(0)")
            moved = await client.redistribute_tensor("w", "tp=S(1)")
            self.assertEqual(moved.tensor.placements, {"tp": "S(1)"})
            np.testing.assert_array_equal(await client.get_tensor("w"), values)
            await client.submit(DEMO / "tiny_lm.textproto")
            chunks = [chunk async for chunk in client.generate("tiny_lm", "abc", max_new_tokens=6, ignore_eos=True)]
            told = tpctl("generate", "tiny_lm", "--prompt", "abc", "--max-new-tokens", 6, "--ignore-eos")
            self.assertEqual([token for chunk in chunks for token in chunk.token_ids], told["token_ids"])
            with self.assertRaises(tensorplane.NotFoundError):
                await client.forward("nobody", {})
            await client.delete_tensor("w")
            await client.delete_mesh("m")
            await asyncio.gather(client.delete("mlp"), client.delete("tiny_lm"))
            self.assertEqual(await client.models(), [])


if __name__ == "__main__":
    unittest.main()
