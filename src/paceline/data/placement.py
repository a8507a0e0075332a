"""Settings `data.*` of a run: where training samples are held, and how workers get them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from paceline.errors import SettingError
from paceline.settings import Neutral, Whole, settings

Store = Literal["memory", "mapped", "decoded_each_time"]


@settings("data")
class Placement:
    """Placement of the training set on workers (Kumar 2017, arXiv:1711.00705).

    `placement`: "replicated" if every worker can read the whole set, "partitioned" if each worker
    holds a share of it in its memory. `partition`: whether the first shares are drawn at random or
    sorted by class. `shuffle_every`: number of epochs after which workers exchange samples
    all-to-all; None for never. `copies`: number of groups of workers; the shares of a group make up
    the whole set. `feed`: "own" if each worker draws its own batches, "first_of_node" if the first
    worker of a node draws the batches of all workers of the node and scatters them. `store`: what
    samples are read from; None for the data set's own way, or for memory if it is partitioned.

    Raises SettingError for settings that do not go with the `placement`.
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
        """Name of the setting that makes workers wait for each other, to exchange data, or None."""
        if self.shuffle_every is not None:
            return "data.shuffle_every"
        return "data.feed" if self.feed == "first_of_node" else None

    def check_workers(self, num_workers: int) -> None:
        """Raise SettingError("data.copies") if `copies` groups of equal size are impossible."""
        if num_workers % self.copies:
            message = f"{self.copies} does not divide workers={num_workers}"
            raise SettingError("data.copies", message)


@dataclass
class DataMoved:
    """Counts of training data that one process sent, or on a virtual clock all workers together.

    `shuffle_bytes`: bytes sent in shuffles (exchanges of samples between workers).
    `shuffle_seconds`: time in shuffles; on a virtual clock, of the worker that took longest.
    `feed_bytes`: bytes of batches that the first worker of a node sent to the node's other workers.
    """

    shuffle_bytes: int = 0
    shuffle_seconds: float = 0.0
    feed_bytes: int = 0
