"""What a command costs: time, and memory of all its processes, by turns with `import torch`.

All commands run in a copy of the project. `report` is of the study with the most runs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.config import ROOT
from benchmarks.row import row

TURNS = 3
TORCH = [sys.executable, "-c", "import torch"]
TRAIN = (
    "train workers=2 data=fashion_mnist_subset training.samples=2000 measurement.warmup_fraction=0"
)
COMMANDS = (  # words, largest seconds, largest MB
    ("--help", 0.2, 200),
    ("show", 2.5, 200),
    ("show {study}", 2.5, 200),
    ("sweep {study} --dry-run", 2.5, 200),
    ("train training.lr=-1", 2.5, 200),
    ("report {study}", 8.0, None),
    (f"{TRAIN} seed={{turn}}", 9.0, None),
)


class Cost(NamedTuple):
    """Seconds of time, seconds on cores, and MB that all processes had at most at a time."""

    seconds: float
    on_cores: float
    megabytes: float


def rows() -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("conf", "experiments", "reports"):
            shutil.copytree(ROOT / part, folder / part)
        runs = {each.parent.name: each for each in folder.glob("reports/*/runs.csv")}
        study = max(runs, key=lambda each: runs[each].stat().st_size)
        for words, seconds, megabytes in COMMANDS:
            yield from _rows(folder, words.replace("{study}", study), seconds, megabytes)


def _rows(
    folder: Path, words: str, seconds: float, megabytes: float | None
) -> Iterator[dict[str, Any]]:
    ours, torch = list[Cost](), list[Cost]()
    for turn in range(TURNS):
        own = [sys.executable, "-m", "paceline", *words.format(turn=turn).split()]
        ours.append(cost(own, folder))
        torch.append(cost(TORCH, folder))
    mine, other = (Cost(*map(median, zip(*each, strict=True))) for each in (ours, torch))
    name = f"paceline {words.format(turn=0)}"
    holds = mine.seconds <= seconds
    ratio = mine.seconds / other.seconds
    title = f"{name} / import torch"
    yield row(title, mine.seconds, other.seconds, "s", ratio, f"<= {seconds} s", holds)
    on_cores = mine.on_cores / other.on_cores
    yield row("  seconds on cores", mine.on_cores, other.on_cores, "s", on_cores, "shown", True)
    target, holds = "shown", True
    if megabytes:
        target, holds = f"<= {megabytes} MB", mine.megabytes <= megabytes
    ratio = mine.megabytes / other.megabytes
    yield row("  peak memory", mine.megabytes, other.megabytes, "MB", ratio, target, holds)


def cost(command: list[str], folder: Path) -> Cost:
    """Run a command in a folder, and look at its processes ten times a second."""
    path = os.pathsep.join(filter(None, sys.path))
    began, peak, on_cores = time.perf_counter(), 0, dict[int, float]()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        process, size = psutil.Process(running.pid), 0
        while running.poll() is None:
            size = 0
            with suppress(psutil.NoSuchProcess):
                for each in (process, *process.children(recursive=True)):
                    on_cores[each.pid] = sum(each.cpu_times()[:2])
                    size += each.memory_full_info().pss
            peak = max(peak, size)
            time.sleep(0.1)
        seconds = time.perf_counter() - began
    return Cost(seconds, sum(on_cores.values()), peak / 1e6)
