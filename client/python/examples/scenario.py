"""The whole of the API in one run: submit, watch, describe, forward, put, redistribute, get, generate, delete. Prints the
same lines as client/go/scenario and client/tp_client/example/scenario.cc; a test compares them.

Usage: scenario.py HOST:PORT MLP_SUBMISSION LM_SUBMISSION X PROMPT     (X: 8 numbers with commas between them)
"""
import sys

import numpy as np
import tensorplane


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def placements_text(placements: dict[str, str]) -> str:
    return ",".join(f"{axis}={placement}" for axis, placement in placements.items())


def mesh_text(mesh: dict[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in mesh.items())


def print_values(what: str, array: np.ndarray) -> None:
    print(what, shape_text(array.shape), *(f"{value:.6f}" for value in array.reshape(-1)))


def print_model(what: str, model: tensorplane.ModelSummary) -> None:
    print(what, model.name, model.state, mesh_text(model.mesh), model.parameter_bytes)


def models(client: tensorplane.Client, file: str, numbers: str) -> None:
    print_model("submit", client.submit(file, name="mlp", progress=tensorplane.ProgressBar()).model)
    for model in client.watch("mlp"):
        print_model("watch", model)
        break
    for parameter in client.describe("mlp").parameters:
        blocks = (f"{local.rank}:{shape_text(local.shape)}@{shape_text(local.offset)}" for local in parameter.local)
        print("parameter", parameter.name, shape_text(parameter.shape), placements_text(parameter.placements), *blocks)
    x = np.array(numbers.split(","), np.float32).reshape(1, 8)
    answer = client.forward("mlp", {"x": x})
    for name, output in answer.outputs.items():
        print_values(f"forward {name}", output)
    for count in answer.collectives:
        print("collective", count.module, count.op, count.axis, count.size_bytes)


def tensors(client: tensorplane.Client) -> None:
    mesh = client.create_mesh("m", "tp=2")
    print("mesh", mesh.name, mesh_text(mesh.mesh), mesh.state)
    values = np.arange(15, dtype=np.float32).reshape(5, 3) / 8
    put = client.put_tensor("w", values, mesh="m", placements="tp=S(0)")
    print("put", put.name, placements_text(put.placements))
    for local in client.get_local_blocks("w"):
        print_values("local", local)
    moved = client.redistribute_tensor("w", "tp=SS(0,2)")
    print("redistribute", placements_text(moved.tensor.placements),
          *(f"{step.op}/{step.axis}/{step.size_bytes}" for step in moved.counted))
    for local in client.get_local_blocks("w"):
        print_values("local", local)
    print_values("get", client.get_tensor("w"))


def generate(client: tensorplane.Client, file: str, prompt: str) -> None:
    client.submit(file, name="lm")
    chunks = list(client.generate("lm", prompt, max_new_tokens=24, ignore_eos=True))
    print("generate", *(token for chunk in chunks for token in chunk.token_ids))
    print("text", "".join(chunk.text for chunk in chunks))
    print("finish", chunks[-1].finish_reason)


def main() -> None:
    if len(sys.argv) != 6:
        sys.exit("usage: scenario.py HOST:PORT MLP_SUBMISSION LM_SUBMISSION X PROMPT")
    server, mlp, lm, numbers, prompt = sys.argv[1:]
    with tensorplane.Client(server, timeout=120) as client:
        models(client, mlp, numbers)
        tensors(client)
        generate(client, lm, prompt)
        try:
            client.describe("nobody")
        except tensorplane.NotFoundError as error:
            print(f"error {error.code}: {error.text}")
        client.delete_tensor("w")
        client.delete_mesh("m")
        for name in ("mlp", "lm"):
            client.delete(name)
        status = client.status()
        print("left", status.models, "models", status.meshes, "meshes", status.tensors, "tensors")


if __name__ == "__main__":
    main()
