"""View of all studies in the terminal: the points, records, tables and page of each."""

import csv
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.errors import SettingError
from paceline.record.reading import read_result
from paceline.record.record import is_under_way, partial_records
from paceline.report.answer import answers
from paceline.report.findings import read_findings
from paceline.study.collect import num_of_other_code
from paceline.study.compose import Composer, composer, hydra_errors, jobs_of
from paceline.study.study_points import axes_of_grids, studies

_DAY = 86400
_HEADINGS = ["study", ">points", "state", ">other code", ">newest", "use (of its situations)"]


def studies_view(root: Path) -> Iterator[RenderableType]:
    """Yield a table with a row for each study, without composing its points.

    Records in runs/ count, else those in the tables that were collected.
    """
    with hydra_errors("study"), composer(root) as compose:
        yield plain_table(_HEADINGS, [_row(study, root, compose) for study in studies(root)])
    yield "paceline show STUDY tells more of one"


def _row(study: str, root: Path, compose: Composer) -> list[str]:
    base, report = compose.with_hydra([f"experiments={study}"]), root / "reports" / study
    jobs = [job for axes in axes_of_grids(base) for job in jobs_of(axes)]
    seeds = {word[5:] for job in jobs for word in job if word.startswith("seed=")} or {base.seed}
    records = _records(root, study, set(map(int, seeds)))
    began = [datetime.fromisoformat(each["started"]) for each in records if each.get("started")]
    if running(root, study):
        state = "running"
    elif len(records) < len(jobs):
        state = "not complete" if records else "not run"
    else:
        state = "reported" if (report / "index.html").is_file() else "run"
    return [
        study,
        f"{min(len(records), len(jobs))} of {len(jobs)}",
        state,
        str(num_of_other_code(records) or ""),
        age_of(time.time() - max(began).timestamp()) if began else "",
        _uses(report),
    ]


def _uses(report: Path) -> str:
    """Count what the page says to use: `all-reduce 3, one worker 1 (of 5)`."""
    try:
        uses = [answer.use for answer in answers(read_findings(report))]
    except SettingError:  # it is not analysed
        return ""
    named = [f"{use} {count}" for use, count in Counter(filter(None, uses)).most_common(3)]
    return f"{', '.join(named)} (of {len(uses)})" if named else ""


def age_of(seconds: float) -> str:
    """Format an age by its largest unit: `3 days`."""
    for size, unit in ((_DAY, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _records(root: Path, study: str, seeds: set[int]) -> Sequence[Mapping[str, Any]]:
    """Return the records of the study's own points in runs/, or the rows of its tables.

    `seeds`: of these points; those of its tuning are others.
    """
    found = [
        result
        for path in (root / "runs" / study).glob("[!.]*/result.json")
        if (result := read_result(path.parent)) and result.get("seed") in {*seeds, None}
    ]
    return found or collected_rows(root, study)


def collected_rows(root: Path, study: str) -> list[Mapping[str, str]]:
    """Return a row for each point of reports/<study>/: of runs.csv, or of a study of exchanges."""
    for name in ("runs.csv", "exchanges.csv"):
        path = root / "reports" / study / name
        if path.is_file():
            with path.open(newline="") as file:
                if rows := {row["key"]: row for row in csv.DictReader(file)}:
                    return list(rows.values())
    return []


def running(root: Path, study: str) -> dict[str, Path]:
    """Return the partial records of a study that a process makes, by key."""
    found = partial_records(root / "runs" / study)
    return {key: partial for key, partial in found if is_under_way(partial)}
