"""Copy of a record on disk in MLflow, made at the end of a run or after an outage."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

import yaml

from paceline.measurement.numbers import NUMBERS
from paceline.record.tracking.mlflow_log import LogError, PointLog, Row, flat_params, run_exists
from paceline.record.tracking.run_label import run_label
from paceline.record.tracking.study_run import study_run

MARKER = "mlflow.json"  # file in a record's folder, with a Marker
_TAGS = ("study", "key", "scheme", "workers", "kind", "status", "commit")
_FILES = ("config.yaml", "result.json", "curve.csv")
_OF_THE_RUN = ("wall_seconds", "launch_seconds")  # what the system took, as bytes are
_PLACES = ("root", "placement", "partition", "shuffle_every", "copies", "feed", "store")
_STATUS = {"finished": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


class Marker(TypedDict):
    """The run in MLflow that belongs to a record.

    `complete`: True if all of the record is there. `live_rows`: number of rows logged while the
    point was running.
    """

    run_id: str
    tracking_uri: str
    complete: bool
    live_rows: int


def log_record(folder: Path, tracking_uri: str, experiment: str) -> bool:
    """Log the complete record in `folder` unless MLflow has it; continue a run begun live.

    Returns False if there was nothing to do. Raises LogError, after which it can be called again.
    """
    marker = _known_marker(folder, tracking_uri)
    if marker is not None and marker["complete"]:
        return False
    result = json.loads((folder / "result.json").read_text())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    name, about = run_about(config, folder, tracking_uri)
    tags = about | {name: str(result[name]) for name in _TAGS}
    num_logged = marker["live_rows"] if marker else 0
    if marker is not None:
        log = PointLog(tracking_uri, marker["run_id"])
    else:
        started = datetime.fromisoformat(result["started"]).timestamp()
        log = PointLog.begin(tracking_uri, experiment, name, tags, started)
    write_marker(folder, tracking_uri, log.run_id, live_rows=num_logged)
    log.describe(flat_params(config), tags)
    log.log(live_rows(folder, num_logged))
    log.log([*_grouped("curve", _table(folder / "curve.csv")), _final(result)])
    log.describe_data(config["names"]["data"], _of_data(config))
    log.add_files(folder / name for name in _FILES)
    log.finish(_STATUS[result["status"]], result["wall_seconds"])
    write_marker(folder, tracking_uri, log.run_id, complete=True)
    return True


def end_lost_run(folder: Path, tracking_uri: str) -> None:
    """Mark as killed the run that the partial record in `folder` began live. Raises LogError."""
    marker = _known_marker(folder, tracking_uri)
    if marker is not None:
        PointLog(tracking_uri, marker["run_id"]).finish("KILLED", None)


def run_about(
    config: Mapping[str, Any], folder: Path, tracking_uri: str
) -> tuple[str, dict[str, str]]:
    """Return the name of a point's run, and the tags that its settings and its study decide.

    `folder`: its record, partial or not.
    """
    parent = study_run(folder.parent, tracking_uri)
    name = run_label(config, parent["axes"]) if parent else run_label(config)
    tags = {"tuning": "true" if config.get("trial") else "false"}
    return name, tags | ({"mlflow.parentRunId": parent["run_id"]} if parent else {})


def live_rows(folder: Path, first: int) -> list[Row]:
    """Return the present rows of `progress.csv` from row `first` on; metrics become `live/...`."""
    return list(_grouped("live", _table(folder / "progress.csv", first)))


def _grouped(group: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows whose metrics, seconds included, are `group/...`."""
    for row in rows:
        metrics = {f"{group}/{name}": row[name] for name in row if name != "samples"}
        yield {"samples": row["samples"], "seconds": row["seconds"], **metrics}


def write_marker(
    folder: Path, tracking_uri: str, run_id: str, *, complete: bool = False, live_rows: int = 0
) -> None:
    """Note in `folder` the run that belongs to its record. Raises LogError."""
    marker = Marker(
        run_id=run_id, tracking_uri=tracking_uri, complete=complete, live_rows=live_rows
    )
    text = json.dumps(marker, indent=1) + "\n"
    written = folder / f"{MARKER}.partial"
    try:
        written.write_text(text)
        written.replace(folder / MARKER)  # which others may be reading
    except OSError as error:
        raise LogError(f"cannot write {folder / MARKER}: {error.strerror}") from error


def _known_marker(folder: Path, tracking_uri: str) -> Marker | None:
    """Return the marker of a run that `tracking_uri` has, else None. Raises LogError."""
    path = folder / MARKER
    marker: Marker | None = json.loads(path.read_text()) if path.exists() else None
    if marker is None or marker["tracking_uri"] != tracking_uri:
        return None
    return marker if run_exists(tracking_uri, marker["run_id"]) else None


def _final(result: Mapping[str, Any]) -> Row:
    """Return the numbers of `result.json` as a row: `system/...` and `final/...`."""
    units: dict[str, str] = dict.fromkeys(_OF_THE_RUN, "bytes")
    units |= {number.name: number.unit for number in NUMBERS}
    numbers = {
        f"{'system' if unit == 'bytes' else 'final'}/{name}": result[name]
        for name, unit in units.items()
        if isinstance(result.get(name), int | float)
    }
    return {"samples": 0, "seconds": 0.0} | numbers


def _of_data(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the samples of the data set, and not where they are."""
    return {name: value for name, value in config["data"].items() if name not in _PLACES}


def _table(path: Path, first: int = 0) -> Iterator[Row]:
    """Yield the complete rows of a CSV file from row `first` on; none if there is no file."""
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # a worker may be in the middle of a line
    for row in csv.DictReader([*lines[:1], *lines[1 + first :]]):
        yield {name: float(cell) if cell else None for name, cell in row.items()}
