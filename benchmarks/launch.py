"""From the launch of a point with two workers to its first training step, and where the time goes.

Two schemes by turns in a fresh process each: its first point, and its later ones.
"""

import itertools
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
from paceline.record.observed import TrainingReport
from paceline.run.run_point import PROCESS

TURNS = 5
SCHEMES = ("sync_allreduce", "async_parameter_server")
PARTS = ("processes start", "they meet, data and model", "Trainer set up", "first step")


def rows() -> list[dict[str, Any]]:
    found = []
    for scheme in SCHEMES:
        turns = [_sweep_of_two(scheme) for _ in range(TURNS)]
        for which, limit in (("first", 10), ("later", 3)):
            parts = {part: median(turn[which][part] for turn in turns) for part in PARTS}
            total = median(sum(turn[which].values()) for turn in turns)
            name = f"launch to first step, {scheme}, {which} point"
            found.append(
                row(name, total, limit, "s", total / limit, f"<= {limit} s", total <= limit)
            )
            found += [
                row(
                    f"  of which: {part}",
                    parts[part],
                    total,
                    "s",
                    parts[part] / total,
                    "shown",
                    True,
                )
                for part in PARTS
            ]
    return found


def _sweep_of_two(scheme: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.launch", scheme]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(scheme: str) -> dict[str, dict[str, float]]:
    """Seconds of each part, for the first and for a later point of this process."""
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
        found[which] = _parts(begun, seen[:2])
        begun = time.time()
    return found


def _parts(begun: float, workers: list[TrainingReport]) -> dict[str, float]:
    names = ("joined", "built", "training_started")
    marks = [begun, *(max(getattr(worker, name) for worker in workers) for name in names)]
    marks.append(max(w.training_started + float(w.real_step_ends[0]) for w in workers))
    return dict(zip(PARTS, [b - a for a, b in itertools.pairwise(marks)], strict=True))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
