"""Throughput of a run that is logged to MLflow, against the same run without MLflow."""

import json
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.config import ROOT
from benchmarks.row import ratio_row

TURNS, EPOCHS = 5, 20


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        stores = (f"sqlite:///{folder}/mlflow.db", "null")
        rates = [[], []]
        rate(stores[0], 100)  # makes the database
        for turn in range(TURNS):
            for series, store in zip(rates, stores, strict=True):
                series.append(rate(store, turn))
    return [ratio_row("two workers, logged to MLflow / not logged", *rates, "images/s", 0.98)]


def rate(store: str, seed: int) -> float:
    command = [sys.executable, "-m", "paceline.cli", "train", "workers=2", "batch_size=128"]
    command += ["data=fashion_mnist_subset", "study=benchmark", "sweep.rerun=all", f"seed={seed}"]
    command += [f"measurement.mlflow.tracking_uri={store}", f"training.epochs={EPOCHS}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    record = ROOT / done.stdout.splitlines()[-1]
    return json.loads((record / "result.json").read_text())["images_per_second"]
