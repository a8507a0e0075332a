"""Makes the tables on the origin of results: all points, tuning, hardware and code."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame
from paceline.analysis.searches import tuning_axes
from paceline.record.numbers import shown_numbers
from paceline.report.findings import StudyFindings
from paceline.report.number_format import form_of, percent_of_point, setting
from paceline.report.phrases import say
from paceline.report.table import Column, Table, axes_of, axis, table, value

_SOURCES = ("hardware.", "versions.")
_MADE_BY = ("commit", "source_digest", "jobs")


def origin_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables below that of all points; tuning is left out if no rate was tuned."""
    tuned = [tuning] if len(findings.tables.tuning) else []
    return [make(findings) for make in (*tuned, _evaluated, _sources)]


def all_points(findings: StudyFindings) -> Table:
    """Show every point with its own numbers."""
    runs = findings.tables.runs
    columns = [
        *axes_of(findings, runs),
        axis("seed"),
        Column("status", lambda row: ": ".join(filter(None, (row["status"], row["reason"])))),
        *(
            value(shown.label, number.name, form_of(number.unit, each_point=True))
            for number, shown in shown_numbers()
            if shown.each_point and number.name in runs  # an older version of the code lacks some
        ),
        value("key", "key", str),
    ]
    return table("All points", say("caption_points"), "runs.csv", columns, runs)


def tuning(findings: StudyFindings) -> Table:
    """Show every trial of each configuration."""
    frame = findings.tables.tuning
    columns = [axis(name) for name in tuning_axes(findings.tables)]
    columns += [
        value("training.lr", "lr"),
        value("training.momentum", "momentum"),
        value("top-1, validation", "top1", percent_of_point),
        value("status", "status", str),
        Column("chosen", _chosen),
    ]
    return table("Tuning", say("caption_tuning"), "tuning.csv", columns, frame)


def _chosen(row: Frame) -> str:
    if row["chosen"] != "true":
        return ""
    return f"yes, at the edge: {row['at_edge']}" if row.get("at_edge") else "yes"


def _evaluated(findings: StudyFindings) -> Table:
    """Show the evaluated weights and the certificate of each scheme."""
    finished = findings.tables.finished
    names = [name for name in ("scheme", "evaluated", "certificate") if name in finished]
    grouped = groups(finished, names) if len(finished) else []
    rows = [[*map(setting, group.values()), str(len(points))] for group, points in grouped]
    columns = (*names, "points")
    return Table("What was evaluated", say("caption_evaluated"), "runs.csv", columns, rows)


def _sources(findings: StudyFindings) -> Table:
    """Show hardware, versions and commit, with the number of points if values differ."""
    runs = findings.tables.runs
    names = [name for name in runs if name.startswith(_SOURCES)]
    names += ["data", "model", "cluster", *findings.implied_by_kind, *_MADE_BY]
    rows = [(name, _values(runs[name])) for name in dict.fromkeys(names) if name in runs]
    return Table("Made with", say("caption_sources"), "runs.csv", ("what", "value"), rows)


def _values(column: pd.Series) -> str:
    form = _gibibytes if str(column.name).endswith("_bytes") else setting
    counts = column.map(form).replace("[]", "none").value_counts(sort=False)
    if len(counts) == 1:
        return str(counts.index[0])
    return "; ".join(f"{value} ({n} points)" for value, n in counts.items())


def _gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"
