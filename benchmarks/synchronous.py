"""sync_allreduce as the project runs it, against bare loops with torch's DDP; two processes.

DDP as it comes broadcasts BatchNorm buffers in every step; the project averages them when it
evaluates. The stricter loop goes without the broadcast too: what is left is Lightning's own cost.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.config import point_of
from benchmarks.row import ratio_row, row
from paceline.exchange.process_group import join, leave
from paceline.record.observed import images_per_second
from paceline.record.point import Point
from tests.launching import launch

TURNS = 5
CASES = {
    # name: (overrides, steps per turn, least ratio)
    "ResNet-18, 3x32x32, batch 64": (
        ["model=resnet18", "data=synthetic", "data.image_shape=[3,32,32]", "batch_size=64"],
        12,
        0.97,
    ),
    "small CNN, 1x28x28, batch 32": (
        ["model=small_cnn", "data=fashion_mnist_subset", "batch_size=32"],
        400,
        0.9,
    ),
}


def rows() -> list[dict[str, Any]]:
    return [line for name, case in CASES.items() for line in _case(name, *case)]


def _case(name: str, overrides: list[str], steps: int, least: float) -> list[dict[str, Any]]:
    point = point_of(*overrides, "workers=2", "measurement.evaluations=1")
    point = replace(point, training=replace(point.training, samples=2 * steps * point.batch_size))
    with tempfile.TemporaryDirectory() as folder:
        seen = launch(
            "benchmarks.synchronous:measure",
            (point, Path(folder), TURNS),
            workers=2,
            servers=0,
            log_folder=Path(folder),
        )
    ours, theirs, without, waits = seen[0]
    wait, strict = median(waits), median(ours) / median(without)
    rates = (median(ours), median(without))
    return [
        ratio_row(f"sync_allreduce / bare DDP: {name}", ours, theirs, "images/s", least),
        row("  / bare DDP without its buffer broadcast", *rates, "images/s", strict, "shown", True),
        row("  its waiting for data, share of step time", wait, 1, "", wait, "< 0.03", wait < 0.03),
    ]


def measure(point: Point, folder: Path, turns: int) -> tuple[list[float], ...]:
    """By turns: images/s of both workers (ours, bare, bare without the broadcast of buffers), and
    the share of our time without data.
    """
    from paceline.run.training_process import TrainingProcess

    torch.set_num_threads(1)
    join(120, "cpu")
    ours, theirs, without, waits = [], [], [], []
    for _ in range(turns):
        seen = TrainingProcess(point, folder, {}).run()
        ours.append(_rate(seen.real_step_ends, point))
        waiting = seen.strategy.workers[0].seconds_data
        waits.append(waiting / float(seen.real_step_ends[-1]))
        theirs.append(_rate(_bare(point), point))
        without.append(_rate(_bare(point, broadcast_buffers=False), point))
    leave()
    return ours, theirs, without, waits


def _rate(step_ends: np.ndarray, point: Point) -> float:
    rate = images_per_second([step_ends], 2 * point.batch_size, warmup_fraction=0.1)
    assert rate is not None
    return rate


def _bare(point: Point, **options: bool) -> np.ndarray:
    """The same network, batches and optimizer, without Lightning; `options` of DDP."""
    from paceline.run.open_data import open_data
    from paceline.run.placed_data import reading_of

    torch.manual_seed(point.seed)
    module = point.model.build()
    steps = int(point.training.samples or 0) // (2 * point.batch_size)
    batches = open_data(point.data.build(), reading_of(point)).train(dist.get_rank(), steps)
    model = DistributedDataParallel(module.network, gradient_as_bucket_view=True, **options)
    optimizer = module.configure_optimizers()
    dist.barrier()
    start, ends = time.perf_counter(), []
    for images, labels in batches:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        ends.append(time.perf_counter() - start)
    return np.array(ends)
