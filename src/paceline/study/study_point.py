"""A point of a study: composed once, with what is known of its record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import read_result
from paceline.record.record import Result
from paceline.record.rerun import failed_by_environment

if TYPE_CHECKING:
    from paceline.record.point import Point

UNTUNED = "untuned"  # in place of the key
_STATES = ("finished", "diverged", "failed")


@dataclass(eq=False)
class StudyPoint:
    """A point of a study.

    `config`: its settings. `cfg`: the same before they were resolved, from which a tuning makes
    other points. `axes`: values of the settings that the study sweeps, by dotted name, in its
    order. `overrides`: those that name it among the points of its study. `root`: folder of runs/.
    `result`: result.json as it was read last, None without a record. A tuned point has no learning
    rate (`has_rate`), and UNTUNED as its key, until the tuning of its configuration has ended.
    """

    config: PointConfig
    cfg: DictConfig
    axes: Mapping[str, Any]
    overrides: tuple[str, ...]
    root: Path
    has_rate: bool = True
    result: Result | None = field(init=False)

    def __post_init__(self) -> None:
        self.refresh()

    @cached_property
    def key(self) -> str:
        return self.config.key if self.has_rate else UNTUNED

    @cached_property
    def folder(self) -> Path:
        return self.root / "runs" / self.config.study / self.key

    @cached_property
    def point(self) -> "Point":
        """The point, typed and checked; takes a second if torch is not imported yet.

        Raises SettingError, also for a tuned point that has no rate yet.
        """
        from paceline.record.point import Point

        return Point.of(self.config)

    @property
    def num_processes(self) -> int:
        """Number of processes that train, and of those that serve."""
        return sum(self.point.num_processes)

    @property
    def is_exchange(self) -> bool:
        """True if it is a collective between processes, and no training."""
        return bool(self.config.values.get("exchange"))

    def check(self) -> None:
        """Raise SettingError for an invalid setting of a point that has its rate."""
        if self.is_exchange:
            from paceline.record.point import ExchangePoint  # torch takes seconds

            ExchangePoint.of(self.config)
        elif self.has_rate:
            _ = self.point  # built, and so checked

    @property
    def words(self) -> str:
        """Its axes, as on the command line."""
        return " ".join(f"{name}={value}" for name, value in self.axes.items())

    @property
    def status(self) -> str | None:
        return self.result["status"] if self.result else None

    @property
    def needs_run(self) -> bool:
        """True if `sweep.rerun` and the record as it was read last ask for a run."""
        return self.config.sweep.needs_run(self.result, source_digest())

    @property
    def is_unsettled(self) -> bool:
        """True without a record, or if the machine or the network made the point fail."""
        return self.result is None or failed_by_environment(self.result)

    def refresh(self) -> None:
        """Read the record anew."""
        self.result = read_result(self.folder)


Points = Sequence[StudyPoint]


def to_run(points: Points) -> list[StudyPoint]:
    """Return the points that need a run, by `sweep.rerun` and their records."""
    return [point for point in points if point.needs_run]


def counts(points: Points) -> str:
    """Format the number of points by status: `24 points: 20 finished, 1 diverged, 3 to do`."""
    states = [point.status or "to do" for point in points]
    parts = [f"{states.count(each)} {each}" for each in (*_STATES, "to do") if each in states]
    return f"{len(points)} points: {', '.join(parts)}"
