"""Points of a study, composed and expanded by Hydra itself before any of them runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf

from paceline.errors import SettingError, did_you_mean
from paceline.record.point_config import PointConfig
from paceline.record.reading import read_result
from paceline.record.record import Result
from paceline.study.compose import as_in_a_run, composer, jobs_of, parsed
from paceline.study.hydra_error import hydra_errors
from paceline.study.tuned_rate import Rates

if TYPE_CHECKING:
    from paceline.record.point import Point

T = TypeVar("T")

UNTUNED = "untuned"  # in place of the key
STRONG = "global_batch_size"  # axis of a study of strong scaling


@dataclass(frozen=True)
class StudyPoint:
    """A point of a study.

    `axes`: values of the settings that the study sweeps, by dotted name, in its order. `result`:
    result.json, None without a record. A tuned point has no learning rate, and UNTUNED as its key,
    until the tuning of its configuration has ended.
    """

    key: str
    folder: Path
    config: PointConfig
    overrides: tuple[str, ...]
    axes: Mapping[str, Any]
    result: Result | None

    @property
    def is_tuned(self) -> bool:
        return self.config.is_tuned

    @cached_property
    def point(self) -> "Point":
        """The point, typed and checked; takes a second if torch is not imported yet.

        Raises SettingError, also for a tuned point that has no rate yet.
        """
        from paceline.record.point import Point

        return Point.of(self.config)

    @property
    def has_rate(self) -> bool:
        return self.key != UNTUNED

    @property
    def words(self) -> str:
        """Its axes, as on the command line."""
        return " ".join(f"{name}={value}" for name, value in self.axes.items())

    @property
    def status(self) -> str | None:
        return self.result["status"] if self.result else None


class Job(NamedTuple):
    """Combination of a study's axes, composed. `cfg`: its settings without Hydra's own."""

    cfg: DictConfig
    axes: Mapping[str, Any]
    overrides: tuple[str, ...]

    def point(self, root: Path, config: PointConfig, *, has_rate: bool = True) -> StudyPoint:
        """Return the point that `config` is."""
        key = config.key if has_rate else UNTUNED
        folder = (root / config.folder).with_name(key)
        size = config.values[STRONG]  # an axis wherever it is set, since configurations go by it
        axes = {**self.axes, STRONG: size} if size else self.axes
        return StudyPoint(key, folder, config, self.overrides, axes, read_result(folder))


def study_points(study: str, root: Path, overrides: Sequence[str] = ()) -> list[StudyPoint]:
    """Return the points that `experiments/<study>.yaml` names today, in the order of their runs.

    `root`: folder of conf/, experiments/ and runs/. `overrides`: settings as on the command line.
    Raises SettingError for an unknown study, for settings that do not compose, and for two points
    that are the same. Takes about 60 ms for each point.
    """
    rates = Rates(root)

    def point(job: Job) -> StudyPoint:
        has_rate = rates.set_rate(job.cfg)
        return job.point(root, PointConfig.of(job.cfg), has_rate=has_rate)

    grids, points = composed_jobs(study, root, overrides, point)
    _require_distinct(points, grids)
    _require_one_kind_of_scaling(points)
    return points


def composed_jobs(
    study: str, root: Path, overrides: Sequence[str], make: Callable[[Job], T]
) -> tuple[list[list[Override]], list[T]]:
    """Return the axes of each grid of a study, and what `make` makes of each job, in their order.

    `make` must be done with a job when it returns. Raises SettingError for an unknown study and for
    settings that do not compose.
    """
    require_study(study, root)
    with hydra_errors("study"), composer(root) as compose:
        base = compose([f"experiments={study}"])
        grids = [
            parsed(
                [
                    *override_texts(base.hydra.sweeper.params),
                    f"experiments={study}",
                    *grid,
                    *overrides,
                ]
            )
            for grid in overrides_of_grids(base)
        ]
        names = _swept(grids)
        made = [make(_job(compose(job), names, job)) for axes in grids for job in jobs_of(axes)]
    return grids, made


def multirun_arguments(study: str, root: Path, overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides of Hydra's multiruns for `study`: one multirun for each of its grids."""
    with hydra_errors("study"), composer(root) as compose:
        grids = overrides_of_grids(compose([f"experiments={study}"]))
    return [[f"experiments={study}", *grid, *overrides] for grid in grids]


def studies(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "experiments").glob("*.yaml"))


def require_study(study: str, root: Path) -> None:
    """Raise SettingError for a study that is not in experiments/."""
    if study not in studies(root):
        known = ", ".join(studies(root)) or f"none in {root / 'experiments'}"
        message = f"there is no {study}{did_you_mean(study, studies(root))}; there are: {known}"
        raise SettingError("study", message)


def overrides_of_grids(base: DictConfig) -> list[list[str]]:
    """Return the overrides of each of `grids`; one empty list if the study has no grids."""
    if base.grids is None:
        return [[]]
    if not isinstance(base.grids, ListConfig) or not all(map(OmegaConf.is_dict, base.grids)):
        raise SettingError("grids", "a list of {setting: values} is needed")
    return [override_texts(grid) for grid in base.grids]


def override_texts(settings: DictConfig | None) -> list[str]:
    """Return settings as on the command line."""
    return [f"{name}={values}" for name, values in (settings or {}).items()]


def _swept(grids: list[list[Override]]) -> list[str]:
    latest = [{axis.get_key_element().lstrip("+"): axis for axis in axes} for axes in grids]
    names = dict.fromkeys(name for axes in latest for name in axes)
    return [name for name in names if _varies([axes.get(name) for axes in latest])]


def _varies(axes: list[Override | None]) -> bool:
    """Return True if a setting is swept in a grid, or differs between grids.

    None: the grid leaves the setting as the study sets it.
    """
    if any(axis is not None and axis.is_sweep_override() for axis in axes):
        return True
    return len({axis and axis.get_value_element_as_str() for axis in axes}) > 1


def _job(composed: DictConfig, axes: list[str], overrides: list[str]) -> Job:
    choices = composed.hydra.runtime.choices
    cfg = as_in_a_run(composed)
    values = {
        name: choices[name] if name in choices else OmegaConf.select(cfg, name) for name in axes
    }
    return Job(cfg, values, tuple(overrides))


def _require_distinct(points: list[StudyPoint], grids: list[list[Override]]) -> None:
    by_key: dict[str, StudyPoint] = {}
    for point in points:
        other = by_key.setdefault(point.config.key, point)  # of an untuned one: without its rate
        if other is not point:
            names = [name for name in point.axes if point.axes[name] != other.axes[name]]
            same = " and ".join(p.words for p in (other, point))
            raise SettingError(
                (names or _repeating(grids) or ["grids"])[0], f"two points are the same: {same}"
            )


def _require_one_kind_of_scaling(points: list[StudyPoint]) -> None:
    sizes = [point.config.values[STRONG] for point in points]
    if any(sizes) and not all(sizes):
        raise SettingError(STRONG, "some points of the study have none: scaling is weak or strong")


def _repeating(grids: list[list[Override]]) -> list[str]:
    return [
        axis.get_key_element()
        for axes in grids
        for axis in axes
        if axis.is_sweep_override() and max(Counter(axis.sweep_string_iterator()).values()) > 1
    ]
