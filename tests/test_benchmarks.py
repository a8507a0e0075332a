"""Each benchmark at its smallest size yields its rows, with a number in each. Targets are no part
of it: they hold at full size, where nothing else runs.
"""

import importlib
import math
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.__main__ import MODULES

pytestmark = pytest.mark.slow

SETTINGS = ["model=small_cnn", "data=fashion_mnist_subset"]
CNN = ("small CNN", *SETTINGS)
SMALLEST = {  # rows at least, and constants of the module
    "loader": (4, {"IMAGES": 256}),
    "synchronous": (3, {"CASES": {"small CNN": ([*SETTINGS, "batch_size=32"], 20, 0.9)}}),
    "parameter_server": (2, {"ROUNDS": {11_000_000: 1, 7_674: 10}}),
    "links": (
        15,
        {"LINKS": {"1": 1.25e8}, "RUNS": {"1": 1}, "WORKERS": (2,), "SERVERS": (1,)},
    ),
    "collectives": (18, {"NUM_BYTES": (30_000,), "WORKERS": (2,), "TABLE": Path(os.devnull)}),
    "asynchronous_throughput": (
        5,
        {"CNN": "A", "CASES": {"A": (SETTINGS, 100, 0.9)}, "SLOW_STEPS": 60, "SLOW_TURNS": 1},
    ),
    "commands": (3, {"COMMANDS": (("--help", 0.2, 200),)}),
    "launch": (2, {"SCHEMES": ("sync_allreduce",)}),
    "logging_cost": (1, {"EPOCHS": 1}),
    "virtual_clock": (4, {"STEPS": 8, "CNN": CNN, "RESNET": CNN, "CASES": ((CNN, (1,)),)}),
    "virtual_engines": (
        7,
        {"WARMUP": 0.1, "MEASURED": 0.1, "WINDOWS": 1, "WORKERS": {"small CNN": (16,)}},
    ),
    "page": (2, {}),
    "large_study": (2, {"AXES": (("sync_allreduce",), (1, 4), (32,), range(3)), "EVALUATIONS": 2}),
}
LEFT_OUT = {
    "gpu_workers": "needs a GPU",
    "planted_worlds": "draws for half a minute; analysis/test_intervals.py has few",
    "step_times": "counts 259 networks for minutes; prediction/test_network_by_size.py has few",
}
OF_ROOT = ("links", "collectives")


def test_that_no_benchmark_is_left_out_without_a_reason():
    assert {*SMALLEST, *LEFT_OUT} == {*MODULES}


@pytest.mark.parametrize("name", SMALLEST)
def test_that_a_benchmark_yields_its_rows(monkeypatch, root, name):
    if name in OF_ROOT and os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    least, constants = SMALLEST[name]
    module = importlib.import_module(f"benchmarks.{name}")
    for constant, value in constants.items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(module, "TURNS", 1, raising=False)
    monkeypatch.setattr("benchmarks.logging_cost.ROOT", root)  # where its record stays
    rows = list(module.rows())
    assert len(rows) >= least
    measured = [row for row in rows if find_spec("ray") or "Ray's" not in row["name"]]
    assert all(math.isfinite(row[of]) for row in measured for of in ("ours", "theirs", "ratio"))
