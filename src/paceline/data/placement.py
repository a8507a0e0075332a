"""Settings `data.*` of a run: where training samples are held, and how workers get them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from paceline.errors import SettingError
from paceline.settings import Neutral, Whole, settings

Store = Literal["memory", "decoded_each_time"]


@settings("data")
class Placement:
    """Placement of the training set on workers (Kumar 2017, arXiv:1711.00705).

    `placement`: "replicated" if every worker can read the whole set, "partitioned" if each worker
    holds a share of it in its memory. `partition`: whether the first shares are drawn at random or
    sorted by class. `shuffle_every`: number of epochs after which workers exchange samples
    all-to-all; None for never. `store`: what samples are read from; None for the data set's own
    way, or for memory if it is partitioned.

    Raises SettingError for settings that do not go with the `placement`.
    """

    placement: Annotated[Literal["replicated", "partitioned"], Neutral("replicated")]
    partition: Annotated[Literal["random", "by_class"], Neutral("random")]
    shuffle_every: Annotated[Whole | None, Neutral(None)]
    store: Annotated[Store | None, Neutral(None)]

    def __post_init__(self) -> None:
        if self.partitioned and self.store == "decoded_each_time":
            message = f"{self.store}, but a share is held in memory: placement=replicated is needed"
            raise SettingError("data.store", message)
        for name, value in {"partition": "random", "shuffle_every": None}.items():
            if not self.partitioned and getattr(self, name) != value:
                message = f"{getattr(self, name)} needs placement=partitioned"
                raise SettingError(f"data.{name}", message)

    @property
    def partitioned(self) -> bool:
        return self.placement == "partitioned"


@dataclass
class DataMoved:
    """Counts of training data that one process sent, or on a virtual clock all workers together.

    `shuffle_bytes`: bytes sent in shuffles (exchanges of samples between workers).
    `shuffle_seconds`: time in shuffles; on a virtual clock, of the worker that took longest.
    """

    shuffle_bytes: int = 0
    shuffle_seconds: float = 0.0
