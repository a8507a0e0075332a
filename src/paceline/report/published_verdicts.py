"""Counts how published numbers were predicted, by predictions.csv of `predict --published`."""

from pathlib import Path

from paceline.analysis.tables import Frame, read_table
from paceline.report.number_format import count, percent
from paceline.report.table import Table

SOURCE = "predictions/predictions.csv"
_COLUMNS = ("verdict", "numbers", "median error", "within 10 %", "within 25 %")


def published_verdicts(reports: Path) -> Table | None:
    """Return a row for each verdict on the predictions in `reports`, or None without any."""
    path = reports / SOURCE
    if not path.is_file():
        return None
    rows = read_table(path)
    found = [_row(verdict, own) for verdict, own in rows.groupby("verdict", sort=False)]
    caption = (
        "Published throughputs, times and speed-ups beside predictions that trained nothing. "
        "Judged: verified, and nothing of the model was fitted to it."
    )
    return Table("Published numbers, predicted", caption, SOURCE, _COLUMNS, found)


def _row(verdict: str, rows: Frame) -> list[str]:
    errors = rows["error"].abs()
    near = [count((errors <= limit).sum()) for limit in (0.1, 0.25)]
    return [verdict, count(len(rows)), percent(errors.median()), *near]
