"""Checks client/go with Debian's Go packages: its generated files are those of proto/tp/v1, gofmt and vet have nothing to
say, and its tests and its example run, on a live cluster too.

Usage: run.py --bin FOLDER_OF_TPCTL --source REPOSITORY --cache FOLDER. Exit 77: skipped.
"""
import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import go_workspace, live_cluster, missing_go  # noqa: E402


def generated_is_current(source: Path, work: Path) -> bool:
    out = work / "generated"
    out.mkdir()
    subprocess.run([source / "client/go/generate.sh", out], check=True)
    here = source / "client/go/tpv1"
    names = {path.name for folder in (here, out / "tpv1") for path in folder.glob("*.go")}
    _, other, missing = filecmp.cmpfiles(here, out / "tpv1", names, shallow=False)
    if other or missing:
        print(f"client/go/tpv1 is not that of proto/tp/v1 ({', '.join(other + missing)}): run client/go/generate.sh")
    return not other and not missing


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--bin", "--source", "--cache"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    if missing := missing_go():
        print(f"SKIPPED: the tests of the Go client need Debian's {missing}")
        return 77
    with tempfile.TemporaryDirectory(prefix="tensorplane-go-") as name:
        work = Path(name)
        if shutil.which("protoc-gen-go") and shutil.which("protoc-gen-go-grpc"):
            if not generated_is_current(arguments.source, work):
                return 1
        else:
            print("not checked: whether client/go/tpv1 is current (Debian's protoc-gen-go and protoc-gen-go-grpc)")
        package, environment = go_workspace(arguments.source, work, arguments.cache)
        unformatted = subprocess.run(["gofmt", "-l", "."], cwd=package, check=True, capture_output=True, text=True).stdout
        if unformatted:
            print(f"gofmt would change {unformatted}")
            return 1
        demo = arguments.source / "deploy/demo"
        with live_cluster(arguments.bin, work / "cluster") as server:
            environment |= {"TENSORPLANE_TEST_SERVER": server, "TENSORPLANE_TEST_DEMO": str(demo)}
            subprocess.run(["go", "vet", "./..."], cwd=package, env=environment, check=True)
            subprocess.run(["go", "test", "-count=1", "."], cwd=package, env=environment, check=True)
            example = ["go", "run", "./example", server, demo / "mlp.textproto"]
            subprocess.run(example, cwd=package, env=environment, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
