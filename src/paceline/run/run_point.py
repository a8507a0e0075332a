"""One configuration in, one record out."""

import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hydra.utils import instantiate

from paceline.cluster.accelerator import choose
from paceline.cluster.launcher import ProcessFailure, launch
from paceline.data.image_set import AbstractImageData
from paceline.errors import SettingError
from paceline.measurement.ending import result as result_of
from paceline.measurement.numbers import unmeasured
from paceline.measurement.observed import Observed
from paceline.measurement.rows import POINT_TABLES
from paceline.record import provenance
from paceline.record.point import (
    kind,
    num_servers,
    num_workers,
    point_key,
    record_folder,
)
from paceline.record.record import PartialRecord
from paceline.run.reports_of_dicts import reports_of
from paceline.run.settings import check
from paceline.tracking.log import log, prepare_log
from paceline.tracking.progress_follower import ProgressFollower

PROCESS = "paceline.run.process:run"


@dataclass(frozen=True)
class Outcome:
    """`folder`: the record. `unlogged`: why MLflow lacks it, or None."""

    folder: Path
    result: dict[str, Any]
    unlogged: str | None


def run_point(config: dict[str, Any], *, in_sweep: bool = False) -> Outcome:
    """Train the point and leave its record; a failure of a process is a recorded result.

    Raises SettingError where a setting cannot be honoured; then there is no record. In a sweep,
    one that is found only by the processes is recorded as failed, and an MLflow store that was
    lost on the way does not stop it.
    """
    check(config)
    if not in_sweep:
        prepare_log(config)
    prepare_data(config["data"])
    folder = record_folder(config)
    partial = PartialRecord(folder)
    try:
        partial.write_config(config)
        result = _train(config, partial, in_sweep)
        partial.complete(result)
    except BaseException:
        partial.discard()
        raise
    return Outcome(folder, result, log(folder, config))


def prepare_data(data: dict[str, Any]) -> AbstractImageData | None:
    """Find or download the data. None for anybody's DataModule: workers prepare it."""
    if not data["_target_"].startswith("paceline."):
        return None
    images = instantiate(data)
    images.prepare()
    return images


def _train(config: dict[str, Any], partial: PartialRecord, in_sweep: bool) -> dict[str, Any]:
    started = time.time()
    logs = partial.folder / "log"
    try:
        with ProgressFollower(partial.folder, point_key(config), config):
            returned = launch(
                PROCESS,
                (config, str(partial.folder)),
                workers=num_workers(config),
                servers=num_servers(config),
                log_folder=logs,
            )
    except (ProcessFailure, SettingError) as failure:
        if isinstance(failure, SettingError) and not in_sweep:
            raise
        for table in POINT_TABLES:
            partial.write_table(table.name, table.columns, [])
        failed = {"status": "failed", "reason": str(failure), **unmeasured()}
        return _about(config, started, None) | failed
    shutil.rmtree(logs, ignore_errors=True)  # of a failure they are kept
    training, servers, lost = reports_of(returned, config)
    observed = Observed(
        training,
        servers,
        lost,
        workers=config["workers"],
        batch_size=config["batch_size"],
        seed=config["seed"],
        warmup_fraction=config["measurement"]["warmup_fraction"],
    )
    for table in POINT_TABLES:
        partial.write_table(table.name, table.columns, table.rows(observed))
    return _about(config, started, observed.training_started) | result_of(observed)


def _about(
    config: dict[str, Any], started: float, training_started: float | None
) -> dict[str, Any]:
    """What is known of a point whether it succeeds or not."""
    return {
        "status": "",
        "reason": "",
        "kind": kind(config),
        "study": config["study"],
        "key": point_key(config),
        **config["names"],
        "workers": config["workers"],
        "servers": config["scheme"].get("servers", 0),
        "batch_size": config["batch_size"],
        "seed": config["seed"],
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "wall_seconds": time.time() - started,
        "launch_seconds": training_started - started if training_started else None,
        "jobs": config["sweep"]["jobs"],
        "accelerator": choose(config["cluster"]["accelerator"], num_workers(config)),
        "hardware": provenance.hardware(),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "source_digest": provenance.source_digest(),
    }
