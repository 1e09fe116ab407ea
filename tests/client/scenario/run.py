"""One scenario in three clients on one live cluster: Python, installed by pip; Go; C++, built with find_package(Tensorplane)
against an installation of the build folder. Each prints the same lines, with the values of the demo's references.

Usage: run.py --build BUILD_FOLDER --source REPOSITORY --compiler CXX. Exit 77: skipped.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import go_workspace, install_python, live_cluster, missing_go  # noqa: E402


def build_cpp(build: Path, source: Path, compiler: str, work: Path) -> Path:
    """Installs the package to a prefix of its own and builds the example there, from a copy without the repository."""
    prefix, example = work / "prefix", work / "example"
    subprocess.run(["cmake", "--install", build, "--component", "dev", "--prefix", prefix], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cp", "-r", source / "client/tp_client/example", example], check=True)
    subprocess.run(["cmake", "-S", example, "-B", example / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
                    f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=None"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", example / "build"], check=True)
    return example / "build"


def known_numbers(source: Path, lines: list[str]) -> list[str]:
    """What is not as numpy's references say, in words."""
    import numpy as np
    demo = source / "deploy/demo"
    case = json.loads((demo / "kjv/reference.json").read_text())["cases"][0]
    said = {line.split()[0]: line.split()[1:] for line in lines}
    wrong = []
    wanted = reference(demo / "mlp.reference.safetensors", "y_1").reshape(-1)
    got = np.array(said["forward"][2:], np.float64)
    if said["forward"][:2] != ["y", "1x8"] or not np.allclose(got, wanted, rtol=1e-5, atol=2e-6):
        wrong.append(f"forward: got {got}, wanted {wanted}")
    if [int(token) for token in said["generate"]] != case["greedy"][:24]:
        wrong.append(f"generate: got {said['generate']}, wanted {case['greedy'][:24]}")
    rows = {0: (0, 1, 3), 1: (2, 4)}  # SS(0,2) of 5 rows: chunks of 3 and 2, each cut in two
    for rank, line in enumerate(line for line in lines if line.startswith("local ")):
        kept = rows[rank - 2] if rank >= 2 else ((0, 1, 2), (3, 4))[rank]
        values = " ".join(f"{(3 * row + column) / 8:.6f}" for row in kept for column in range(3))
        if line != f"local {len(kept)}x3 {values}":
            wrong.append(f"block {rank}: {line}")
    for line in ("submit mlp READY tp=2 948", "watch mlp READY tp=2 948", "parameter fc1.weight 13x8 tp=S(0) 0:7x8@0x0 1:6x8@7x0",
                 "collective fc2 all_reduce tp 32", "redistribute tp=SS(0,2) permute/tp/12", "finish length",
                 "left 0 models 0 meshes 0 tensors", "get 5x3 " + " ".join(f"{i / 8:.6f}" for i in range(15))):
        if line not in lines:
            wrong.append(f"there is no line '{line}'")
    if not any(line.startswith("error NOT_FOUND: ") and "nobody" in line for line in lines):
        wrong.append("the error is not told")
    return wrong


def reference(path: Path, name: str):  # type: ignore[no-untyped-def]
    """A tensor of F32 of a safetensors file, read without the package under test."""
    import numpy as np
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:8 + size])[name]
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[8 + size + begin:8 + size + end], "<f4").reshape(entry["shape"])


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--build", "--source"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    missing = missing_go()
    for module, package in (("grpc", "python3-grpcio"), ("numpy", "python3-numpy")):
        if importlib.util.find_spec(module) is None:
            missing += f" {package}"
    if missing:
        print(f"SKIPPED: the scenario needs Debian's {missing}")
        return 77
    source, binaries = arguments.source, arguments.build / "bin"
    demo = source / "deploy/demo"
    with tempfile.TemporaryDirectory(prefix="tensorplane-scenario-") as name:
        work = Path(name)
        site = install_python(source, work)
        package, go = go_workspace(source, work, arguments.build / "go")
        subprocess.run(["go", "build", "-o", work / "go-scenario", "./scenario"], cwd=package, env=go, check=True)
        cpp = build_cpp(arguments.build, source, arguments.compiler, work)
        subprocess.run([binaries / "tpctl", "import", demo / "kjv", "--tp", "2", "--out", work / "kjv.pb"], check=True,
                       stdout=subprocess.DEVNULL)
        x = ",".join(repr(float(value)) for value in reference(demo / "mlp.reference.safetensors", "x_1").reshape(-1))
        prompt = json.loads((demo / "kjv/reference.json").read_text())["cases"][0]["prompt"]
        clients = {"python": [sys.executable, source / "client/python/examples/scenario.py"], "go": [work / "go-scenario"],
                   "c++": [cpp / "scenario"]}
        environment = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        printed = {}
        with live_cluster(binaries, work / "cluster") as server:
            for client, command in clients.items():
                done = subprocess.run([*command, server, demo / "mlp.textproto", work / "kjv.pb", x, prompt], check=True,
                                      env=environment, stdout=subprocess.PIPE, text=True)
                printed[client] = done.stdout.splitlines()
            subprocess.run([cpp / "example", server, demo / "mlp.textproto"], check=True)
        print("\n".join(printed["python"]))
        wrong = known_numbers(source, printed["python"])
        for client, lines in printed.items():
            if lines != printed["python"]:
                wrong += [f"{client} prints '{a}' where python prints '{b}'" for a, b in zip(lines, printed["python"]) if a != b]
                wrong.append(f"{client} prints {len(lines)} lines, python {len(printed['python'])}")
        print("\n".join(wrong) or f"{', '.join(printed)}: the same {len(printed['python'])} lines")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
