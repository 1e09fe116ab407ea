"""What the tests share: the repository, the cluster that run.py started, tpctl."""
import json
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(os.environ["TP_SOURCE"])
DEMO = SOURCE / "deploy/demo"

logging.getLogger("asyncio").setLevel(logging.ERROR)  # not each task that a busy machine holds up


def tpctl(*arguments: object) -> Any:
    """The JSON that a command prints."""
    done = subprocess.run(["tpctl", *map(str, arguments), "--output-format", "json"], check=True, capture_output=True)
    return json.loads(done.stdout)


def tpctl_error(*arguments: object) -> str:
    """What a command that fails says."""
    done = subprocess.run(["tpctl", *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done
    return done.stderr.strip().removeprefix("tpctl: ")


def placements_text(placements: dict[str, str]) -> str:
    return ",".join(f"{axis}={placement}" for axis, placement in placements.items())
