"""Points (training runs) of a study with the state of their records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from paceline.record.data_digest import is_of_other_data
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import read_result
from paceline.record.rerun import failed_by_environment
from paceline.record.result import Result

if TYPE_CHECKING:
    from paceline.record.point import Point
    from paceline.study.search import GridSearch


UNTUNED = "untuned"  # in place of the key of a point whose learning rate is not known yet
_STATES = ("finished", "diverged", "untrained", "failed")


@dataclass(eq=False)
class StudyPoint:
    """A point of a study.

    `config`: its settings. `cfg`: the settings before interpolations are resolved, from which the
    study's hyperparameter search (its tuning) makes trials. `axes`: values of the settings that
    differ between points of the study, by dotted name. `overrides`: the settings, as on the command
    line, by which the study names the point. `root`: folder that has runs/. `tuning`: the search,
    if the study has one. `result`: content of result.json when it was last read; None if the point
    had no record then. A tuned point has no learning rate until the search has found one; until
    then, `has_rate` is False, and the key is UNTUNED. `archived`: results of records that are in
    the study's archive alone, by key.
    """

    config: PointConfig
    cfg: DictConfig
    axes: Mapping[str, Any]
    overrides: tuple[str, ...]
    root: Path
    tuning: "GridSearch | None" = None
    has_rate: bool = True
    archived: Mapping[str, Result] = field(default_factory=dict[str, Result])
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
        """The point with typed and checked parts; takes seconds if torch is not imported yet.

        Raises SettingError for an invalid setting, or if a tuned point has no learning rate yet.
        """
        from paceline.record.point import Point

        return Point.of(self.config)

    @property
    def num_processes(self) -> int:
        """Number of all processes, both workers and servers."""
        return sum(self.point.num_processes)

    def check(self) -> None:
        """Raise SettingError for an invalid setting.

        A tuned point that has no learning rate yet is not checked.
        """
        if self.has_rate:
            _ = self.point  # built, and so checked

    @property
    def words(self) -> str:
        """The values of the axes, as on the command line: `workers=2 seed=1`."""
        return " ".join(f"{name}={value}" for name, value in self.axes.items())

    @property
    def status(self) -> str | None:
        return self.result["status"] if self.result else None

    @property
    def needs_run(self) -> bool:
        """True if the point must run, according to `sweep.rerun` and its record."""
        other = self.is_of_other_data
        return self.config.sweep.needs_run(self.result, source_digest(), other)

    @property
    def is_of_other_data(self) -> bool:
        """True if the point has a record, of data that have changed since."""
        data, files = self.config.target("data"), self.config.files_of_model
        return is_of_other_data(self.result, data, *files)

    @property
    def is_unsettled(self) -> bool:
        """True if the point has no record, or failed because of the machine or the network.

        Also if its last run failed, and an earlier one counts.
        """
        result = self.result
        if result is None or failed_by_environment(result):
            return True
        if result["status"] != "failed":
            return False
        counted = read_result(self.folder)
        return counted is not None and counted["status"] != "failed"

    def refresh(self) -> None:
        self.result = read_result(self.folder)
        if self.is_unsettled:
            self.result = self.archived.get(self.key, self.result)


Points = Sequence[StudyPoint]


def to_run(points: Points) -> list[StudyPoint]:
    return [point for point in points if point.needs_run]


def most_processes(points: Iterable[StudyPoint]) -> int:
    """Return how many processes run at a time at most; 0 for no points.

    A tuned point whose rate is not known yet, nor perhaps another setting that is searched, is left
    out: its trials have as many.
    """
    rated = (point for point in points if point.has_rate)
    return max((point.config.sweep.jobs * point.num_processes for point in rated), default=0)


def counts(points: Points) -> str:
    """Format the number of points by status: `24 points: 20 finished, 1 diverged, 3 to do`.

    Also says how many are of data that have changed since.
    """
    states = [point.status or "to do" for point in points]
    parts = [f"{states.count(each)} {each}" for each in (*_STATES, "to do") if each in states]
    if others := sum(point.is_of_other_data for point in points):
        again = "sweep.rerun=stale runs them again"
        parts.append(f"{others} of data that have changed since ({again})")
    return f"{len(points)} points: {', '.join(parts)}"
