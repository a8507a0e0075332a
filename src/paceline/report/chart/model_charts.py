"""Draws what a model predicts beside what was measured: images/s, and seconds of exchange."""

from paceline.report.chart.chart_style import Chart, chart, short
from paceline.report.findings import StudyFindings
from paceline.report.words import scheme_words, values_words


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
