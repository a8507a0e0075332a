"""How long a run is: a number of samples over all workers, whatever the scheme."""

import math
from dataclasses import dataclass
from typing import Any

from paceline.engine.snapshot import evenly_spaced
from paceline.errors import SettingError
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme


@dataclass(frozen=True)
class Budget:
    """`samples`: over all workers, rounded up to whole rounds of the scheme. `thresholds`: samples
    after which weights are kept.
    """

    samples: int
    images_per_update: int
    num_steps: int  # of all workers together
    most_batches: int  # that they draw, with those whose gradients come too late
    thresholds: list[int]


def budget_of(config: dict[str, Any], scheme: AbstractScheme, num_train: int) -> Budget:
    training = config["training"]
    asked = training["samples"] or training["epochs"] * num_train
    size, workers = config["batch_size"], config["workers"]
    accounting = Accounting(scheme, workers)
    images_per_round = size * accounting.batches_per_round
    rounds = math.ceil(round(asked) / images_per_round)
    samples = rounds * images_per_round
    if samples < workers * size * accounting.steps_between_pushes:
        message = f"{samples} leave some of workers={workers} without a step"
        raise SettingError("training.samples", message)
    kept = evenly_spaced(rounds, config["measurement"]["evaluations"])
    return Budget(
        samples=samples,
        images_per_update=accounting.images_per_update(size),
        num_steps=samples // size,
        most_batches=accounting.most_batches(samples // size),
        thresholds=[images_per_round * each for each in kept],
    )
