"""How far the virtual clock agrees with the wall clock: verdicts on the rows of clocks.csv."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.axes import varying
from paceline.analysis.clocks import LITTLE, clocks
from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame, Row, Tables, as_written

CLOSE = 0.10  # of a ratio from one
POINTS = 0.015  # of top-1
_NUMBERS = ("mean", "low", "high", "n")
_COLUMNS = ("what", "measure", "verdict", "distance", *_NUMBERS)


def clock_agreement(tables: Tables) -> Frame:
    """Return rows per configuration and kind that the virtual clock is compared `against`.

    `what`: images_per_second, staleness_mean, test_top1 (at the most workers of each scheme and
    setting alone). `measure`: ratio or difference. `verdict`: within or outside, of CLOSE by its
    mean or of POINTS by its whole interval; unknown without a pair of seeds, or an interval.
    `distance`: from agreement, where CLOSE is the limit; rows of one kind and number are in its
    order, the furthest first.
    """
    rows = []
    table = as_written(clocks(tables))
    for _, same in groups(table, ["against"]):
        rows += [*_speeds(tables, same), *_staleness(tables, same), *_accuracies(tables, same)]
    return pd.DataFrame(rows, columns=["kind", *tables.axes, "against", *_COLUMNS])


def _speeds(tables: Tables, rows: Frame) -> Iterator[Row]:
    distance = (rows["images_per_second_ratio_mean"] - 1).abs()
    for place in _furthest_first(distance):
        row = rows.loc[place]
        about = _where(tables, row) | {"what": "images_per_second", "measure": "ratio"}
        yield about | _close(distance[place]) | _numbers(row, "images_per_second_ratio")


def _staleness(tables: Tables, rows: Frame) -> Iterator[Row]:
    distance = (rows["staleness_ratio_mean"] - 1).abs()
    # as much for a difference of LITTLE as for a ratio at the border
    distance = distance.fillna(rows["staleness_difference_mean"].abs() / LITTLE * CLOSE)
    for place in _furthest_first(distance):
        row = rows.loc[place]
        measure = "ratio" if pd.notna(row["staleness_ratio_mean"]) else "difference"
        about = _where(tables, row) | {"what": "staleness_mean", "measure": measure}
        yield about | _close(distance[place]) | _numbers(row, f"staleness_{measure}")


def _accuracies(tables: Tables, rows: Frame) -> Iterator[Row]:
    for _, same in groups(rows, ["scheme", *varying(tables)]):
        row = same.loc[same["workers"].idxmax()]
        low, high = (row[f"test_top1_difference_{end}"] for end in ("low", "high"))
        verdict = "within" if low >= -POINTS and high <= POINTS else "outside"
        verdict = "unknown" if pd.isna(low) else verdict
        about = {"what": "test_top1", "measure": "difference", "verdict": verdict}
        yield _where(tables, row) | about | _numbers(row, "test_top1_difference")


def _furthest_first(distance: Frame) -> list[object]:
    return list(distance.sort_values(ascending=False, kind="stable").index)


def _close(distance: float) -> Row:
    verdict = "outside" if distance > CLOSE + 1e-9 else "within"
    return {"distance": distance, "verdict": "unknown" if pd.isna(distance) else verdict}


def _where(tables: Tables, row: Frame) -> Row:
    return {name: row[name] for name in ("kind", *tables.axes, "against")}


def _numbers(row: Frame, name: str) -> Row:
    return {number: row[f"{name}_{number}"] for number in _NUMBERS}
