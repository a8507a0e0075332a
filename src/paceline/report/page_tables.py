"""Tables of a page: text cells made once, for HTML and Markdown alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from paceline.analysis.tables import Frame
from paceline.report.findings import Findings, groups
from paceline.report.number_format import (
    count,
    decimals,
    percent,
    percent_points,
    seconds,
    setting,
    shown,
    with_interval,
)

_SOURCES = ("hardware.", "versions.")


@dataclass(frozen=True)
class Table:
    """`source`: the CSV that it shows. `rows`: text, a cell per column."""

    name: str
    caption: str
    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def page_tables(findings: Findings) -> list[Table]:
    """Those of results; a table without rows keeps its caption."""
    made = (summary, scaling, comparison, time_to_target, losses)
    return [make(findings) for make in made]


def summary(findings: Findings) -> Table:
    cells = {
        "images/s": _spread("images_per_second", count),
        "top-1, test": _spread("test_top1", percent),
        "top-1, validation": _spread("top1", percent),
        "finished / diverged / failed": lambda row: " / ".join(
            f"{row[f'n_{status}']:.0f}" for status in ("finished", "diverged", "failed")
        ),
    }
    caption = "Means over finished seeds with 95 % t-intervals; diverged and failed are counted."
    return _table(findings, "Summary", caption, "summary.csv", findings.summary, cells)


def losses(findings: Findings) -> Table:
    cells = {
        "validation loss": _spread("validation_loss", lambda value: f"{value:.3f}"),
        "seconds": _spread("seconds", seconds),
        "staleness": _spread("staleness_mean", decimals),
    }
    caption = "Means over finished seeds with 95 % t-intervals, at the end of the budget."
    return _table(
        findings, "Loss, time, staleness", caption, "summary.csv", findings.summary, cells
    )


def scaling(findings: Findings) -> Table:
    cells = {
        "baseline": lambda row: str(row["baseline"]),
        "speed-up": _spread("speedup", decimals),
        "efficiency": _spread("efficiency", percent),
    }
    caption = f"Against one worker, paired by seed. {scaling_kind(findings)}"
    return _table(findings, "Scaling", caption, "scaling.csv", findings.scaling, cells)


def scaling_kind(findings: Findings) -> str:
    batch = "Weak scaling in batch: images per worker constant"
    samples = findings.tables.finished["samples"].dropna()
    if samples.empty or samples.max() <= 1.01 * samples.min():  # the last global batch is whole
        return f"{batch}, samples in total constant."
    return f"{batch}; samples in total from {count(samples.min())} to {count(samples.max())}."


def comparison(findings: Findings) -> Table:
    cells = {
        "against": lambda row: str(row["reference"]),
        "images/s, ratio": _spread("speed_ratio", decimals),
        "top-1 on test, points": _spread("test_top1_difference", percent_points),
        "top-1 on validation, points": _spread("top1_difference", percent_points),
    }
    caption = "Scheme against scheme at the same workers and settings, paired by seed."
    return _table(findings, "Comparison", caption, "comparison.csv", findings.comparison, cells)


def time_to_target(findings: Findings) -> Table:
    table = findings.time_to_target
    cells = {
        "target": lambda row: percent(row["target"]),
        "reached": _reached,
        "seconds, mean": _spread("seconds", seconds),
        "seconds, median": lambda row: shown(row["seconds_median"], seconds),
        "samples, mean": _spread("samples", count),
        "samples, median": lambda row: shown(row["samples_median"], count),
    }
    how = (
        "First evaluation at or above the target, two points of validation top-1 below the best "
        "mean of one worker"
    )
    best = "; ".join(dict.fromkeys(table["set_by"])) if len(table) else ""
    rule = (
        f"{how} ({best}). A run that ended before is counted as not reached (right-censored): "
        "then there is no mean, and the median takes it as later than all that got there."
    )
    caption = rule if best else "No target: no finished point with one worker."
    return _table(findings, "Time to target", caption, "time_to_target.csv", table, cells)


def all_points(findings: Findings) -> Table:
    runs = findings.tables.runs
    cells = {
        "seed": lambda row: setting(row["seed"]),
        "status": lambda row: (
            f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
        ),
        "images/s": _cell("images_per_second", count),
        "top-1, test": _cell("test_top1", lambda value: f"{100 * value:.2f} %"),
        "top-1, validation": _cell("top1", lambda value: f"{100 * value:.2f} %"),
        "seconds": _cell("seconds", seconds),
        "staleness": _cell("staleness_mean", decimals),
        "key": lambda row: str(row["key"]),
    }
    return _table(findings, "All points", "One row per point, as run.", "runs.csv", runs, cells)


def sources(findings: Findings) -> Table:
    """Hardware, versions, commit: what all points share, or how many points have which."""
    runs = findings.tables.runs
    names = [name for name in runs if name.startswith(_SOURCES)]
    names += [name for name in ("data", "model", "cluster", "commit", "source_digest", "jobs")]
    rows = [(name, _values(runs[name])) for name in names if name in runs]
    return Table("Made with", "Hardware, versions, code.", "runs.csv", ("what", "value"), rows)


def evaluated(findings: Findings) -> Table:
    """What was evaluated, and what each scheme was seen to be."""
    finished = findings.tables.finished
    names = [name for name in ("scheme", "evaluated", "certificate") if name in finished]
    found = groups(finished, names) if len(finished) else []
    rows = [[*map(setting, where.values()), str(len(points))] for where, points in found]
    caption = "Which weights were evaluated, and what the run was seen to be."
    return Table("What was evaluated", caption, "runs.csv", (*names, "points"), rows)


def _table(
    findings: Findings,
    name: str,
    caption: str,
    source: str,
    table: Frame,
    cells: dict[str, Callable[[Any], str]],
) -> Table:
    axes = ["scheme", "workers", *findings.varying]
    columns = [*axes, *cells, "kind"]
    rows = [
        [*(setting(row[axis]) for axis in axes), *(c(row) for c in cells.values()), row["kind"]]
        for _, row in table.iterrows()
    ]
    return Table(name, caption, source, columns, rows)


def _spread(name: str, form: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda row: with_interval(row, name, form)


def _reached(row: Any) -> str:
    late = f", {row['n_censored']:.0f} censored" if row["n_censored"] else ""
    return f"{row['n_reached']:.0f} of {row['n_reached'] + row['n_censored']:.0f}{late}"


def _cell(name: str, form: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda row: shown(row.get(name), form)


def _gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def _values(column: pd.Series) -> str:
    form = _gibibytes if str(column.name).endswith("_bytes") else setting
    counts = column.map(form).replace("[]", "none").value_counts(sort=False)
    if len(counts) == 1:
        return str(counts.index[0])
    return "; ".join(f"{value} ({n} points)" for value, n in counts.items())
