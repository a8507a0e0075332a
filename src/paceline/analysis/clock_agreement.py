"""Judges the agreement of the virtual clock with the wall clock, by the rows of clocks.csv."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.axes import varying
from paceline.analysis.clocks import LITTLE, clocks
from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame, Row, as_written
from paceline.analysis.tables import Tables

CLOSE = 0.10  # largest distance of a ratio from one
POINTS = 0.015  # largest difference of top-1, a share
_NUMBERS = ("mean", "low", "high", "n")
_COLUMNS = ("what", "measure", "verdict", "distance", *_NUMBERS)


def clock_agreement(tables: Tables) -> Frame:
    """Return rows per virtual configuration and kind `against` which it is compared.

    `what` is images_per_second, staleness_mean or test_top1; test_top1 is judged only at the
    largest number of workers of each scheme and setting. `measure` is ratio or difference.
    `verdict` is within or outside: the mean of a ratio must be within CLOSE, the whole interval of
    a top-1 difference within POINTS. It is unknown without a pair of seeds or without an interval.
    `distance` is the distance from agreement on the scale of CLOSE; rows of one kind and number are
    sorted by it in descending order.
    """
    rows = []
    table = as_written(clocks(tables))
    for _, same in groups(table, ["against"]):
        rows += [*_speeds(tables, same), *_staleness(tables, same), *_accuracies(tables, same)]
    return pd.DataFrame(rows, columns=["kind", *tables.axes, "against", *_COLUMNS])


def _speeds(tables: Tables, rows: Frame) -> Iterator[Row]:
    distance = (rows["images_per_second_ratio_mean"] - 1).abs()
    for index in _by_descending_distance(distance):
        row = rows.loc[index]
        about = _compared(tables, row) | {"what": "images_per_second", "measure": "ratio"}
        yield about | _verdict(distance[index]) | _numbers(row, "images_per_second_ratio")


def _staleness(tables: Tables, rows: Frame) -> Iterator[Row]:
    distance = (rows["staleness_ratio_mean"] - 1).abs()
    # a difference of LITTLE counts as much as a ratio at the limit
    distance = distance.fillna(rows["staleness_difference_mean"].abs() / LITTLE * CLOSE)
    for index in _by_descending_distance(distance):
        row = rows.loc[index]
        measure = "ratio" if pd.notna(row["staleness_ratio_mean"]) else "difference"
        about = _compared(tables, row) | {"what": "staleness_mean", "measure": measure}
        yield about | _verdict(distance[index]) | _numbers(row, f"staleness_{measure}")


def _accuracies(tables: Tables, rows: Frame) -> Iterator[Row]:
    for _, same in groups(rows, ["scheme", *varying(tables)]):
        row = same.loc[same["workers"].idxmax()]
        low, high = (row[f"test_top1_difference_{end}"] for end in ("low", "high"))
        verdict = "within" if low >= -POINTS and high <= POINTS else "outside"
        verdict = "unknown" if pd.isna(low) else verdict
        about = {"what": "test_top1", "measure": "difference", "verdict": verdict}
        yield _compared(tables, row) | about | _numbers(row, "test_top1_difference")


def _by_descending_distance(distance: Frame) -> list[object]:
    return list(distance.sort_values(ascending=False, kind="stable").index)


def _verdict(distance: float) -> Row:
    verdict = "outside" if distance > CLOSE + 1e-9 else "within"
    return {"distance": distance, "verdict": "unknown" if pd.isna(distance) else verdict}


def _compared(tables: Tables, row: Frame) -> Row:
    return {name: row[name] for name in ("kind", *tables.axes, "against")}


def _numbers(row: Frame, name: str) -> Row:
    return {number: row[f"{name}_{number}"] for number in _NUMBERS}
