"""Computes the budget of a point (the length of its run in samples and steps) before the run.

Also computes the messages inside of split workers (each consists of several processes) on a
modelled cluster.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.data.image_set import AbstractImageData
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.scheme.counts import Counts
from paceline.timing.split_plan import SplitStep
from paceline.timing.workload import OWN


@dataclass(frozen=True)
class Budget:
    """Length of a run.

    `samples`: samples of all workers, rounded up to whole rounds of the scheme (a round is the
    number of batches of which a run takes a multiple). `images_per_update`: number of images in one
    update of the weights. `num_steps`: number of steps of all workers together. `thresholds`:
    numbers of samples after which snapshots of the weights are kept.
    """

    samples: int
    images_per_update: int
    num_steps: int
    thresholds: list[int]


def budget_of(point: Point, num_train: int) -> Budget:
    """Return the budget of a run over `num_train` images.

    Raises SettingError if a worker would have no step, if there are more servers than pushes, or
    if `training.samples` is less than a round.
    """
    training, size, workers = point.training, point.batch_size, point.workers
    asked = training.samples or training.epochs * num_train
    counts = Counts(point.scheme, workers)
    images_per_round = size * counts.batches_per_round
    if training.samples and asked < images_per_round:
        message = f"{asked:g} is less than one round of {images_per_round} images"
        raise SettingError("training.samples", message)
    rounds = math.ceil(round(asked) / images_per_round)
    samples = rounds * images_per_round
    if samples < workers * size * point.scheme.steps_between_pushes:
        message = f"{samples} leave some of workers={workers} without a step"
        raise SettingError("training.samples", message)
    counts.check_servers(samples // size)
    kept = evenly_spaced(rounds, point.measurement.evaluations or 1)
    return Budget(
        samples=samples,
        images_per_update=size * counts.batches_per_update,
        num_steps=samples // size,
        thresholds=[images_per_round * each for each in kept],
    )


def evenly_spaced(rounds: int, evaluations: int) -> list[int]:
    """Return the rounds after which to keep a snapshot, ascending; the last one is `rounds`."""
    count = min(evaluations, rounds)
    return [rounds * (index + 1) // count for index in range(count)]


def split_step_of(
    point: Point, module: Callable[[], Any], image_shape: Callable[[], Sequence[int]]
) -> SplitStep | None:
    """Return the messages inside of a worker that is split into processes, in one step.

    The cluster must be a modelled one. The messages follow from the layers of the workload, or if
    the workload is `own`, from the trained network; only then are `module` and `image_shape`
    called. Returns None if workers are not split. Raises SettingError for a network that cannot be
    split.
    """
    sharding = point.sharding
    if sharding.shards == 1:
        return None
    if point.workload.name != OWN:
        return point.workload.split_step(sharding, point.batch_size)
    import torch  # takes seconds, and so does Lightning

    from paceline.clock.split.network_plan import modelled_split

    dtype = torch.float64 if point.training.precision == "64-true" else torch.float32
    return modelled_split(module(), sharding, point.batch_size, image_shape(), dtype)


def declared_shape(point: Point) -> Sequence[int]:
    """Return the shape [C, H, W] of a point's images without reading them.

    Raises SettingError("model.shards") for data that do not declare it.
    """
    data = point.data.build()
    if not isinstance(data, AbstractImageData):
        message = f"the shape of the images of a {type(data).__name__} is not known before training"
        raise SettingError("model.shards", message)
    return data.image_shape
