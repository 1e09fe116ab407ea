"""Installs client/python into a folder of its own, starts a cluster, and runs the tests of this folder.

Usage: run.py --bin FOLDER_OF_TPCTL --source REPOSITORY [test names]. Exit 77: skipped.
"""
import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def install(source: Path, work: Path) -> Path:
    """pip installs a copy of the package, so that the build leaves nothing in the repository."""
    ignore = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "v1")
    shutil.copytree(source / "client/python", work / "source/client/python", ignore=ignore)
    shutil.copytree(source / "proto", work / "source/proto")
    site = work / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--root-user-action=ignore", "--no-build-isolation", "--no-deps", "--no-index", "--target", site,
                    work / "source/client/python"], check=True)
    return site


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("tests", nargs="*", help="as scenario_test or retry_test.RetryTest")
    arguments = parser.parse_args()
    for module, package in (("grpc", "python3-grpcio"), ("numpy", "python3-numpy")):
        if importlib.util.find_spec(module) is None:
            print(f"SKIPPED: the tests of the Python client need Debian's {package}")
            return 77
    with tempfile.TemporaryDirectory(prefix="tensorplane-python-") as name:
        work = Path(name)
        site = install(arguments.source, work)
        cluster = work / "cluster"
        tpctl = arguments.bin / "tpctl"
        environment = os.environ | {
            "PYTHONPATH": f"{site}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{arguments.bin}:{os.environ['PATH']}",
            "TP_SOURCE": str(arguments.source), "TP_CLUSTER": str(cluster)}
        try:
            scale = ["--coordinator-flag=--time-scale=5", "--worker-flag=--time-scale=5"]  # for a busy machine
            subprocess.run([tpctl, "local", "up", "--workers", "2", "--dir", cluster, *scale], check=True)
            environment["TPCTL_SERVER"] = (cluster / "endpoint").read_text().strip()
            tests = arguments.tests or sorted(path.stem for path in HERE.glob("*_test.py"))
            return subprocess.run([sys.executable, "-m", "unittest", "-v", *tests], env=environment, cwd=work).returncode
        finally:
            subprocess.run([tpctl, "local", "down", "--dir", cluster], check=False)


if __name__ == "__main__":
    sys.exit(main())
