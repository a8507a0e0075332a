"""Movement of data among the workers of a run, and its count."""

from dataclasses import dataclass, field

from paceline.data.moved import DataMoved
from paceline.data.order import AbstractOrder, PartitionedOrder
from paceline.data.shuffle import Shuffle


@dataclass(frozen=True)
class DataTraffic:
    """Movement of data in a run.

    `sample_bytes`: of a sample in a shuffle. `fed_bytes`: of a batch that the first worker of a
    node sends to another on the virtual clock; 0 if each draws its own. `moved` counts it all.
    """

    order: AbstractOrder
    sample_bytes: int = 0
    fed_bytes: int = 0
    moved: DataMoved = field(default_factory=DataMoved)

    def shuffle(self, copy: int, before: int, after: int) -> Shuffle:
        """Return the exchange of a copy's holders from a period to a later one."""
        assert isinstance(self.order, PartitionedOrder)
        first, second = (self.order.shares(copy, period) for period in (before, after))
        return Shuffle(first, second, self.sample_bytes)
