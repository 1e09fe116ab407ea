#!/usr/bin/env python3
"""A tensor larger than any buffer goes in, S(0) -> S(1), and out again on 2 workers, and must come back bit equal; while
it does, the memory of the coordinator and of each worker is sampled against its limits:

  coordinator   grows by less than 64 MiB
  worker        grows by less than 2.1 x its shard + 256 MiB meanwhile,
                and by less than 1.05 x its shard + 64 MiB after the source is deleted

Usage: large_tensor.py [--bytes 3221225472] [--bin build/release/bin] [--dir FOLDER]
FOLDER (default: a temporary one) needs room for twice the bytes. Prints the numbers; exit 1 where one passes its limit.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
COLUMNS = 16384  # F32: rows of 64 KiB


def memory(pid):
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name == "VmRSS":
                return int(value.split()[0]) * 1024
    return 0


class Sampler:
    """The largest VmRSS of some processes since the last reset."""

    def __init__(self, pids):
        self.peak = {name: 0 for name in pids}
        self._pids, self._stop = pids, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.02):
            for name, pid in self._pids.items():
                self.peak[name] = max(self.peak[name], memory(pid))

    def stop(self):
        self._stop.set()
        self._thread.join()


def write_npy(path, rows):
    """Random F32 bits as .npy, and the SHA-256 of the file."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {COLUMNS}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    digest = hashlib.sha256()
    with open(path, "wb") as out:
        piece = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        out.write(piece)
        digest.update(piece)
        left = rows * COLUMNS * 4
        while left > 0:
            piece = os.urandom(min(left, 16 * MIB))
            out.write(piece)
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(16 * MIB):
            digest.update(piece)
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=3 << 30)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--dir")
    arguments = parser.parse_args()
    rows = max(1, arguments.bytes // (COLUMNS * 4))
    size = rows * COLUMNS * 4
    shard = (rows + 1) // 2 * COLUMNS * 4
    folder = tempfile.mkdtemp(prefix="tp-large-", dir=arguments.dir)
    tpctl = os.path.join(arguments.bin, "tpctl")
    state = os.path.join(folder, "state")
    os.mkdir(state)

    def run(*words):
        begin = time.monotonic()
        result = subprocess.run([tpctl, *words], stdout=subprocess.PIPE, check=False)
        if result.returncode != 0:
            sys.exit(f"tpctl {' '.join(words)} exited with {result.returncode}")
        return result.stdout, time.monotonic() - begin

    failed = False
    try:
        print(f"{size} bytes, F32[{rows}, {COLUMNS}]; writing the file")
        source, back = os.path.join(folder, "in.npy"), os.path.join(folder, "out.npy")
        expected = write_npy(source, rows)
        run("local", "up", "--workers", "2", "--dir", state)
        with open(os.path.join(state, "endpoint"), encoding="ascii") as endpoint:
            os.environ["TPCTL_SERVER"] = endpoint.read().strip()
        with open(os.path.join(state, "processes"), encoding="ascii") as processes:
            pids = {line.split()[2]: int(line.split()[0]) for line in processes}
        workers = [name for name in pids if name != "coordinator"]
        run("mesh", "create", "m", "tp=2")
        before = {name: memory(pid) for name, pid in pids.items()}
        sampler = Sampler(pids)
        try:
            seconds = {}
            _, seconds["put"] = run("tensor", "put", "w", source, "--mesh", "m", "--placements", "tp=S(0)")
            text, seconds["redistribute"] = run("tensor", "redistribute", "w", "--placements", "tp=S(1)", "--as", "v")
            print(text.decode(), end="")
            _, seconds["delete"] = run("tensor", "delete", "w")
            _, seconds["get"] = run("tensor", "get", "v", "--output", back)
            after = {name: memory(pid) for name, pid in pids.items()}
        finally:
            sampler.stop()
        for name, value in seconds.items():
            print(f"{name:14} {value:7.2f} s  {size / value / 1e6:8.0f} MB/s")

        def check(what, value, limit):
            nonlocal failed
            good = value < limit
            failed = failed or not good
            print(f"{what:42} {value / MIB:9.1f} MiB, limit {limit / MIB:9.1f} MiB  {'ok' if good else 'OVER'}")

        check("coordinator, largest growth", sampler.peak["coordinator"] - before["coordinator"], 64 * MIB)
        for name in workers:
            check(f"{name}, largest growth", sampler.peak[name] - before[name], 2.1 * shard + 256 * MIB)
            check(f"{name}, growth after the delete", after[name] - before[name], 1.05 * shard + 64 * MIB)
        equal = sha256(back) == expected
        failed = failed or not equal
        print("what came back is", "bit equal" if equal else "DIFFERENT")
    finally:
        subprocess.run([tpctl, "local", "down", "--dir", state], stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
