"""A large study of made-up tables: until it is analysed and its page is written."""

import itertools
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.row import row
from tests.made_reports import SPEED, make_curve, make_run, write_points, write_reports

ROOT = Path(__file__).parent.parent
AXES = (tuple(SPEED), (1, 2, 4, 8, 16), (8, 16, 32, 64, 128, 256, 512, 1024), range(10))
EVALUATIONS = 200
SECONDS, GIGABYTES = 60.0, 2.0


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        points, evaluations = _write(Path(folder))
        started = time.perf_counter()
        asked = [sys.executable, "-m", "paceline", "report", "large"]
        subprocess.run(asked, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    name = f"report {points:,} points, {evaluations:,} evaluations"
    limits = ((name, seconds, SECONDS, "s"), (f"{name}, peak memory", peak, GIGABYTES, "GB"))
    return [
        row(text, found, limit, unit, found / limit, f"<= {limit:g} {unit}", found <= limit)
        for text, found, limit, unit in limits
    ]


def _write(root: Path) -> tuple[int, int]:
    shutil.copytree(ROOT / "conf", root / "conf")
    runs = [make_run(*point) for point in itertools.product(*AXES)]
    folder = write_reports(root / "reports/large", runs, target={"metric": "top1", "value": 0.8})
    curves = [line for run in runs for line in make_curve(run, EVALUATIONS)]
    write_points(folder, {"curve": curves})
    return len(runs), len(curves)
