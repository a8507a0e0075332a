"""Expands a study into its points (training runs), and composes the settings of each point.

This happens before any point runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from paceline.errors import SettingError, did_you_mean
from paceline.record.point_config import PointConfig
from paceline.record.result import Result
from paceline.study.compose import Composed, composer, copied, hydra_errors, jobs_of, parsed
from paceline.study.search import GridSearch
from paceline.study.study_point import StudyPoint
from paceline.study.tuning import (
    Configuration,
    needs_tuning,
    put_best,
    read_table,
    read_tuning,
)

STRONG = "global_batch_size"  # axis of a study of strong scaling: workers share the images
Grids = Sequence[Sequence[Override]]


class Study:
    """The points that a study now consists of, with the content of their records.

    `name`: name of the study's file in experiments/; None if the points follow from `overrides`
    alone (settings as on the command line). `root`: folder that has conf/, experiments/ and runs/.
    `params`: axes (settings and their values) that replace the sweeper's in the file. `grids`: the
    points of each grid, by default of the file. `archived`: see StudyPoint. Raises SettingError for
    an unknown study, for invalid settings, and for two equal points. Takes about 15 ms for each
    point.
    """

    def __init__(
        self,
        name: str | None,
        root: Path,
        overrides: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
        archived: Mapping[str, Result] | None = None,
        grids: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.root, self.archived = root.absolute(), dict(archived or {})
        self._tunings = dict[str, GridSearch]()  # by the text of their settings
        self._configurations = dict[str, Configuration]()  # by key
        self._known = dict[str, Configuration]()  # by the axes that its points have in common
        file = [] if name is None else [f"experiments={name}"]
        if name is not None:
            require_study(name, root)
        with hydra_errors("study"), composer(root) as compose:
            places = [each for each in overrides if each.startswith("hydra.searchpath=")]
            base = compose.with_hydra([*places, *file])
            if grids is not None:
                base.grids = grids
            axes_of_each = axes_of_grids(base, file, overrides, params)
            names = _swept(axes_of_each)
            self.grids = [
                [self._point(compose(job), names, job) for job in jobs_of(axes)]
                for axes in axes_of_each
            ]
        for setting in (STRONG, "tuning"):
            given = [point.config.values[setting] is not None for point in self.points]
            if any(given) and not all(given):
                message = "some points of the study have none; all points need one, or none does"
                raise SettingError(setting, message)
        self.put_rates()
        named = {point.config.study for point in self.points} - {name}
        if named and file and not any(each.lstrip("+").startswith("study=") for each in overrides):
            # records of its points would be among those of another study
            message = f"{min(named)}, but the file is experiments/{name}.yaml"
            raise SettingError("study", message)
        _require_distinct(self.points)

    @property
    def points(self) -> list[StudyPoint]:
        return [point for grid in self.grids for point in grid]

    def keys(self) -> set[str]:
        return {point.key for point in self.points}

    @property
    def tunings(self) -> list[GridSearch]:
        """The different tunings (hyperparameter searches) of the study's points.

        Raises SettingError if a trial has the same seed as a point of the study.
        """
        seeds = {point.config.seed for point in self.points}
        for tuning in self._tunings.values():
            tuning.require_other_seeds(seeds)
        return list(self._tunings.values())

    @cached_property
    def _table(self) -> list[dict[str, str]]:
        return read_table(self.root / "reports" / self.points[0].config.study)

    @property
    def configurations(self) -> list[Configuration]:
        """The configurations whose hyperparameters are searched, once each; [] without a tuning."""
        if not self.tunings:
            return []
        found = {each.key: each for each in map(self._configuration, self.points)}
        return list(found.values())

    @property
    def trials(self) -> list[StudyPoint]:
        """The points of all trials that are known so far."""
        return [point for each in self.configurations for point in each.points.values()]

    @property
    def trials_of_points(self) -> list[StudyPoint]:
        """The points of all known trials of tuned points."""
        tuned = {self._configuration(point) for point in self.points if point.config.is_tuned}
        found = [each for each in self.configurations if each in tuned]
        return [point for each in found for point in each.points.values()]

    def refresh(self) -> None:
        """Read all records again, and set the learning rates of tuned points that are now known."""
        for configuration in self._configurations.values():
            configuration.refresh()
        for point in self.points:
            point.refresh()
        self.put_rates()

    def put_rates(self) -> None:
        """Set the learning rates of tuned points whose trials all have records."""
        self.grids = [[self._with_rate(point) for point in grid] for grid in self.grids]

    def _point(self, composed: Composed, names: Sequence[str], job: Sequence[str]) -> StudyPoint:
        cfg, choices = composed
        axes = {n: choices[n] if n in choices else OmegaConf.select(cfg, n) for n in names}
        if cfg[STRONG]:  # configurations are compared by it
            axes[STRONG] = cfg[STRONG]
        tuning = None if cfg.tuning is None else self._tuning(cfg.tuning)
        if is_tuned := needs_tuning(cfg):
            assert tuning is not None  # else it raises SettingError
            put_best(cfg, tuning, None)
        config, has_rate = PointConfig.of(cfg), not is_tuned
        return StudyPoint(config, cfg, axes, tuple(job), self.root, tuning, has_rate, self.archived)

    def _with_rate(self, point: StudyPoint) -> StudyPoint:
        """Return the point. If it is tuned and its best trial is known, it has the trial's rate."""
        best = self._configuration(point).tried.best if point.config.is_tuned else None
        settings = best.settings if best else {}
        if all(OmegaConf.select(point.cfg, name) == value for name, value in settings.items()):
            return point
        cfg = copied(point.cfg)
        assert point.tuning is not None  # since it is tuned
        put_best(cfg, point.tuning, best)
        return replace(point, config=PointConfig.of(cfg), cfg=cfg, has_rate=True)

    def _configuration(self, point: StudyPoint) -> Configuration:
        made = Configuration(point, self._table)
        common = repr(made.axes)
        if common not in self._known:
            self._known[common] = self._configurations.setdefault(made.key, made)
        return self._known[common]

    def _tuning(self, setting: Any) -> GridSearch:
        """Read the setting `tuning` of a point; return the same object for equal settings."""
        if OmegaConf.is_config(setting):  # whose values may follow other settings
            setting = OmegaConf.to_container(setting, resolve=True)
        if str(setting) not in self._tunings:
            self._tunings[str(setting)] = read_tuning(setting)
        return self._tunings[str(setting)]


def study_points(study: str, root: Path, overrides: Sequence[str] = ()) -> list[StudyPoint]:
    """Return the points that `experiments/<study>.yaml` now names, in its order; see `Study`."""
    return Study(study, root, overrides).points


def studies(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "experiments").glob("*.yaml"))


def require_study(study: str, root: Path) -> None:
    """Raise SettingError for a study that is not in experiments/."""
    names = studies(root)
    if study not in names:
        known = ", ".join(names) or f"none in {root / 'experiments'}"
        message = f"there is no {study}{did_you_mean(study, names)}; there are: {known}"
        raise SettingError("study", message)


def axes_of_grids(
    base: DictConfig,
    file: Sequence[str] = (),
    overrides: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
) -> list[list[Override]]:
    """Return the axes (settings with one or several values) of each grid of a study.

    `base`: the composed configuration of the study, with Hydra's own settings. `file`: the override
    that chooses the study's file. `overrides`: settings that replace all others.
    `params`: axes that all grids have; by default, the parameters of Hydra's sweeper. A study that
    declares no grids has a single grid, which has only these axes.
    """
    axes = _texts(params or base.hydra.sweeper.params or {})
    grids = base.grids
    plain = OmegaConf.to_container(grids, resolve=False) if OmegaConf.is_list(grids) else grids
    found = [[]] if plain is None else _flat(plain)
    return [parsed([*axes, *file, *grid, *overrides]) for grid in found]


def _flat(grids: Any) -> Iterator[list[str]]:
    """Yield the settings of each grid as overrides, with grids that are inside of grids expanded.

    The settings of a grid are nested loops; the first setting is the outermost loop. A grid may
    contain `grids`: the settings before `grids` are loops around these inner grids, the settings
    after it are innermost loops in each inner grid.
    """
    if not isinstance(grids, list) or not all(isinstance(grid, Mapping) for grid in grids):
        raise SettingError("grids", "a list of {setting: values} is needed")
    for grid in grids:
        if "grids" not in grid:
            yield _texts(grid)
            continue
        names, at = list(grid), list(grid).index("grids")
        around, inside = ({n: grid[n] for n in part} for part in (names[:at], names[at + 1 :]))
        for job in jobs_of(parsed(_texts(around))):
            yield from ([*job, *each, *_texts(inside)] for each in _flat(grid["grids"]))


def _texts(settings: Mapping[Any, Any]) -> list[str]:
    """Return settings as texts as on the command line, with interpolations in quotes."""
    return [
        f'{name}="{values}"' if str(values).startswith("${") else f"{name}={values}"
        for name, values in settings.items()
    ]


def _swept(grids: Grids) -> list[str]:
    """Return the names of the settings that vary between points.

    These are settings with several values in a grid, settings that differ between grids, and
    settings that refer to other settings.
    """
    latest = [{axis.get_key_element().lstrip("+"): axis for axis in axes} for axes in grids]
    names = dict.fromkeys(name for axes in latest for name in axes)
    return [name for name in names if _varies([axes.get(name) for axes in latest])]


def _varies(axes: Sequence[Override | None]) -> bool:
    """Return whether a setting varies between points.

    `axes`: the setting's axis in each grid, None for a grid that does not have the setting.
    """
    if any(axis is not None and axis.is_sweep_override() for axis in axes):
        return True
    texts = {axis and axis.get_value_element_as_str() for axis in axes}
    return len(texts) > 1 or any(text and "${" in text for text in texts)


def _require_distinct(points: Sequence[StudyPoint]) -> None:
    by_key: dict[str, StudyPoint] = {}
    for point in points:
        other = by_key.setdefault(point.config.key, point)
        if other is not point:
            names = [name for name in point.axes if str(point.axes[name]) != str(other.axes[name])]
            message = f"two points are the same: {other.words} and {point.words}"
            raise SettingError((names or [*point.axes, "grids"])[0], message)
