"""Defines the report that a training process returns to its launcher.

Rooms without torch import it, so this file must not import torch, as clock/reports.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paceline.clock.reports import StrategyReport
from paceline.data.moved import DataMoved

if TYPE_CHECKING:
    from paceline.data.order import AbstractOrder


@dataclass
class SnapshotScore:
    """Scores of one snapshot of the weights.

    `seconds` are of the training clock, `real_seconds` of a real one. `loss` may be infinite or
    NaN. `top1` and `top5` are shares. `at_chance` means that `top1` is no better than guessing.
    `averaged_top1` is that of the weights' moving average, None without one. `num_images` were
    scored, and `right` tells which were right, a bit each.
    """

    samples: int
    updates: int
    seconds: float
    real_seconds: float
    loss: float
    top1: float
    top5: float
    at_chance: bool
    averaged_top1: float | None
    num_images: int
    right: bytes


@dataclass
class TrainingReport:
    """Report of one training process, on one worker, or on all of them on the virtual clock.

    `shard`: index of the process among those of a split worker; the first reports for the worker.

    `losses` are (sum, number of steps) of the training loss up to each of `thresholds` [samples].
    `real_step_ends` are the real times at which the steps of the process ended [seconds]. `order`
    is that of the run's data; `images_seen` [num_train] counts how many times each image was in a
    batch. `lr` is the peak rate. `momentum` is None for an optimizer without momentum. `test` is
    the score of the last snapshot on the test set if this process computed it. `joined`, `built`
    and `training_started` are the times at which the process had joined the others, had built
    module and data, and drew its first batch [seconds since 1970]. `moved`: data that moved among
    workers. `checkpoints`, `resumes`: how many the run wrote, and from how many it went on.
    """

    strategy: StrategyReport
    evaluated: str
    images_per_update: int
    num_parameters: int
    lr: float
    momentum: float | None
    thresholds: list[int]
    losses: list[tuple[float, int]]
    real_step_ends: np.ndarray
    order: AbstractOrder
    images_seen: np.ndarray
    scores: list[SnapshotScore]
    test: SnapshotScore | None
    joined: float
    built: float
    training_started: float
    peak_rss_bytes: int = 0
    moved: DataMoved = field(default_factory=DataMoved)
    shard: int = 0
    checkpoints: int = 0
    resumes: int = 0
