"""View of one study in the terminal: its configurations, decisions, failures, and what is next."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

from rich.console import RenderableType
from rich.table import Table

from paceline.command.studies_view import collected_rows, running
from paceline.command.terminal import plain_table
from paceline.record.tracking.log import run_label
from paceline.report.answer import MEANINGS, tier_of
from paceline.study.collect import num_of_other_code
from paceline.study.progress import read_progress
from paceline.study.study_point import Points, StudyPoint, counts
from paceline.study.study_points import study_points

_MOST = 20  # lines on points that did not finish
_TIERS = [*MEANINGS, ""]


def study_view(study: str, root: Path) -> Iterator[RenderableType]:
    """Yield what there is of a study; records in runs/ count, else those that were collected."""
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
    bad = [point for point in points if point.status in ("diverged", "failed")]
    for point in bad[:_MOST]:
        assert point.result is not None
        name = run_label(point.config.values, list(point.axes))
        yield f"{point.status} {point.key}: {name}: {point.result['reason']}"
    if len(bad) > _MOST:
        yield f"and {len(bad) - _MOST} more"
    complete = all(point.result for point in points)
    yield f"next: {next_command(study, root, complete=complete)}"


def next_command(study: str, root: Path, *, complete: bool) -> str:
    """Return the command that comes next for a study. `complete`: every point has a record."""
    if not complete:
        return f"paceline sweep {study}"
    page, records = root / "reports" / study / "index.html", (root / "runs" / study)
    times = [path.stat().st_mtime for path in records.glob("[!.]*/result.json")]
    if not page.is_file() or max(times, default=0.0) > page.stat().st_mtime:
        return f"paceline report {study}"
    return f"paceline show {study} --open"


def _put_collected(points: Points, rows: list[Mapping[str, str]]) -> None:
    """Give points the results that a table has of them."""
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
    grouped: dict[tuple[str, ...], list[StudyPoint]] = {}
    for point in points:
        grouped.setdefault(tuple(str(point.axes[name]) for name in names), []).append(point)
    headings = [*names, ">done", "status", ">top-1, test"]
    return plain_table(headings, [[*axes, *_state(of, shares)] for axes, of in grouped.items()])


def _state(points: Points, shares: Mapping[str, float]) -> list[str]:
    states = [point.status for point in points]
    words = [f"{states.count(each)} {each}" for each in ("diverged", "failed") if each in states]
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
    """Return a table with a row for each scheme, best first in each situation; None without one.

    `path`: tables/decision.csv of a report.
    """
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), list(reader.fieldnames or ())
    if not rows:
        return None
    of_situation = columns[: columns.index("scheme")]  # what is chosen comes after them
    names = [n for n in columns[: columns.index("n")] if len({row[n] for row in rows}) > 1]
    situation = [name for name in names if name in of_situation]
    scheme = [name for name in names if name not in situation] or ["scheme"]
    side = "one_worker_" if any(row.get("one_worker_top1_difference_mean") for row in rows) else ""
    points = f">points to {'one worker' if side else 'the reference'}"
    headings = [*situation, *scheme, "tier", ">reached", ">speed-up", points, "accuracy"]
    rows.sort(key=lambda row: _TIERS.index(tier_of(row)))
    rows.sort(key=lambda row: [_order(row[name]) for name in situation])
    lines, before = list[list[str]](), None
    for row in rows:
        key = [row[name] for name in situation]
        shown = [""] * len(key) if key == before else key  # the first line of a situation names it
        lines.append([*shown, *(row[name] for name in scheme), *_cells(row, side)])
        before = key
    return plain_table(headings, lines)


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def _cells(row: Mapping[str, str], side: str) -> list[str]:
    return [
        tier_of(row),
        f"{row['n_reached']} of {row['n']}" if row["n_reached"] else "",
        _interval(row, "speedup", 1, "{:.2f}"),
        _interval(row, f"{side}top1_difference", 100, "{:+.2f}"),
        row[f"{side}accuracy"],
    ]


def _interval(row: Mapping[str, str], name: str, factor: int, form: str) -> str:
    numbers = [row[f"{name}_{part}"] for part in ("mean", "low", "high")]
    if not numbers[0]:
        return ""
    middle, *ends = [form.format(factor * float(each)) if each else "?" for each in numbers]
    return middle if "?" in ends else f"{middle} ({ends[0]} to {ends[1]})"
