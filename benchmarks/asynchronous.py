"""An asynchronous worker beside one that is slowed by 100 ms a step, against its lone rate."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from benchmarks.config import config
from benchmarks.row import ratio_row
from paceline.cluster.launcher import launch
from paceline.model.classifier import Classifier

TURNS = 5
STEPS = 1500  # of the fast worker; the slow one takes a few dozen meanwhile


class SlowClassifier(Classifier):
    """Worker 1 sleeps 100 ms before each step."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() == 1:
            time.sleep(0.1)


def rows() -> list[dict[str, Any]]:
    alone, beside = [], []
    for _ in range(TURNS):
        alone.append(_rate(workers=1))
        beside.append(_rate(workers=2))
    name = "asynchronous worker beside one slowed by 100 ms a step / alone"
    return [ratio_row(name, beside, alone, "steps/s", 0.9)]


def _rate(workers: int) -> float:
    """Steps/s of worker 0, without its first tenth."""
    point = config(
        "scheme=async_parameter_server", "data=fashion_mnist_subset", f"workers={workers}"
    )
    point["model"]["_target_"] = f"{__name__}.{SlowClassifier.__name__}"
    point["training"]["samples"] = STEPS * point["batch_size"]
    with tempfile.TemporaryDirectory() as folder:
        seen = launch(
            "paceline.run.process:run",
            (point, folder),
            workers=workers,
            servers=1,
            log_folder=Path(folder) / "log",
        )
    ends: np.ndarray = seen[0]["step_ends"][len(seen[0]["step_ends"]) // 10 :]
    return (len(ends) - 1) / float(ends[-1] - ends[0])
