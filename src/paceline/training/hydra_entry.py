"""Hydra's side of training: one job is one point, alone or in a multirun."""

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from paceline.cluster.launch import die_with, preload
from paceline.measurement.provenance import source_digest
from paceline.training.point import plain_config, record_folder
from paceline.training.record import read_result
from paceline.training.rerun import needs_run

_SWEEP = "PACELINE_SWEEP"  # process id of the sweep, for the processes that run its points


class PointFailed(Exception):
    """A point ended as failed, or MLflow lacks it; there is a record of it all the same."""

    def __init__(self, reason: str, folder: Path) -> None:
        super().__init__(reason, folder)
        self.reason = reason
        self.folder = folder


def run_hydra(arguments: Sequence[str], root: Path) -> None:
    """Hydra's whole command line, with the configuration of `root`, the working directory.

    Raises what Hydra and the points raise, instead of ending the process.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["paceline train", *arguments]
    hydra.main(version_base="1.3", config_path=str(root / "conf"), config_name="config")(job)()


def multirun(overrides: list[str]) -> None:
    """All points of a study, through Hydra's launcher; called in the study's root."""
    os.environ[_SWEEP] = str(os.getpid())
    run_hydra(["--multirun", *overrides], Path.cwd())


def job(cfg: DictConfig) -> None:
    """Run one point, unless its record is complete, and print how it ended."""
    _end_with_sweep()
    preload()
    config = plain_config(cfg)
    multi = HydraConfig.get().mode == RunMode.MULTIRUN
    number = HydraConfig.get().job.num + 1 if multi else None
    folder = record_folder(config)
    result = read_result(folder)
    if result is not None and not needs_run(result, config["sweep"]["rerun"], source_digest()):
        print(_line(number, config, result, "already there"), flush=True)
        unlogged = None
    else:
        from paceline.training.run import run_point  # imports torch

        outcome = run_point(config, keep_bad_settings=multi)
        result, unlogged = outcome.result, outcome.unlogged
        print(_line(number, config, result, f"{result['wall_seconds']:.1f} s"), flush=True)
    if multi:
        return
    if result["status"] == "failed":
        raise PointFailed(result["reason"], folder)
    if unlogged:
        raise PointFailed(f"measurement.mlflow.tracking_uri: {unlogged}", folder)
    print(folder)


def _line(number: int | None, config: dict[str, Any], result: dict[str, Any], note: str) -> str:
    about = (
        f"{config['names']['scheme']} workers={config['workers']} "
        f"batch_size={config['batch_size']} seed={config['seed']}"
    )
    found = result["status"]
    if result["status"] != "finished":
        found += f" ({result['reason']})"
    if result["images_per_second"]:
        found += f", {result['images_per_second']:,.0f} images/s {result['kind']}"
    if result["top1"] is not None:
        found += f", top-1 {100 * result['top1']:.2f} %"
    start = f"point {number}: " if number else ""
    return f"{start}{about}: {found}, {note}"


@cache
def _end_with_sweep() -> None:
    """Points in processes of their own end when the sweep that started them is gone."""
    if os.environ.get(_SWEEP) == str(os.getppid()):
        die_with(os.getppid())
