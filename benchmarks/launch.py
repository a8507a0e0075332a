"""From the launch of a point with two workers to its first training step.

Two schemes by turns in a fresh process each: its first point, and its later ones.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.config import ROOT, point_of
from benchmarks.row import row
from paceline.run.run_point import PROCESS

TURNS = 5
SCHEMES = ("sync_allreduce", "async_parameter_server")


def rows() -> list[dict[str, Any]]:
    found = []
    for scheme in SCHEMES:
        turns = [_sweep_of_two(scheme) for _ in range(TURNS)]
        for which, limit in (("first", 10), ("later", 3)):
            seconds = median(turn[which] for turn in turns)
            name = f"launch to first step, {scheme}, {which} point"
            target, holds = f"<= {limit} s", seconds <= limit
            found.append(row(name, seconds, limit, "s", seconds / limit, target, holds))
    return found


def _sweep_of_two(scheme: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.launch", scheme]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(scheme: str) -> dict[str, float]:
    """Seconds until both have taken a step, for the first and for a later point of this process."""
    from paceline.cluster.processes import preload
    from tests.launching import launch

    begun = time.time()  # the first point pays for imports
    preload()
    settings = ("data=fashion_mnist_subset", "workers=2", "batch_size=32")
    point = point_of(f"scheme={scheme}", *settings, f"training.samples={20 * 2 * 32}")
    num_workers, num_servers = point.num_processes
    found = {}
    for which in ("first", "later"):
        with tempfile.TemporaryDirectory() as folder:
            seen = launch(
                PROCESS,
                (point, Path(folder)),
                workers=num_workers,
                servers=num_servers,
                log_folder=Path(folder) / "log",
            )
        ends = (each.training_started + float(each.real_step_ends[0]) for each in seen[:2])
        found[which] = max(ends) - begun
        begun = time.time()
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
