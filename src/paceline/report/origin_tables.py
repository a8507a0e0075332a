"""Makes the tables on the origin of results: all points, tuning, hardware and code."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame
from paceline.analysis.tuning import tuning_axes
from paceline.measurement.numbers import shown_numbers
from paceline.report.findings import StudyFindings
from paceline.report.number_format import form_of, percent_of_point, setting
from paceline.report.table import Table, cell, table_of

_SOURCES = ("hardware.", "versions.")


def origin_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables below that of all points; tuning is left out if no rate was tuned."""
    tuned = [tuning] if len(findings.tables.tuning) else []
    return [make(findings) for make in (*tuned, evaluated, sources)]


def all_points(findings: StudyFindings) -> Table:
    """Show every point with its own numbers."""
    runs = findings.tables.runs
    numbers = [
        (number, shown.label)
        for number, shown in shown_numbers()
        if shown.each_point and number.name in runs  # reports of older code may lack it
    ]
    cells = {
        "seed": lambda row: setting(row["seed"]),
        "status": _status,
        **{label: cell(n.name, form_of(n.unit, each_point=True)) for n, label in numbers},
        "key": lambda row: str(row["key"]),
    }
    return table_of(findings, "All points", "One row per point, as run.", "runs.csv", runs, cells)


def _status(row: Frame) -> str:
    return f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]


def tuning(findings: StudyFindings) -> Table:
    """Show every trial of each configuration."""
    frame = findings.tables.tuning
    axes = tuning_axes(findings.tables)
    cells = {
        "training.lr": lambda row: setting(row["lr"]),
        "training.momentum": lambda row: setting(row["momentum"]),
        "top-1, validation": cell("top1", percent_of_point),
        "status": lambda row: row["status"],
        "chosen": _chosen,
    }
    rows = [
        [*(setting(row[axis]) for axis in axes), *(c(row) for c in cells.values())]
        for _, row in frame.iterrows()
    ]
    caption = (
        "Each trial of a rate and a momentum, by a run with a seed that no reported run has. When "
        "all trials of a configuration have run, its tuned points take the one with the best "
        "top-1; one that diverged or failed is worse than any other, and of equals the smaller "
        "effective rate is taken."
    )
    return Table("Tuning", caption, "tuning.csv", (*axes, *cells), rows)


def _chosen(row: Frame) -> str:
    if row["chosen"] != "true":
        return ""
    return f"yes, at an edge: {row['at_edge']}" if row.get("at_edge") else "yes"


def sources(findings: StudyFindings) -> Table:
    """Show hardware, versions and commit, with the number of points if values differ."""
    runs = findings.tables.runs
    names = [name for name in runs if name.startswith(_SOURCES)]
    names += [
        "data",
        "model",
        "cluster",
        *findings.implied_by_kind,
        "commit",
        "source_digest",
        "jobs",
    ]
    rows = [(name, _values(runs[name])) for name in dict.fromkeys(names) if name in runs]
    return Table("Made with", "Hardware, versions, code.", "runs.csv", ("what", "value"), rows)


def evaluated(findings: StudyFindings) -> Table:
    """Show the evaluated weights and the certificate of each scheme."""
    finished = findings.tables.finished
    names = [name for name in ("scheme", "evaluated", "certificate") if name in finished]
    grouped = groups(finished, names) if len(finished) else []
    rows = [[*map(setting, group.values()), str(len(points))] for group, points in grouped]
    caption = "Which weights were evaluated, and what the run was seen to be."
    return Table("What was evaluated", caption, "runs.csv", (*names, "points"), rows)


def _gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def _values(column: pd.Series) -> str:
    form = _gibibytes if str(column.name).endswith("_bytes") else setting
    counts = column.map(form).replace("[]", "none").value_counts(sort=False)
    if len(counts) == 1:
        return str(counts.index[0])
    return "; ".join(f"{value} ({n} points)" for value, n in counts.items())
