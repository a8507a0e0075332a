"""Show all studies, STUDY, one of them, or KEY, a record; --open shows the page in the browser.

A study that is complete is shown by its tables in reports/, which takes a tenth of the time that
it takes to compose the settings of its points.
"""

import argparse
import csv
import time
import webbrowser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from rich.console import RenderableType

from paceline.command.terminal import plain_table, show
from paceline.errors import SettingError, first_line, tell
from paceline.grouped import grouped
from paceline.record.foreign_file import read_values
from paceline.record.reading import read_alone, record_version
from paceline.record.record import is_under_way, partial_records, records_in
from paceline.record.report_files import damaged, read_about
from paceline.record.result import Result
from paceline.study.collect import num_of_other_code
from paceline.study.compose import Composer, composer, hydra_errors, jobs_of
from paceline.study.progress import read_progress
from paceline.study.study_points import axes_of_grids, require_study, studies
from paceline.study.sweep import checked_study

METRICS = "metrics.json"  # of a report
Row = Mapping[str, Any]  # result of a record, or a row of runs.csv
_HEADINGS = ["study", ">points", "state", ">other code", ">newest", "answer"]
_UNITS = {"days": 86400, "hours": 3600, "minutes": 60}
_MOST = 20  # lines on points that did not finish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    a = "a file in experiments/, a folder in reports/, or the key of a record"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=a)
    parser.add_argument("key", metavar="KEY", nargs="?", help="the key of a record of STUDY")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace, root: Path) -> int:
    study, key = options.study, options.key
    if options.open:
        return _open(study, root)
    if study is None:
        show(studies_view(root))
    elif key is None and study in known_studies(root):
        show(study_view(study, root))
    else:
        from paceline.command.record_view import find_record, record_view  # pandas takes a second

        show(record_view(find_record(study if key else "*", key or study, root), root))
    return 0


def _open(study: str | None, root: Path) -> int:
    """Open the page of a study, or the front page, in the browser, and print its path.

    Returns the exit code: 1 if the page does not exist yet.
    """
    if study is not None and not (root / "reports" / study).is_dir():
        require_study(study, root)
    page = root / "reports" / (f"{study}/index.html" if study else "README.md")
    if not page.is_file():
        made = study is None or (page.parent / "runs.csv").is_file()
        first = f"report {study or ''}" if made else f"sweep {study}"
        tell(f"no {page.relative_to(root)}; run paceline {first.strip()} first")
        return 1
    webbrowser.open(page.as_uri())
    print(page.relative_to(root))
    return 0


def known_studies(root: Path) -> list[str]:
    """Return the names of the studies that have a file in experiments/, or tables in reports/."""
    collected = (path.parent.name for path in root.glob("reports/*/study.json"))
    return sorted({*studies(root), *collected})


def studies_view(root: Path) -> Iterator[RenderableType]:
    """Yield a table with a row for each study; a damaged file is named in the row of its study."""
    with composer(root) as compose:
        rows = [_row(study, root, compose) for study in known_studies(root)]
    yield plain_table(_HEADINGS, rows)
    yield "paceline show STUDY tells more of one"


def _row(study: str, root: Path, compose: Composer) -> list[str]:
    try:
        if collected := _collected(study, root):
            records, num_points = collected.rows, collected.num_points
        else:
            with hydra_errors("study"):
                records, num_points = _counted(study, root, compose)
    except SettingError as error:
        return [study, "", error.message, "", "", ""]
    page = root / "reports" / study / METRICS
    began = [datetime.fromisoformat(each["started"]) for each in records if each.get("started")]
    if running(root, study):
        state = "running"
    elif len(records) < num_points:
        state = "not complete" if records else "not run"
    else:
        state = "reported" if page.is_file() else "run"
    return [
        study,
        f"{min(len(records), num_points)} of {num_points}",
        state,
        str(num_of_other_code(records) or ""),
        age_of(time.time() - max(began).timestamp()) if began else "",
        _answer(page),
    ]


def _counted(study: str, root: Path, compose: Composer) -> tuple[Sequence[Row], int]:
    """Return the records of a study, and the number of its points, whose settings are not composed.

    Trials of its hyperparameter search have other seeds than its points, and are left out.
    """
    base = compose.with_hydra([f"experiments={study}"])
    jobs = [job for axes in axes_of_grids(base) for job in jobs_of(axes)]
    words = {word[5:] for job in jobs for word in job if word.startswith("seed=")}
    seeds = {*map(int, words or {base.seed}), None}
    results = _results(study, root).values()
    return [result for result in results if result and result.get("seed") in seeds], len(jobs)


def _answer(metrics: Path) -> str:
    """Return the answer of a study in one line, by metrics.json of its report; "" without one."""
    try:
        return str(read_values(metrics)["answer"])
    except (OSError, ValueError, LookupError):
        return ""


def age_of(seconds: float) -> str:
    """Format an age by its largest unit: `3 days`."""
    for unit, size in _UNITS.items():
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


class Shown(NamedTuple):
    """Points of a study. `rows`: their axes and, if they have a record, their results."""

    question: str | None
    axes: list[str]
    rows: Sequence[Row]
    num_points: int


def _collected(study: str, root: Path) -> Shown | None:
    """Return the points of a study by its tables, and by those of their records that are in runs/.

    Returns None if points have no record, or if the study's file, or a record of a point that the
    tables lack, is newer than the tables. A multirun has no file: its points are those of its
    tables. Raises SettingError("study") for a damaged study.json.
    That a record has the key of its settings is not checked, because that takes several times as
    long as to read its result.
    """
    folder, file = root / "reports" / study, root / "experiments" / f"{study}.yaml"
    is_multirun = not file.exists()
    if not (folder / "study.json").exists() or (running(root, study) and not is_multirun):
        return None
    about = read_about(folder, f"paceline sweep {study}")
    rows = _rows(folder / "runs.csv", study)
    known = {*rows, *_rows(folder / "tuning.csv", study)}
    others = [record for record in _records(study, root) if record.name not in known]
    written = (folder / "study.json").stat().st_mtime_ns
    if not is_multirun:
        is_new = any((record_version(record) or 0) > written for record in others)
        if is_new or file.stat().st_mtime_ns > written or len(rows) < about["num_points"]:
            return None
    results = _results(study, root)
    now = [{**row, **(results.get(key) or {})} for key, row in rows.items()]
    return Shown(about["question"], about["axes"], now, about["num_points"])


def _records(study: str, root: Path) -> list[Path]:
    return records_in(root / "runs" / study)


def _results(study: str, root: Path) -> dict[str, Result | None]:
    """Return the result of each record of a study in runs/, by key; None for a damaged one."""
    return {record.name: read_alone(record) for record in _records(study, root)}


def _rows(path: Path, study: str) -> dict[str, Row]:
    """Return the rows of a table of a study by key, as texts; {} if there is no such file.

    Raises SettingError("study") if it is damaged.
    """
    if not path.exists():
        return {}
    try:
        with path.open(newline="") as file:
            return {row["key"]: row for row in csv.DictReader(file)}
    except (csv.Error, LookupError, ValueError) as error:
        message = f"is damaged: {first_line(error)}"
        raise damaged(path, message, f"paceline sweep {study}") from error


def running(root: Path, study: str) -> dict[str, Path]:
    """Return the folders of the partial records that processes are now making, by key."""
    found = partial_records(root / "runs" / study)
    return {key: partial for key, partial in found if is_under_way(partial)}


def study_view(study: str, root: Path) -> Iterator[RenderableType]:
    """Yield the question, the configurations and the state of a study, and what comes next."""
    shown = _collected(study, root) or _composed(study, root)
    if shown.question:
        yield shown.question
    progress = {key: read_progress(path) for key, path in running(root, study).items()}
    shares = {key: now.share if now else 0.0 for key, now in progress.items()}
    names = [name for name in shown.axes if name != "seed"]
    alike = grouped(shown.rows, lambda row: tuple(str(row.get(name, "")) for name in names))
    headings = [*names, ">done", "status", ">top-1, test"]
    yield plain_table(headings, [[*axes, *_state(of, shares)] for axes, of in alike.items()])
    states = Counter(row.get("status") or "to do" for row in shown.rows)
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    yield f"{study}: {shown.num_points} points: {counts}"
    if num := num_of_other_code(shown.rows):
        yield f"made by a different version of the code: {num}; sweep.rerun=stale runs them again"
    bad = [row for row in shown.rows if row.get("status") not in ("finished", None)]
    for row in bad[:_MOST]:
        axes = " ".join(f"{name}={row[name]}" for name in shown.axes if row.get(name))
        yield f"{row['status']} {row['key']}: {axes}: {row['reason']}"
    if len(bad) > _MOST:
        yield f"and {len(bad) - _MOST} more"
    if (root / "reports" / study / "README.md").is_file():
        yield f"conclusions: reports/{study}/README.md"
    yield f"next: {next_command(study, root, complete='to do' not in states)}"


def _composed(study: str, root: Path) -> Shown:
    """Return the points that the study's file now names, with what is in runs/ and its archive."""
    points = checked_study(study, root, unpack=False, checks=False).points
    rows: list[Row] = [{**each.axes, "key": each.key, **(each.result or {})} for each in points]
    return Shown(points[0].config.question, list(points[0].axes), rows, len(points))


def next_command(study: str, root: Path, *, complete: bool) -> str:
    """Return the command that users run next for a study.

    `complete`: True if every point has a record.
    """
    if not complete:
        return f"paceline sweep {study}"
    page = root / "reports" / study / "index.html"
    versions = [record_version(record) or 0 for record in _records(study, root)]
    if not page.is_file() or max(versions, default=0) > page.stat().st_mtime_ns:
        return f"paceline report {study}"
    return f"paceline show {study} --open"


def _state(rows: Sequence[Row], shares: Mapping[str, float]) -> list[str]:
    """Return how many points of a configuration have a record, the state of those that did not
    finish, and the mean accuracy of the others. `shares`: what is done of those that run, by key.
    """
    states = Counter(row.get("status") or "to do" for row in rows)
    words = [f"{states[state]} {state}" for state in sorted({*states} - {"finished", "to do"})]
    under_way = [f"{shares[row['key']]:.0%}" for row in rows if row["key"] in shares]
    if under_way:
        words.append(f"running {', '.join(under_way)}")
    finished = [row.get("test_top1") for row in rows if row.get("status") == "finished"]
    scores = [float(score) for score in finished if score]
    best = f"{100 * mean(scores):.2f} %" if scores else ""
    return [f"{len(rows) - states['to do']} of {len(rows)}", ", ".join(words), best]
