"""Overview of each study: its points, records, tables and page."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline.record.provenance import source_digest
from paceline.record.reading import read_result
from paceline.record.record import is_under_way, partial_records
from paceline.study.compose import Composer, composer, jobs_of
from paceline.study.hydra_error import hydra_errors
from paceline.study.study_points import axes_of_grids, studies


@dataclass(frozen=True)
class Overview:
    """Overview of a study. `num_done`: of its `num_points`, those with a record.

    `num_other_code`: those that were made by other code than today's. `newest`: when the latest run
    began [seconds since 1970], None without one. Records in runs/ count, else those in the tables
    that were collected.
    """

    study: str
    num_points: int
    num_done: int
    num_other_code: int
    state: str
    newest: float | None


def overviews(root: Path) -> list[Overview]:
    """Return an overview of each study of `root`, without composing its points."""
    with hydra_errors("study"), composer(root) as compose:
        return [_overview(study, root, compose) for study in studies(root)]


def collected_rows(root: Path, study: str) -> list[Mapping[str, str]]:
    """Return a row for each point of reports/<study>/: of runs.csv, or of a study of exchanges."""
    report = root / "reports" / study
    rows = _rows(report / "runs.csv") or _rows(report / "exchanges.csv")
    return list({row["key"]: row for row in rows}.values())


def next_command(study: str, root: Path, *, complete: bool) -> str:
    """Return the command that comes next for a study. `complete`: every point has a record."""
    report = root / "reports" / study
    if not complete:
        return f"paceline sweep {study}"
    if not (report / "index.html").is_file() or _newest(root, study) > _written(report):
        return f"paceline report {study}"
    return f"paceline show {study} --open"


def num_of_other_code(records: Iterable[Mapping[str, Any]]) -> int:
    """Count the records, or rows of a table of them, that were made by other code than today's."""
    digest = source_digest()
    return sum(record["source_digest"] != digest for record in records if "source_digest" in record)


def running(root: Path, study: str) -> dict[str, Path]:
    """Return the partial records of a study that a process makes, by key."""
    found = partial_records(root / "runs" / study)
    return {key: partial for key, partial in found if is_under_way(partial)}


def _overview(study: str, root: Path, compose: Composer) -> Overview:
    base = compose.with_hydra([f"experiments={study}"])
    jobs = [job for axes in axes_of_grids(base, [], []) for job in jobs_of(axes)]
    records = _records(root, study, _seeds(jobs, base.seed))
    num_done, num_other_code = len(records), num_of_other_code(records)
    report = root / "reports" / study
    if running(root, study):
        state = "running"
    elif num_done < len(jobs):
        state = "not run" if not num_done else "not complete"
    else:
        state = "reported" if (report / "index.html").is_file() else "run"
    return Overview(
        study, len(jobs), min(num_done, len(jobs)), num_other_code, state, _began(records)
    )


def _seeds(jobs: Sequence[Sequence[str]], default: int) -> set[int]:
    """Return the seeds of a study's own points: those of its tuning are others."""
    named = [word.partition("=")[2] for job in jobs for word in job if word.startswith("seed=")]
    return {int(seed) for seed in named} or {default}


def _records(root: Path, study: str, seeds: set[int]) -> Sequence[Mapping[str, Any]]:
    """Return the records of the study's own points in runs/, or the rows of its tables."""
    found = [
        result
        for path in (root / "runs" / study).glob("[!.]*/result.json")
        if (result := read_result(path.parent)) and result.get("seed") in {*seeds, None}
    ]
    return found or collected_rows(root, study)


def _began(records: Sequence[Mapping[str, Any]]) -> float | None:
    began = [datetime.fromisoformat(each["started"]) for each in records if each.get("started")]
    return max(began).timestamp() if began else None


def _newest(root: Path, study: str) -> float:
    files = (root / "runs" / study).glob("[!.]*/result.json")
    return max((path.stat().st_mtime for path in files), default=0.0)


def _written(report: Path) -> float:
    return (report / "index.html").stat().st_mtime


def _rows(path: Path) -> list[Mapping[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
