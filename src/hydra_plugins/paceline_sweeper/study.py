"""Sweeper for Hydra that runs the points of a study by any launcher.

It expands parameters and grids into points, leaves out points that need not run, and searches
hyperparameters by the results of trials. Each point is composed only once; the
launcher gets its checked settings.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from paceline.errors import SettingError
from paceline.study import compose as compose  # functions in settings, also for other programs

if TYPE_CHECKING:
    from paceline.study.study_point import Points
    from paceline.study.study_points import Study


class StudySweeper(Sweeper):
    """Hydra's sweeper for studies. `params`: axes of the study, {setting: values}."""

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self._params, self._launched = dict(params or {}), 0

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context, self._config = hydra_context, config

    def sweep(self, arguments: list[str]) -> tuple["Study", bool]:
        """Run the points of a study, then collect their records into tables.

        If no study is chosen, its points are those that `arguments` describe. Returns the study,
        and True if no record is missing at the end (see `sweep`). Raises SettingError("study") if
        the name of such a study is that of a file in experiments/, whose tables it would replace.
        """
        from paceline.study.collect import collect
        from paceline.study.compose import hydra_errors
        from paceline.study.point_processes import processes_kept
        from paceline.study.study_points import studies
        from paceline.study.sweep import checked_study, sweep

        name = self._config.hydra.runtime.choices.get("experiments")
        places = self._config.hydra.overrides.hydra  # where files are, and how points are run
        settings = [each for each in places if each.startswith("hydra.searchpath=")]
        settings += [each for each in arguments if each != f"experiments={name}"]
        with hydra_errors("study"):
            study = checked_study(name, Path.cwd(), settings, self._params)
            own = study.points[0].config.study
            if name is None and own in studies(study.root):
                message = f"{own} is a file in experiments/; another name is needed, or"
                raise SettingError("study", f"{message} paceline sweep {own}")
            with processes_kept():
                complete = sweep(study, self._launch, _retime)
            if any(point.result for point in study.points):
                collect(study)
            return study, complete

    def _launch(self, points: "Points") -> list[Any]:
        """Run points; return their results, or None for a point whose process has died."""
        from paceline.study.hydra_entry import job_of_study

        loader, config = cast("ConfigLoader", ComposedPoints(points)), self._config
        if "jobs" in config.hydra.launcher:  # of these points, in place of auto
            config = deepcopy(config)
            config.hydra.launcher.jobs = min(point.config.sweep.jobs for point in points)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=HydraContext(loader, self._context.callbacks),
            task_function=job_of_study,
            config=config,
        )
        first, self._launched = self._launched, self._launched + len(points)
        returned = launcher.launch([point.overrides for point in points], first)
        ended = JobStatus.COMPLETED
        return [each.return_value if each.status == ended else None for each in returned]


class ComposedPoints:
    """Used in place of Hydra's configuration loader, which launchers ask for settings of jobs."""

    def __init__(self, points: "Points") -> None:
        self._values = {point.overrides: dict(point.config.values) for point in points}

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: Sequence[str]
    ) -> DictConfig:
        """Return the settings of the point with these overrides, with Hydra's own settings."""
        job = OmegaConf.create(self._values[tuple(sweep_overrides)])
        with open_dict(job):
            job.hydra = deepcopy(master_config.hydra)
        job.hydra.overrides.task = list(sweep_overrides)
        return job


def _retime(points: "Points") -> None:
    from paceline.prediction.retime import retime_points  # torch takes seconds

    retime_points(points)
