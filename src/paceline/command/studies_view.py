"""Views in the terminal: a table of all studies, and the state of one study."""

import csv
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from paceline.command.terminal import plain_table
from paceline.grouped import grouped
from paceline.record.mlflow import run_label
from paceline.record.record import is_under_way, partial_records
from paceline.record.report_files import read_about
from paceline.record.result import fault_of_result
from paceline.report.tiers import MEANINGS, tier_of
from paceline.study.collect import num_of_other_code
from paceline.study.compose import Composer, composer, hydra_errors, jobs_of
from paceline.study.progress import read_progress
from paceline.study.study_point import Points, counts
from paceline.study.study_points import axes_of_grids, studies, study_points

METRICS = "metrics.json"  # of a report
_DAY = 86400
_HEADINGS = ["study", ">points", "state", ">other code", ">newest", "use (in how many situations)"]


def studies_view(root: Path) -> Iterator[RenderableType]:
    """Yield a table with a row for each study.

    It does not compose the configuration of each point, which would be slow. If a study has no
    records in runs/, it is what its tables in reports/ say.
    """
    with hydra_errors("study"), composer(root) as compose:
        rows = [_row(study, root, compose) for study in studies(root)]
    yield plain_table(_HEADINGS, rows)
    yield "paceline show STUDY tells more of one"


def _row(study: str, root: Path, compose: Composer) -> list[str]:
    report, records = root / "reports" / study, collected_rows(root, study)
    if any((root / "runs" / study).glob("[!.]*/result.json")) or not records:
        base = compose.with_hydra([f"experiments={study}"])
        jobs = [job for axes in axes_of_grids(base) for job in jobs_of(axes)]
        words = {word[5:] for job in jobs for word in job if word.startswith("seed=")}
        records = _records(root, study, set(map(int, words or {base.seed}))) or records
        num_points = len(jobs)
    else:
        num_points = read_about(report, f"paceline sweep {study}")["num_points"]
    began = [datetime.fromisoformat(each["started"]) for each in records if each.get("started")]
    if running(root, study):
        state = "running"
    elif len(records) < num_points:
        state = "not complete" if records else "not run"
    else:
        state = "reported" if (report / METRICS).is_file() else "run"
    return [
        study,
        f"{min(len(records), num_points)} of {num_points}",
        state,
        str(num_of_other_code(records) or ""),
        age_of(time.time() - max(began).timestamp()) if began else "",
        _uses(report / METRICS),
    ]


def _uses(metrics: Path) -> str:
    """Count the situations for which a report says to use a scheme.

    For example, `all-reduce 3, one worker 1`. A situation is the combination of workers,
    links and so on under which schemes are compared. `metrics`: metrics.json of the report.
    """
    try:
        uses = json.loads(metrics.read_bytes())["use"].values()
    except (OSError, ValueError, LookupError, AttributeError):
        return ""
    named = [f"{use} {count}" for use, count in Counter(uses).most_common(3)]
    return ", ".join(named)


def age_of(seconds: float) -> str:
    """Format an age by its largest unit: `3 days`."""
    for size, unit in ((_DAY, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _records(root: Path, study: str, seeds: set[int]) -> Sequence[Mapping[str, Any]]:
    """Return the results of the study's points in runs/.

    `seeds`: seeds of the study's points. Trials of its hyperparameter search have other seeds, and
    are left out. That a record has the key of its settings is not checked, because that takes
    several times as long as to read it.
    """
    found = list[Mapping[str, Any]]()
    for path in (root / "runs" / study).glob("[!.]*/result.json"):
        with suppress(OSError, ValueError):
            result: Any = json.loads(path.read_bytes())
            if not isinstance(result, dict) or result.get("seed") not in {*seeds, None}:
                continue
            if fault_of_result(result) is None:
                found.append(result)
    return found


def collected_rows(root: Path, study: str) -> list[Mapping[str, str]]:
    """Return a row for each point in reports/<study>/runs.csv; [] without this file."""
    rows = {row["key"]: row for row in read_rows(root / "reports" / study / "runs.csv")}
    return list(rows.values())


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV, as texts; [] if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def running(root: Path, study: str) -> dict[str, Path]:
    """Return the folders of the partial records that processes are now making, by key."""
    found = partial_records(root / "runs" / study)
    return {key: partial for key, partial in found if is_under_way(partial)}


_MOST = 20  # lines on points that did not finish


def study_view(study: str, root: Path) -> Iterator[RenderableType]:
    """Yield the question, the configurations, the state and the conclusions of a study.

    If the study has no records in runs/, the rows in its tables in reports/ count as its records.
    """
    points = study_points(study, root)
    if not any(point.result for point in points):
        _put_collected(points, collected_rows(root, study))
    if question := points[0].config.question:
        yield question
    progress = {key: read_progress(path) for key, path in running(root, study).items()}
    yield _configurations(points, {key: p.share if p else 0.0 for key, p in progress.items()})
    yield f"{study}: {counts(points)}"
    if num := num_of_other_code(point.result for point in points if point.result):
        yield f"made by a different version of the code: {num}; sweep.rerun=stale runs them again"
    decided = decision_table(root / "reports" / study / "tables/decision.csv")
    if decided is not None:
        yield decided
    bad = [point for point in points if point.status not in ("finished", None)]
    for point in bad[:_MOST]:
        assert point.result is not None
        name = run_label(point.config.values, list(point.axes))
        yield f"{point.status} {point.key}: {name}: {point.result['reason']}"
    if len(bad) > _MOST:
        yield f"and {len(bad) - _MOST} more"
    complete = all(point.result for point in points)
    yield f"next: {next_command(study, root, complete=complete)}"


def next_command(study: str, root: Path, *, complete: bool) -> str:
    """Return the command that users run next for a study.

    `complete`: True if every point has a record.
    """
    if not complete:
        return f"paceline sweep {study}"
    page, records = root / "reports" / study / "index.html", (root / "runs" / study)
    times = [path.stat().st_mtime for path in records.glob("[!.]*/result.json")]
    if not page.is_file() or max(times, default=0.0) > page.stat().st_mtime:
        return f"paceline report {study}"
    return f"paceline show {study} --open"


def _put_collected(points: Points, rows: list[Mapping[str, str]]) -> None:
    """Set the results of points to their rows in a table."""
    results = [
        {**row, **{n: float(row[n]) if row.get(n) else None for n in ("top1", "test_top1")}}
        for row in rows
    ]
    by_key = {row["key"]: row for row in results}
    in_order = len(results) == len(points)  # of the study, which knows no key of a tuned point
    for n, point in enumerate(points):
        point.result = results[n] if in_order else by_key.get(point.key)


def _configurations(points: Points, shares: Mapping[str, float]) -> Table:
    names = [name for name in points[0].axes if name != "seed"]
    alike = grouped(points, lambda point: tuple(str(point.axes[name]) for name in names))
    headings = [*names, ">done", "status", ">top-1, test"]
    return plain_table(headings, [[*axes, *_state(of, shares)] for axes, of in alike.items()])


def _state(points: Points, shares: Mapping[str, float]) -> list[str]:
    states = [point.status for point in points]
    bad = sorted(filter(None, {*states} - {"finished"}))
    words = [f"{states.count(state)} {state}" for state in bad]
    under_way = [f"{shares[point.key]:.0%}" for point in points if point.key in shares]
    if under_way:
        words.append(f"running {', '.join(under_way)}")
    scores = [
        result["test_top1"]
        for point in points
        if (result := point.result) and result.get("test_top1") and point.status == "finished"
    ]
    best = f"{100 * mean(scores):.2f} %" if scores else ""
    return [f"{len(states) - states.count(None)} of {len(points)}", ", ".join(words), best]


def decision_table(path: Path) -> Table | None:
    """Return a table that compares schemes, the best first in each situation.

    A situation is the combination of workers, links and so on under which schemes are compared.
    `path`: tables/decision.csv of a report. Returns None if this file is missing or has no rows.
    """
    rows = read_rows(path)
    if not rows:
        return None
    columns, tiers = list(rows[0]), [*MEANINGS, ""]
    of_situation = columns[: columns.index("scheme")]  # what is chosen comes after them
    names = [n for n in columns[: columns.index("n")] if len({row[n] for row in rows}) > 1]
    situation = [name for name in names if name in of_situation]
    scheme = [name for name in names if name not in situation] or ["scheme"]
    side = "one_worker_" if any(row.get("one_worker_top1_difference_mean") for row in rows) else ""
    points = f">points to {'one worker' if side else 'the reference'}"
    headings = [*situation, *scheme, "tier", ">reached", ">speed-up", points, "accuracy"]
    headings += [">speed-up at best settings", ">points at best settings", "accuracy"]
    rows.sort(key=lambda row: tiers.index(tier_of(row)))
    rows.sort(key=lambda row: [_order(row[name]) for name in situation])
    lines, before = list[list[str]](), None
    for row in rows:
        key = [row[name] for name in situation]
        shown = [""] * len(key) if key == before else key  # the first line of a situation names it
        named = (row[name] for name in scheme)
        lines.append([*shown, *named, tier_of(row), *_cells(row, side)])
        before = key
    return plain_table(headings, lines)


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def _cells(row: Mapping[str, str], side: str) -> list[str]:
    return [
        f"{row['n_reached']} of {row['n']}" if row["n_reached"] else "",
        *(
            cell
            for at in ("", "best_")
            for cell in (
                _interval(row, f"{at}speedup", 1, "{:.2f}"),
                _interval(row, f"{side}{at}top1_difference", 100, "{:+.2f}"),
                row.get(f"{side}{at}accuracy", ""),
            )
        ),
    ]


def _interval(row: Mapping[str, str], name: str, factor: int, form: str) -> str:
    numbers = [row.get(f"{name}_{part}", "") for part in ("mean", "low", "high")]
    if not numbers[0]:
        return ""
    middle, *ends = [form.format(factor * float(each)) if each else "?" for each in numbers]
    return middle if "?" in ends else f"{middle} ({ends[0]} to {ends[1]})"
