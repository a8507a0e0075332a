"""Points (training runs) of a study with the state of their records, and their order in blocks.

The speed of a machine drifts within minutes. If the seeds of a configuration ran one after the
other, a slow minute would look like a slow scheme. Therefore, a study can run in blocks, one for
each seed. A block runs all configurations once with its seed, in a random order, between two runs
of a reference configuration. The second of these (repeat=1) trains the same as the first, and shows
how much the speed of the machine has drifted meanwhile. The points of blocks run one at a time.
Points on the virtual clock are in no block, because the speed of the machine does not change their
results.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from pydantic import Field

from paceline.errors import SettingError
from paceline.grouped import grouped
from paceline.random_bits import random_permutation
from paceline.record.data_digest import is_of_other_data
from paceline.record.point_config import PointConfig, kind_of
from paceline.record.provenance import source_digest
from paceline.record.reading import read_result
from paceline.record.record import outlives
from paceline.record.rerun import failed_by_environment
from paceline.record.schema import Result
from paceline.settings import Count, settings

if TYPE_CHECKING:
    from paceline.record.point import Point


UNTUNED = "untuned"  # in place of the key of a point whose learning rate is not known yet
_STATES = ("finished", "diverged", "untrained", "failed")


@dataclass(eq=False)
class StudyPoint:
    """A point of a study.

    `config`: its settings. `cfg`: the settings before interpolations are resolved, from which the
    study's hyperparameter search (its tuning) makes trials. `axes`: values of the settings that
    differ between points of the study, by dotted name. `overrides`: the settings, as on the command
    line, by which the study names the point. `root`: folder that has runs/. `result`: content of
    result.json when it was last read; None if the point had no record then. A tuned point has no
    learning rate until the search has found one; until then, `has_rate` is False, and the key is
    UNTUNED. `archived`: results of records that are in the study's archive alone, by key.
    """

    config: PointConfig
    cfg: DictConfig
    axes: Mapping[str, Any]
    overrides: tuple[str, ...]
    root: Path
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
        return is_of_other_data(self.result, self.config.target("data"))

    @property
    def is_unsettled(self) -> bool:
        """True if the point has no record, or failed because of the machine or the network.

        Also if it failed, and an older record stays.
        """
        result = self.result
        return result is None or failed_by_environment(result) or outlives(self.folder, result)

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


REPEAT = "repeat"  # name of the setting, and in a study with blocks of a column of runs.csv


@settings("blocks")
class Blocks:
    """Settings of the blocks of a study.

    `order`: seed of the random order. `reference`: values of axes that only the reference
    configuration has, by setting.
    """

    order: Count
    reference: Mapping[str, Any] = Field(min_length=1)


def in_blocks(points: Points) -> list[list[StudyPoint]]:
    """Return the points of each block in the order of their runs; [] for a study without blocks.

    Points on the virtual clock are left out. The last point of a block is the repetition of its
    reference. Raises SettingError if the points cannot form blocks.
    """
    asked = points[0].config.values["blocks"]
    if asked is None:
        return []
    if not isinstance(asked, Mapping):
        raise SettingError("blocks", f"null or {{order, reference}} is needed, not {asked!r}")
    blocks = Blocks(**asked)
    real = [each for each in points if kind_of(each.config.values["cluster"]) != "virtual"]
    if any(point.config.is_tuned for point in real):
        raise SettingError("blocks", "points with training.rate=tuned cannot be in blocks")
    by_seed = grouped((_numbered(point, 0) for point in real), lambda each: each.config.seed)
    first, *others = {seed: _configurations(each) for seed, each in by_seed.items()}.items()
    for seed, configurations in others:
        if configurations != first[1]:
            message = f"seed {seed} has other configurations than seed {first[0]}"
            raise SettingError("blocks", f"{message}, but each block needs all of them")
    return [_in_order(blocks, seed, members) for seed, members in by_seed.items()]


def is_repeat(point: StudyPoint) -> bool:
    return bool(point.axes.get(REPEAT))


def _configurations(points: Points) -> Counter[str]:
    return Counter(repr({k: v for k, v in point.axes.items() if k != "seed"}) for point in points)


def _in_order(blocks: Blocks, seed: int, points: Points) -> list[StudyPoint]:
    """Return the reference, all other points in random order, and the reference again."""
    asked = dict(blocks.reference)
    reference = [each for each in points if {k: each.axes.get(k) for k in asked} == asked]
    if len(reference) != 1:
        message = f"it fits {len(reference)} of {len(points)} configurations; it must fit one"
        raise SettingError("blocks.reference", message)
    others = [point for point in points if point is not reference[0]]
    order = random_permutation(len(others), "blocks", blocks.order, seed)
    return [reference[0], *(others[n] for n in order), _numbered(reference[0], 1)]


def _numbered(point: StudyPoint, repeat: int) -> StudyPoint:
    """Return the point with the setting `repeat`, and with no other point at the same time."""
    axes = {**point.axes, REPEAT: repeat}
    sweep = {**point.config.values["sweep"], "jobs": 1}
    config = point.config.replaced(repeat=repeat, sweep=sweep)
    overrides = (*point.overrides, f"{REPEAT}={repeat}") if repeat else point.overrides
    return replace(point, config=config, axes=axes, overrides=overrides)
