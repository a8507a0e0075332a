"""Launcher for Hydra that runs several points (training runs) at a time, in processes.

If one of these processes is killed, only the point that it was running fails; with joblib's
launcher, the whole multirun would end. With `jobs` 1, points run in the calling process.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class PointLauncher(Launcher):
    """Hydra's launcher for points. `jobs`: number of points that run at a time, or "auto"."""

    def __init__(self, jobs: int | str) -> None:
        super().__init__()
        self._jobs = jobs

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        setup_globals()
        Path(str(self._config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        jobs = [self._job(n, each) for n, each in enumerate(job_overrides, initial_job_idx)]
        at_a_time = self._jobs
        if isinstance(at_a_time, str):  # of another sweeper than Paceline's, which gives a number
            from paceline.record.point_config import jobs_for

            at_a_time = jobs_for(jobs[0].cluster)
        if at_a_time == 1:
            return [self._run(job) for job in jobs]
        from paceline.study.point_processes import Killed, run_points

        ended = run_points(partial(_run_alone, self._task), jobs, at_a_time)
        for job, end in zip(jobs, ended, strict=True):
            if isinstance(end, Killed):
                message = f"point {job.hydra.job.num + 1}: its process was {end.how}"
                print(f"paceline: {message}", file=sys.stderr, flush=True)
        if any(isinstance(end, Killed) for end in ended):
            sys.exit(1)
        return [_returned(job, end) for job, end in zip(jobs, ended, strict=True)]

    def _job(self, number: int, overrides: Sequence[str]) -> DictConfig:
        job = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(job):
            job.hydra.job.id = job.hydra.job.num = number
        return job

    def _run(self, job: DictConfig) -> JobReturn:
        return run_job(
            hydra_context=self._context,
            task_function=self._task,
            config=job,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )


def _run_alone(task: TaskFunction, job: DictConfig) -> Any:
    """Run a job in a new process."""
    setup_globals()
    HydraConfig.instance().set_config(job)
    with open_dict(job):
        del job["hydra"]
    return task(job)


def _returned(job: DictConfig, value: object) -> JobReturn:
    """Return the result of a job that another process ran, in the form that sweepers expect."""
    returned = JobReturn(overrides=list(job.hydra.overrides.task), hydra_cfg=job)
    returned.return_value, returned.status = value, JobStatus.COMPLETED
    return returned
