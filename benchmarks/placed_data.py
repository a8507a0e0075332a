"""Kumar's ablation (2017, arXiv:1711.00705): where the samples are, and how gradients meet.

Four processes train ResNet-18 for an epoch of a folder of JPEGs. Each stage changes one thing of
the stage before; all take turns in one run. The files have the mean size of ImageNet's, 500 x 375,
and are resized to 64 x 64, so that decoding them weighs as much beside a small network as it does
in the paper beside a large one on a fast GPU. The first step is left out of the time.

`python -m benchmarks.placed_data FOLDER` only writes such files into a folder, for the study
kumar2017_ablation.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

from benchmarks.config import point_of
from benchmarks.row import row
from paceline.data.order import PartitionedOrder, SampleStream
from paceline.data.shuffle import RowFormat, Share, Shuffle
from paceline.exchange.process_group import join, leave
from paceline.exchange.sample_exchange import SampleExchange
from paceline.record.point import Point
from paceline.run.run_point import prepare_data
from tests.launching import launch

WORKERS, TURNS, IMAGES, BATCH_SIZE = 4, 3, 512, 16
SHUFFLED = 200_000_000  # bytes of a set that is shuffled
CLASSES, WIDTH, HEIGHT, SIDE = 4, 500, 375, 64
SETTINGS = (
    "model=resnet18",
    "data=image_folder",
    f"data.num_classes={CLASSES}",
    f"data.image_shape=[3,{SIDE},{SIDE}]",
    "measurement.evaluations=1",
    "cluster.accelerator=cpu",
    f"workers={WORKERS}",
)
STAGES = {  # settings of each, and if gradients are reduced in buckets beside backward
    "JPEGs decoded in the step, tree": (
        ("data.store=decoded_each_time", "scheme.collective=tree"),
        False,
    ),
    "+ memory": (("data.store=memory", "scheme.collective=tree"), False),
    "+ multicolor": (("data.store=memory", "scheme.collective=multicolor"), False),
    "+ buckets": (("data.store=memory", "scheme.collective=multicolor"), True),
    "+ native instead of multicolor": (("data.store=memory", "scheme.collective=native"), True),
}


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_images(root, IMAGES)
        points = [_point(root, overrides, buckets) for overrides, buckets in STAGES.values()]
        prepare_data(points[0][0].data)
        seen = launch(
            "benchmarks.placed_data:measure",
            (points, root, TURNS, SHUFFLED),
            workers=WORKERS,
            servers=0,
            log_folder=root,
        )
    epochs = np.max([of_worker[0] for of_worker in seen], axis=0)  # [stages, turns], the slowest
    return [*_stage_rows(epochs), _shuffle_row([of_worker[1] for of_worker in seen])]


def write_images(root: Path, images: int) -> None:
    """Make JPEGs of smooth colours with some noise, an equal number of each class."""
    drawn = np.random.default_rng(0)
    for part, number in (("train", images), ("val", 2 * CLASSES), ("test", 2 * CLASSES)):
        for n in range(number):
            folder = root / part / f"class{n % CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            tiles = drawn.integers(0, 256, (6, 8, 3), dtype=np.uint8)
            tiles[:, :2] = 60 * (n % CLASSES)
            smooth = np.asarray(Image.fromarray(tiles).resize((WIDTH, HEIGHT), Image.BICUBIC))
            noise = drawn.integers(0, 40, smooth.shape, dtype=np.uint8)
            Image.fromarray(smooth // 2 + noise).save(folder / f"{n}.jpg", quality=90)


def _point(root: Path, overrides: Sequence[str], buckets: bool) -> tuple[Point, bool]:
    point = point_of(*SETTINGS, f"data.root={root}", f"batch_size={BATCH_SIZE}", *overrides)
    return replace(point, training=replace(point.training, samples=IMAGES)), buckets


def _stage_rows(epochs: np.ndarray) -> list[dict[str, Any]]:
    first, *others = STAGES
    lines = [
        _compared(f"epoch of ResNet-18 on JPEGs x {WORKERS}: {stage} / before", after, before)
        for stage, (before, after) in zip(others, itertools.pairwise(epochs), strict=True)
    ]
    return [*lines, _compared(f"  with all of these / {first}", epochs[-1], epochs[0])]


def _compared(name: str, after: np.ndarray, before: np.ndarray) -> dict[str, Any]:
    """Ratio of the medians, with the range of the ratios of each turn."""
    ratios = after / before
    title = f"{name} ({ratios.min():.2f} to {ratios.max():.2f} in single turns)"
    times = median(after.tolist()), median(before.tolist())
    return row(title, *times, "s", times[0] / times[1], "shown", True)


def _shuffle_row(seen: Sequence[tuple[list[float], int]]) -> dict[str, Any]:
    seconds = median(max(turn) for turn in zip(*(each[0] for each in seen), strict=True))
    sent = sum(each[1] for each in seen)
    share = sent / SHUFFLED
    name = (
        f"shuffle of {SHUFFLED / 1e6:.0f} MB over {WORKERS} workers in {seconds:.3g} s: sent / all"
    )
    expected = 1 - 1 / WORKERS
    holds = abs(share / expected - 1) < 0.02
    return row(name, sent / 1e6, SHUFFLED / 1e6, "MB", share, f"{expected:g} +- 2 %", holds)


def measure(
    points: list[tuple[Point, bool]], folder: Path, turns: int, shuffled: int
) -> tuple[list[list[float]], tuple[list[float], int]]:
    """By turns: seconds of an epoch in each stage; then seconds of shuffles, and their bytes."""
    torch.set_num_threads(1)
    join(300, "cpu")
    epochs: list[list[float]] = [[] for _ in points]
    for _, (stage, (point, buckets)) in itertools.product(range(turns), enumerate(points)):
        epochs[stage].append(_epoch(point, buckets, folder))
    found = epochs, _shuffles(turns, shuffled)
    leave()
    return found


def _epoch(point: Point, buckets: bool, folder: Path) -> float:
    from paceline.clock.wall.ddp import SyncAllReduceStrategy
    from paceline.run.training_process import TrainingProcess

    process = TrainingProcess(point, folder, {})
    strategy: Any = process._strategy
    assert isinstance(strategy, SyncAllReduceStrategy)
    if not buckets:
        strategy._ddp_kwargs["bucket_cap_mb"] = 2**20  # one, which is full when backward ends
    dist.barrier()
    ends = process.run().real_step_ends
    return float(ends[-1] - ends[0]) * len(ends) / (len(ends) - 1)


def _shuffles(turns: int, num_bytes: int) -> tuple[list[float], int]:
    """Seconds of each shuffle, and the bytes that this worker sends in the last one."""
    row_format = RowFormat([(torch.uint8, (3, SIDE, SIDE)), (torch.int64, ())])
    stream = SampleStream(num_bytes // row_format.num_bytes, seed=0)
    order = PartitionedOrder(stream, WORKERS, BATCH_SIZE, shuffle_every=1)
    worker, seconds, sent = dist.get_rank(), [], 0
    share = Share(
        order.share(worker, 0),
        lambda samples: torch.zeros((len(samples), row_format.num_bytes), dtype=torch.uint8),
        row_format,
        stream.num_samples,
        WORKERS - 1,
    )
    exchange = SampleExchange(WORKERS)
    for period in range(turns):
        dist.barrier()
        started = time.perf_counter()
        shares = order.shares(period), order.shares(period + 1)
        parts = Shuffle(*shares, row_format.num_bytes).exchange(worker, share)
        sent = exchange.carry_out(parts)
        seconds.append(time.perf_counter() - started)
    return seconds, sent


if __name__ == "__main__":
    write_images(Path(sys.argv[1]), IMAGES)
