"""Draws what a model predicts beside what was measured: images/s, and seconds of exchange."""

from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import Chart, chart, short
from paceline.report.findings import StudyFindings
from paceline.report.number_format import size
from paceline.report.words import scheme_words, value_words, values_words


def prediction_charts(findings: StudyFindings) -> list[Chart]:
    """Return a chart of images/s and a chart of seconds of exchange, if these were predicted."""
    prefixes = {"predicted": "rate", "predicted_exchange": "exchange"}
    made = (_chart(findings, name, prefix) for name, prefix in prefixes.items())
    return [each for each in made if each is not None]


def _chart(findings: StudyFindings, name: str, prefix: str) -> Chart | None:
    """Return the chart `name`, of the columns whose names begin with `prefix`."""
    table = findings.known(f"{prefix}_n")
    for side in ("observed", "predicted"):  # axes are logarithmic
        table = table[table[f"{prefix}_{side}"] > 0] if len(table) else table
    settings = ["workers", *(name for name in findings.varying if name in table)]
    rows = [
        {
            "scheme": scheme_words(row),
            "settings": values_words(row, settings),
            "observed": short(row[f"{prefix}_observed"]),
            "predicted": short(row[f"{prefix}_predicted"]),
            "error": short(row[f"{prefix}_error"], 4),
            "verdict": str(row[f"{prefix}_verdict"]),
        }
        for _, row in table.iterrows()
    ]
    ends = [row[name] for row in rows for name in ("observed", "predicted")] or [1]
    return chart(name, rows, low=min(ends) / 1.15, high=max(ends) * 1.15)


def _words(name: str, value: object) -> str:
    if name == "num_bytes":
        return size(float(str(value)))
    return str(value).replace("_", " ") if name == "cluster" else value_words(name, value)


def _collective_row(panel: str, row: Frame) -> Row:
    low, high = row["seconds_low"], row["seconds_high"]
    return {
        "panel": panel,
        "scheme": str(row["collective"]),
        "workers": int(row["workers"]),
        "rate": short(row["updates_per_second"], 4),
        "low": short(1 / high, 4),
        # an interval that reaches down to no time at all has no upper end on this axis
        "high": short(1 / low, 4) if low > 0 else None,
        "predicted": short(1 / row["predicted_seconds"], 4),
    }
