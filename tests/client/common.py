"""What the tests of the clients share: a cluster of two workers, and the clients built from copies of their sources."""
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

GO_PACKAGE = "github.com/tensorplane/tensorplane/client/go"
GO_CODE = Path("/usr/share/gocode")  # where Debian's Go packages are


@contextlib.contextmanager
def live_cluster(binaries: Path, folder: Path) -> Iterator[str]:
    """HOST:PORT of a coordinator with two workers, which end with the context."""
    tpctl = binaries / "tpctl"
    try:
        scale = ["--coordinator-flag=--time-scale=5", "--worker-flag=--time-scale=5"]  # for a busy machine
        subprocess.run([tpctl, "local", "up", "--workers", "2", "--dir", folder, *scale], check=True)
        yield (folder / "endpoint").read_text().strip()
    finally:
        subprocess.run([tpctl, "local", "down", "--dir", folder], check=False)


def install_python(source: Path, work: Path) -> Path:
    """pip installs a copy of the package, so that the build leaves nothing in the repository. Returns the folder."""
    ignore = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "v1")
    shutil.copytree(source / "client/python", work / "source/client/python", ignore=ignore)
    shutil.copytree(source / "proto", work / "source/proto")
    site = work / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--root-user-action=ignore", "--no-build-isolation", "--no-deps", "--no-index", "--target", site,
                    work / "source/client/python"], check=True)
    return site


def missing_go() -> str:
    """Debian's packages that are not there, in words; "" for none."""
    wanted = {"golang-go": shutil.which("go"), "golang-google-grpc-dev": (GO_CODE / "src/google.golang.org/grpc").exists(),
              "golang-github-golang-protobuf-1-5-dev": (GO_CODE / "src/google.golang.org/protobuf").exists()}
    return " ".join(package for package, found in wanted.items() if not found)


def go_workspace(source: Path, work: Path, cache: Path) -> tuple[Path, dict[str, str]]:
    """The folder of a copy of client/go where Go finds it without a module proxy, and the environment for that."""
    package = work / "go/src" / GO_PACKAGE
    shutil.copytree(source / "client/go", package)
    return package, os.environ | {"GO111MODULE": "off", "GOPATH": f"{work / 'go'}:{GO_CODE}", "GOFLAGS": "",
                                  "GOCACHE": str(cache), "GOTOOLCHAIN": "local"}
