"""Budget of a run: a number of samples over all workers, the same for all schemes."""

import math
from dataclasses import dataclass

from paceline.clock.snapshot import evenly_spaced
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.scheme.accounting import Accounting


@dataclass(frozen=True)
class Budget:
    """Length of a run.

    `samples`: samples over all workers, rounded up to whole rounds of the scheme. `num_steps`:
    number of steps of all workers together. `thresholds`: samples after which weights are kept.
    """

    samples: int
    images_per_update: int
    num_steps: int
    thresholds: list[int]


def budget_of(point: Point, num_train: int) -> Budget:
    """Return the budget of a run over `num_train` images.

    Raises SettingError if a worker would have no step, or if there are more servers than pushes.
    """
    training = point.training
    asked = training.samples or training.epochs * num_train
    size, workers = point.batch_size, point.workers
    accounting = Accounting(point.scheme, workers)
    images_per_round = size * accounting.batches_per_round
    rounds = math.ceil(round(asked) / images_per_round)
    samples = rounds * images_per_round
    if samples < workers * size * accounting.steps_between_pushes:
        message = f"{samples} leave some of workers={workers} without a step"
        raise SettingError("training.samples", message)
    accounting.check_servers(samples // size)
    kept = evenly_spaced(rounds, point.measurement.evaluations)
    return Budget(
        samples=samples,
        images_per_update=accounting.images_per_update(size),
        num_steps=samples // size,
        thresholds=[images_per_round * each for each in kept],
    )
