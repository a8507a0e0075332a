"""From a record on disk to MLflow: at the end of a run, or later, after an outage."""

import csv
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from paceline.tracking.mlflow_log import LogError, PointLog, flat_params, run_exists

_MARKER = "mlflow.json"  # in a record's folder: which run it is, and whether all of it is there
_TAGS = ("study", "key", "scheme", "workers", "kind", "status", "commit")
_STATUS = {"finished": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


def log_record(folder: Path, tracking_uri: str, experiment: str) -> bool:
    """Log the complete record in `folder` unless MLflow has it; goes on with a run begun live.

    Returns whether there was anything to do. Raises LogError, after which it can be called again.
    """
    marker = read_marker(folder, tracking_uri)
    known = bool(marker) and run_exists(tracking_uri, marker["run_id"])
    if known and marker["complete"]:
        return False
    result = json.loads((folder / "result.json").read_text())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    tags = {name: str(result[name]) for name in _TAGS}
    num_logged = marker["live_rows"] if known else 0
    if known:
        log = PointLog(tracking_uri, marker["run_id"])
    else:
        started = datetime.fromisoformat(result["started"]).timestamp()
        log = PointLog.begin(tracking_uri, experiment, run_name(config), tags, started)
    write_marker(folder, tracking_uri, log.run_id, live_rows=num_logged)
    log.describe(flat_params(config), tags)
    log.log(live_rows(folder, num_logged))
    log.log([*_table(folder / "curve.csv"), _final(result)])
    log.finish(_STATUS[result["status"]], result["wall_seconds"])
    write_marker(folder, tracking_uri, log.run_id, complete=True)
    return True


def end_lost_run(folder: Path, tracking_uri: str) -> None:
    """Mark as killed what the partial record in `folder` had begun live. Raises LogError."""
    marker = read_marker(folder, tracking_uri)
    if marker and run_exists(tracking_uri, marker["run_id"]):
        PointLog(tracking_uri, marker["run_id"]).finish("KILLED", None)


def run_name(config: Mapping[str, Any]) -> str:
    scheme, size = config["names"]["scheme"], f"{config['workers']}x{config['batch_size']}"
    return f"{scheme} {size} seed {config['seed']}"


def live_rows(folder: Path, first: int) -> list[dict[str, float | None]]:
    """What `progress.csv` has so far, from row `first` on; metrics are named `live/...`."""
    return [
        {name if name in ("samples", "seconds") else f"live/{name}": row[name] for name in row}
        for row in _table(folder / "progress.csv", first)
    ]


def read_marker(folder: Path, tracking_uri: str) -> dict[str, Any]:
    """Empty where this record was never logged to `tracking_uri`."""
    path = folder / _MARKER
    marker = json.loads(path.read_text()) if path.exists() else {}
    return marker if marker.get("tracking_uri") == tracking_uri else {}


def write_marker(
    folder: Path, tracking_uri: str, run_id: str, *, complete: bool = False, live_rows: int = 0
) -> None:
    marker = {
        "run_id": run_id,
        "tracking_uri": tracking_uri,
        "complete": complete,
        "live_rows": live_rows,
    }
    text = json.dumps(marker, indent=1) + "\n"
    try:
        (folder / _MARKER).write_text(text)
    except OSError as error:
        raise LogError(f"cannot write {folder / _MARKER}: {error.strerror}") from error


def _final(result: Mapping[str, Any]) -> dict[str, Any]:
    """Every number of `result.json`, at the end of the run."""
    numbers = {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {"samples": 0, "seconds": 0.0} | numbers


def _table(path: Path, first: int = 0) -> Iterator[dict[str, float | None]]:
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # a worker may be in the middle of a line
    for row in csv.DictReader([*lines[:1], *lines[1 + first :]]):
        yield {name: float(cell) if cell else None for name, cell in row.items()}
