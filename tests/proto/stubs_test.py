"""Tests that what clients generate is in step with the API: the Go code that is checked in, and the lists of files."""
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "proto"))
import compatible  # noqa: E402
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: E402

PROTOC = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "protoc"
API = {Path(file.name).stem: file for file in compatible.compiled(ROOT / "proto", PROTOC).file}


def closure(stem: str) -> set[str]:
    """The file and all that it imports."""
    return {stem}.union(*(closure(Path(name).stem) for name in API[stem].dependency))


NEEDED = closure("coordinator") | closure("submission")  # what clients speak, and what the bytes of a submit are


class Stubs(unittest.TestCase):
    def test_lists_of_files(self):
        lists = {"client/python/setup.py": r"PROTOS = \(([^)]*)\)", "client/go/generate.sh": r'names="([^"]*)"',
                 "proto/README.md": r"proto/tp/v1/\{([^}]*)\}"}
        for path, pattern in lists.items():
            with self.subTest(path):
                listed = re.search(pattern, (ROOT / path).read_text())[1]
                self.assertEqual(set(re.findall(r"\w+", listed)), NEEDED)

    def test_go_messages(self):
        """The descriptor within each generated file is that of the .proto file."""
        folder = ROOT / "client/go/tpv1"
        files = {path.name.removesuffix(".pb.go"): path.read_text() for path in folder.glob("*.pb.go")}
        self.assertEqual({name for name in files if not name.endswith("_grpc")}, NEEDED)
        for name in NEEDED:
            with self.subTest(name):
                raw = re.search(r"_rawDesc = \[\]byte\{(.*?)\n\}", files[name], re.S)[1]
                held = FileDescriptorProto.FromString(bytes(int(byte, 16) for byte in re.findall(r"0x(\w\w)", raw)))
                self.assertTrue(held == API[name], f"client/go/tpv1/{name}.pb.go is old: run client/go/generate.sh")

    def test_go_rpcs(self):
        text = (ROOT / "client/go/tpv1/coordinator_grpc.pb.go").read_text()
        [service] = API["coordinator"].service
        full = {f"/tp.v1.{service.name}/{rpc.name}" for rpc in service.method}
        self.assertEqual(set(re.findall(r'"(/tp\.v1\.[^"]*)"', text)), full)
        streams = dict(re.findall(r'StreamName:\s+"(\w+)",(.*?)\},\n', text, re.S))
        held = {name: ("ClientStreams: true" in body, "ServerStreams: true" in body) for name, body in streams.items()}
        self.assertEqual(held, {rpc.name: (rpc.client_streaming, rpc.server_streaming) for rpc in service.method
                                if rpc.client_streaming or rpc.server_streaming})


if __name__ == "__main__":
    unittest.main()
