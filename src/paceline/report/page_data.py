"""Puts charts, situations and points on the page as JSON, from which its script draws."""

import json
import shlex
from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import Chart
from paceline.report.findings import StudyFindings
from paceline.report.number_format import setting
from paceline.report.situations import Situation
from paceline.report.table import Table


def as_json(value: object) -> Markup:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def chart_json(charts: Sequence[Chart]) -> Markup:
    """Return specifications, with rows by column and texts by number, which saves most space."""
    return as_json([_chart(chart) for chart in charts])


def _chart(chart: Chart) -> Row:
    columns = list(dict.fromkeys(name for row in chart.rows for name in row))
    places = [_places([row.get(name) for row in chart.rows]) for name in columns]
    rows = [
        [
            own[row[name]] if own else row.get(name)
            for name, own in zip(columns, places, strict=True)
        ]
        for row in chart.rows
    ]
    return {
        "name": chart.name,
        "title": chart.title,
        "spec": chart.spec,
        "bySituation": chart.by_situation,
        "columns": columns,
        "texts": [list(own) for own in places],
        "rows": rows,
    }


def _places(column: Sequence[object]) -> dict[object, int]:
    """Return the place of each text of a column in order of appearance; none if not all are."""
    different = dict.fromkeys(column)
    all_texts = all(isinstance(value, str) for value in different)
    return {text: place for place, text in enumerate(different)} if all_texts else {}


def situation_names(charts: Sequence[Chart], situations: Sequence[Situation]) -> list[Situation]:
    """Return the situations that a chart shows."""
    drawn = {row["situation"] for chart in charts if chart.by_situation for row in chart.rows}
    return [each for each in situations if each.name in drawn]


def points_json(findings: StudyFindings, table: Table) -> Markup:
    """Return the table of all points, with the command that repeats each."""
    runs = findings.tables.runs
    start = f"paceline train experiments={findings.tables.about['study']} "
    rows = [list(row) for row in table.rows]
    ends = [_settings(findings, row) for _, row in runs.iterrows()]
    return as_json(
        {"columns": list(table.columns), "rows": rows, "command": start, "commands": ends}
    )


def _settings(findings: StudyFindings, row: Frame) -> str:
    """Return the command-line arguments that set each axis of the study as a point has it.

    A tuned rate is that of the study's own trials, whose records must be there.
    """
    axes = [name for name in findings.tables.about["axes"] if name in row and pd.notna(row[name])]
    return " ".join(shlex.quote(f"{name}={setting(row[name])}") for name in axes)
