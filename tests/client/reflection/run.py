"""A client that knows nothing but the address drives the coordinator: it lists the services, describes them, submits a
model in chunks, runs it, and reads states, all by the server's reflection.

Usage: run.py --bin FOLDER_OF_TPCTL --source REPOSITORY. Exit 77: skipped.
"""
import argparse
import base64
import importlib.util
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import live_cluster  # noqa: E402

COORDINATOR = "tp.v1.CoordinatorService"
DOUBLE = {
    "name": "double",
    "model": {
        "root": {"composite": {
            "type_name": "Double",
            "inputs": [{"name": "x"}],
            "nodes": [{"name": "y", "function": "add", "arguments": [{"value": "x"}, {"value": "x"}]}],
            "outputs": [{"name": "y", "value": "y"}]}},
        "inputs": [{"name": "x", "type": {"dtype": "F32", "shape": ["n"]}}]},
    "plan": {"mesh": {"axes": [{"name": "tp", "size": 2}]}}}


def chunk(data: bytes) -> dict[str, object]:
    return {"chunk": {"data": base64.b64encode(data).decode(), "crc32": zlib.crc32(data)}}


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--bin", "--source"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    if importlib.util.find_spec("grpc") is None:
        print("SKIPPED: needs Debian's python3-grpcio")
        return 77
    from generic_client import GenericClient
    with tempfile.TemporaryDirectory(prefix="tensorplane-reflection-") as name:
        work, tpctl = Path(name), arguments.bin / "tpctl"
        with live_cluster(arguments.bin, work / "cluster") as server:
            client = GenericClient(server)
            services = client.services()
            print(services)
            assert COORDINATOR in services and "grpc.health.v1.Health" in services, services
            methods = client.describe(COORDINATOR)
            assert methods["GetStatus"] == ("tp.v1.GetStatusRequest", "tp.v1.GetStatusResponse"), methods
            text = (arguments.source / "proto/tp/v1/coordinator.proto").read_text()
            told = sorted(line.split()[1].split("(")[0] for line in text.splitlines() if line.startswith("  rpc "))
            assert sorted(methods) == told, methods
            try:
                client.describe("tp.v1.Nothing")
                raise AssertionError("a service that does not exist is described")
            except KeyError:
                pass

            def ask(*command: object) -> dict[str, object]:
                out = ["--server", server, "--output-format", "json"]
                return json.loads(subprocess.run([tpctl, *map(str, command), *out], check=True, capture_output=True).stdout)

            status = client.call(f"{COORDINATOR}/GetStatus", {})
            print(json.dumps(status))
            assert status["workers_healthy"] == 2 and status["version"] == ask("status")["version"], status
            assert client.call(f"{COORDINATOR}/ListModels", {}) == {}
            submission = client.encode("tp.v1.Submission", DOUBLE)
            done = client.call(f"{COORDINATOR}/Submit", {"header": {"request_id": "1", "size_bytes": len(submission)}},
                               chunk(submission))
            assert done["model"]["state"] == "MODEL_STATE_READY", done
            listed = client.call(f"{COORDINATOR}/ListModels", {})["models"]
            assert [model["name"] for model in listed] == ["double"] and ask("models")["models"][0]["name"] == "double", listed
            header = {"model": "double", "inputs": [{"name": "x", "dtype": "F32", "shape": [3]}]}
            answer = client.call(f"{COORDINATOR}/Forward", {"header": header}, chunk(struct.pack("<3f", 1, -2, 0.5)))
            data = b"".join(base64.b64decode(message["chunk"]["data"]) for message in answer if "chunk" in message)
            print(json.dumps(answer[0]), struct.unpack("<3f", data))
            assert struct.unpack("<3f", data) == (2, -4, 1), answer
            client.call(f"{COORDINATOR}/DeleteModel", {"request_id": "2", "name": "double"})
            assert ask("models")["models"] == []
    print("the reflected API works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
