"""How long a run is: a number of samples over all workers, whatever the scheme."""

import math
from dataclasses import dataclass
from typing import Any

from paceline.cluster.snapshot import snapshot_steps
from paceline.errors import SettingError
from paceline.scheme.scheme import AbstractScheme


@dataclass(frozen=True)
class Budget:
    """`samples`: rounded up to whole updates. `snapshots`: updates after which weights are kept."""

    samples: int
    updates: int
    images_per_update: int
    num_steps: int  # of all workers together
    snapshots: list[int]

    @property
    def thresholds(self) -> list[int]:
        """Samples over all workers at each snapshot."""
        return [updates * self.images_per_update for updates in self.snapshots]


def budget_of(config: dict[str, Any], scheme: AbstractScheme, num_train: int) -> Budget:
    training = config["training"]
    asked = training["samples"] or training["epochs"] * num_train
    images_per_update = scheme.images_per_update(config["batch_size"], config["workers"])
    updates = math.ceil(round(asked) / images_per_update)
    samples = updates * images_per_update
    if samples < config["workers"] * config["batch_size"]:
        message = f"{samples} leave some of workers={config['workers']} without a step"
        raise SettingError("training.samples", message)
    return Budget(
        samples=samples,
        updates=updates,
        images_per_update=images_per_update,
        num_steps=samples // config["batch_size"],
        snapshots=snapshot_steps(updates, config["measurement"]["evaluations"]),
    )
