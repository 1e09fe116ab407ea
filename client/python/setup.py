"""Build step: messages and stub are generated from proto/tp/v1 into tensorplane/v1.

Generator: grpcio-tools where it can be imported (pip's isolated build has it), else protoc with grpc_python_plugin, as in
Debian's protobuf-compiler and protobuf-compiler-grpc (`pip install --no-build-isolation`).
"""
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
PROTOS = ("placement", "mesh", "tensor", "model", "plan", "submission", "dtensor", "coordinator")
HAS_GRPC_TOOLS = importlib.util.find_spec("grpc_tools") is not None


def proto_root() -> Path:
    """The folder of tp/v1: beside this file in a source distribution, else at the root of the repository."""
    for root in (HERE / "proto", HERE.parents[1] / "proto"):
        if (root / "tp/v1/coordinator.proto").exists():
            return root
    raise SystemExit("proto/tp/v1 was not found: build from the repository or from a source distribution")


def generator() -> list[str]:
    if HAS_GRPC_TOOLS:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    protoc, plugin = shutil.which("protoc"), shutil.which("grpc_python_plugin")
    if protoc is None or plugin is None:
        raise SystemExit("grpcio-tools, or protoc and grpc_python_plugin (Debian: protobuf-compiler-grpc), are needed")
    return [protoc, f"--plugin=protoc-gen-grpc_python={plugin}"]


def dependencies() -> list[str]:
    """Generated code runs with the versions of its generator and later ones."""
    grpc, protobuf = "1.51", "3.20.2"
    if HAS_GRPC_TOOLS:
        grpc, protobuf = importlib.metadata.version("grpcio-tools"), importlib.metadata.version("protobuf")
    return [f"grpcio>={grpc}", f"protobuf>={protobuf}", "numpy>=1.24"]


def generate(out: Path) -> None:
    """Writes out/tensorplane/v1; the module path tp.v1 of the generator's output becomes tensorplane.v1."""
    root, build = proto_root(), out / "tensorplane"
    target, raw = build / "v1", build / "tp"
    build.mkdir(parents=True, exist_ok=True)
    files = [f"tp/v1/{name}.proto" for name in PROTOS]
    subprocess.run([*generator(), f"-I{root}", f"--python_out={build}", f"--pyi_out={build}", *files], check=True)
    subprocess.run([*generator(), f"-I{root}", f"--grpc_python_out={build}", "tp/v1/coordinator.proto"], check=True)
    target.mkdir(exist_ok=True)
    (target / "__init__.py").write_text('"""Messages and stub of proto/tp/v1, generated."""\n')
    for path in (raw / "v1").iterdir():
        text = re.sub(r"^from tp\.v1 import", "from tensorplane.v1 import", path.read_text(), flags=re.MULTILINE)
        (target / path.name).write_text(re.sub(r"'tp\.v1\.(\w+_pb2)'", r"'tensorplane.v1.\1'", text))
    shutil.rmtree(raw)


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        generate(HERE if self.editable_mode else Path(self.build_lib))


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        for name in PROTOS:
            target = Path(base_dir) / "proto/tp/v1" / f"{name}.proto"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(proto_root() / "tp/v1" / target.name, target)


setup(install_requires=dependencies(), cmdclass={"build_py": BuildPy, "sdist": Sdist})
