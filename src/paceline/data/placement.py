"""Settings `data.*` of a run: where its samples are held, and how they come to the workers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from paceline.errors import SettingError
from paceline.settings import Neutral, Whole, settings

Store = Literal["memory", "mapped", "decoded_each_time"]


@settings("data")
class Placement:
    """Placement of the training set on workers (Kumar 2017, arXiv:1711.00705).

    `placement`: every worker reaches the whole set, or holds a share of it in its memory.
    `partition`: what is in the first shares. `shuffle_every`: epochs after which the workers that
    hold a copy exchange samples all-to-all; None for never. `copies`: groups of workers that hold a
    whole copy each. `feed`: each worker draws its own batches, or the first one of a node draws
    those of all its workers and scatters them. `store`: what samples are read from; None as the
    data set comes, or from memory where it is partitioned.

    Raises SettingError for what a replicated or a partitioned set cannot have.
    """

    placement: Annotated[Literal["replicated", "partitioned"], Neutral("replicated")]
    partition: Annotated[Literal["random", "by_class"], Neutral("random")]
    shuffle_every: Annotated[Whole | None, Neutral(None)]
    copies: Annotated[Whole, Neutral(1)]
    feed: Annotated[Literal["own", "first_of_node"], Neutral("own")]
    store: Annotated[Store | None, Neutral(None)]

    def __post_init__(self) -> None:
        needed = "placement=replicated is needed"
        if self.partitioned and self.store not in (None, "memory"):
            message = f"{self.store}, but a share is held in memory: {needed}"
            raise SettingError("data.store", message)
        if self.partitioned and self.feed == "first_of_node":
            message = f"first_of_node draws for others what they hold: {needed}"
            raise SettingError("data.feed", message)
        neutral = {"partition": "random", "shuffle_every": None, "copies": 1}
        for name, value in neutral.items():
            if not self.partitioned and getattr(self, name) != value:
                message = f"{getattr(self, name)} needs placement=partitioned"
                raise SettingError(f"data.{name}", message)

    @property
    def partitioned(self) -> bool:
        return self.placement == "partitioned"

    @property
    def meeting(self) -> str | None:
        """Name of the setting for which all workers must meet; None if they need not."""
        if self.shuffle_every is not None:
            return "data.shuffle_every"
        return "data.feed" if self.feed == "first_of_node" else None

    def check_workers(self, num_workers: int) -> None:
        """Raise SettingError("data.copies") if copies cannot have equally many workers."""
        if num_workers % self.copies:
            message = f"{self.copies} does not divide workers={num_workers}"
            raise SettingError("data.copies", message)


@dataclass
class DataMoved:
    """Data that moved by one process, or by all workers on the virtual clock.

    `shuffle_bytes`, `feed_bytes`: sent. `shuffle_seconds`: of the worker that took longest.
    """

    shuffle_bytes: int = 0
    shuffle_seconds: float = 0.0
    feed_bytes: int = 0
