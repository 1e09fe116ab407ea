"""Installs client/python into a folder of its own, starts a cluster, and runs the tests of this folder.

Usage: run.py --bin FOLDER_OF_TPCTL --source REPOSITORY [test names]. Exit 77: skipped.
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from common import install_python, live_cluster  # noqa: E402


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
        site = install_python(arguments.source, work)
        cluster = work / "cluster"
        environment = os.environ | {
            "PYTHONPATH": f"{site}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{arguments.bin}:{os.environ['PATH']}",
            "TP_SOURCE": str(arguments.source), "TP_CLUSTER": str(cluster), "GRPC_VERBOSITY": "NONE"}
        with live_cluster(arguments.bin, cluster) as server:
            environment["TPCTL_SERVER"] = server
            tests = arguments.tests or sorted(path.stem for path in HERE.glob("*_test.py"))
            return subprocess.run([sys.executable, "-m", "unittest", "-v", *tests], env=environment, cwd=work).returncode


if __name__ == "__main__":
    sys.exit(main())
