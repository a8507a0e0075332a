"""Puts charts, situations and points on the page as JSON, from which its script draws."""

import json
from collections.abc import Sequence

from markupsafe import Markup

from paceline.analysis.tables import Row
from paceline.report.chart.chart_style import Chart
from paceline.report.findings import StudyFindings
from paceline.report.repeat import first_of_command, repeat_command
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
    start = first_of_command(findings)
    ends = [repeat_command(findings, row).removeprefix(start) for _, row in runs.iterrows()]
    rows = [list(row) for row in table.rows]
    return as_json(
        {"columns": list(table.columns), "rows": rows, "command": start, "commands": ends}
    )
