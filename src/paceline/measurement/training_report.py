"""What a training process returns to its launcher. No torch here, as in engine/reports.py."""

from dataclasses import dataclass

import numpy as np

from paceline.engine.reports import StrategyReport


@dataclass
class SnapshotScore:
    """A snapshot of the weights, scored. `seconds`: of the training clock; `real_seconds`: real.

    `loss` may be infinite or NaN. `top1`, `top5`: shares. `at_chance`: no better than guessing.
    """

    samples: int
    updates: int
    seconds: float
    real_seconds: float
    loss: float
    top1: float
    top5: float
    at_chance: bool


@dataclass
class TrainingReport:
    """What one training process has seen: of one worker, or of all on the virtual clock.

    `losses`: (sum, steps) of the training loss up to each of `thresholds` [samples].
    `real_step_ends`: real seconds of the training clock, of all steps of the process. `images_seen`
    [num_train]: how often each image was in its batches. `lr`: the peak rate. `momentum`: None for
    an optimizer without. `test`: of the last snapshot, where this process scored it.
    `joined`, `built`, `training_started`: when the process had joined the others, built what it
    trains, and asked for its first batch [seconds since 1970].
    """

    strategy: StrategyReport
    claim: str
    evaluated: str
    images_per_update: int
    num_parameters: int
    lr: float
    momentum: float | None
    thresholds: list[int]
    losses: list[tuple[float, int]]
    real_step_ends: np.ndarray
    images_seen: np.ndarray
    scores: list[SnapshotScore]
    test: SnapshotScore | None
    joined: float
    built: float
    training_started: float
    peak_rss_bytes: int = 0
