"""An asynchronous worker beside one that is slowed by 100 ms a step, against its lone rate."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from benchmarks.config import point_of
from benchmarks.row import ratio_row
from paceline.run.run_point import PROCESS
from tests.classifiers import ActingClassifier
from tests.launching import launch

TURNS = 5
STEPS = 1500  # of the fast worker; the slow one takes a few dozen meanwhile
BATCH_SIZE = 32


class SlowClassifier(ActingClassifier):
    """Worker 1 sleeps 100 ms before each step."""

    def before_batch(self, batch: Any, batch_idx: int) -> None:
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
    point = point_of(
        "scheme=async_parameter_server",
        "data=fashion_mnist_subset",
        f"workers={workers}",
        f"model._target_={__name__}.{SlowClassifier.__name__}",
        f"training.samples={STEPS * BATCH_SIZE}",
        f"batch_size={BATCH_SIZE}",
    )
    with tempfile.TemporaryDirectory() as folder:
        seen = launch(
            PROCESS,
            (point, Path(folder)),
            workers=workers,
            servers=1,
            log_folder=Path(folder) / "log",
        )
    steps: np.ndarray = seen[0].real_step_ends
    ends = steps[len(steps) // 10 :]
    return (len(ends) - 1) / float(ends[-1] - ends[0])
