"""A tracking server of MLflow with PostgreSQL: what it costs a run, and what an outage loses.

The server is killed in the middle of a sweep of 32 points, and started again 20 seconds later;
then every number of every record is looked for. Needs Debian's postgresql.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.logging_cost import rate
from benchmarks.postgres_server import TrackingServer, postgres
from benchmarks.row import ratio_row, row
from paceline.record.mlflow import client

POINTS, BEFORE, AWAY = 32, 10, 20  # points in all, until the server is killed; seconds
TURNS = 5
STUDY = f"""\
# @package _global_
defaults:
  - override /data: fashion_mnist_subset
study: outage
training:
  samples: 16000
hydra:
  sweeper:
    params:
      workers: 1,2
      seed: {",".join(map(str, range(POINTS // 2)))}
"""


def rows() -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with postgres(folder) as store:
            server = TrackingServer(store, folder)
            server.start()
            try:
                yield _cost(server)
                yield from _outage(server, folder / "project")
            finally:
                server.stop()


def _cost(server: TrackingServer) -> dict[str, Any]:
    rates: list[list[float]] = [[], []]
    for turn in range(TURNS):
        for series, store in zip(rates, (server.uri, "null"), strict=True):
            series.append(rate(store, turn))
    name = "two workers, logged to a tracking server / not logged"
    return ratio_row(name, rates[0], rates[1], "images/s", 0.98)


def _outage(server: TrackingServer, project: Path) -> Iterator[dict[str, Any]]:
    _call(["init", str(project)])
    (project / "experiments/outage.yaml").write_text(STUDY)
    setting = f"measurement.mlflow.tracking_uri={server.uri}"
    command = [sys.executable, "-m", "paceline.cli", "sweep", "outage", setting]
    sweep = subprocess.Popen(command, cwd=project, env=_environment())
    try:
        while len(_records(project)) < BEFORE and sweep.poll() is None:
            time.sleep(0.1)
        server.stop()
        before = len(_records(project))
        time.sleep(AWAY)
        during = len(_records(project)) - before
        ends = sorted((each / "result.json").stat().st_mtime for each in _records(project))
        server.start()
        ended = sweep.wait()
    finally:
        sweep.kill()
    if ended:
        raise SystemExit(f"benchmarks: the sweep ended with exit code {ended}")
    logged, all_numbers = 0, 0
    for record in _records(project):
        there, expected = _numbers(server.uri, record)
        logged, all_numbers = logged + there, all_numbers + expected
    ratio = logged / all_numbers
    name = f"numbers of {POINTS} points in MLflow / in their records, {during} of them made in the "
    name += f"{AWAY} s in which the server was away"
    yield row(name, logged, all_numbers, "", ratio, "1", logged == all_numbers)
    points = len(_records(project))
    yield row("  records / points", points, POINTS, "", points / POINTS, "1", points == POINTS)
    there = (ends[before - 1] - ends[0]) / (before - 1)
    away = (ends[-1] - ends[before - 1]) / during if during else AWAY
    name = "  seconds of a point, server away / there"
    yield row(name, away, there, "s", away / there, "shown", True)


def _records(project: Path) -> list[Path]:
    found = (project / "runs/outage").glob("*/result.json")
    return [path.parent for path in found if not path.parent.name.startswith(".")]


def _numbers(uri: str, record: Path) -> tuple[int, int]:
    """Return how many of a record's numbers its run in MLflow has, and how many there are."""
    store = client(uri)
    key = json.loads((record / "result.json").read_text())["key"]
    experiments = [each.experiment_id for each in store.search_experiments()]
    runs = [
        run
        for run in store.search_runs(experiments, f"tags.key = '{key}'")
        if run.info.status == "FINISHED"
    ]
    expected = [
        (f"{group}/{name}", int(line["samples"]), float(cell))
        for group, table in (("curve", "curve"), ("live", "progress"))
        for line in _table(record / f"{table}.csv")
        for name, cell in line.items()
        if cell and name != "samples"
    ]
    if len(runs) != 1:
        return 0, len(expected)
    names = {name for name, _, _ in expected}
    logged = {
        (name, each.step, each.value)
        for name in names
        for each in store.get_metric_history(runs[0].info.run_id, name)
    }
    return sum(each in logged for each in expected), len(expected)


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _call(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "paceline.cli", *arguments]
    subprocess.run(command, env=_environment(), check=True, stdout=subprocess.DEVNULL)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
