"""Checks that the settings, the result and the tables of a record agree with each other.

They were written by one run, so whatever is in two of them must be equal.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from paceline.record.point_config import PointConfig, flat_settings, kind_of
from paceline.record.rows import bits_of
from paceline.record.schema import Result

_Rows = Sequence[Mapping[str, str]]
_RISING = ("updates", "seconds", "real_seconds")  # columns of a curve, that may also stay
_SCORES = ("top1", "top5", "averaged_top1", "train_loss", "validation_loss")
_SUMS = ("bytes_sent", "bytes_received", "activation_bytes_sent", "activation_bytes_received")
_SAME = 1e-9  # relative difference that is none


def disagreement(result: Result, config: PointConfig, texts: Mapping[str, str]) -> str | None:
    """Return in one line what does not agree, or None.

    `texts`: content of the tables by name. All parts have passed the checks of `schema.py`.
    """
    kind = kind_of(config.values.get("cluster"))
    if kind not in (None, result["kind"]):
        return f"result.json: kind is {result['kind']}, and the cluster of config.yaml is {kind}"
    if result["status"] == "failed":
        return None
    flat = flat_settings(config.values)
    unscored = flat.get("measurement.evaluations") == 0
    if result["status"] == "finished" and not unscored:
        if result.get("top1") is None:
            return "result.json: top1: a finished record needs it"
        if texts["curve"].count("\n") < 2:  # the first line is the header
            return "curve.csv: a finished record needs rows"
    checks = {
        "curve": _curve,
        "staleness": _staleness,
        "phases": _phases,
        "timeline": _timeline,
        "test": _test,
    }
    for name, text in texts.items():
        fault = next(checks[name](list(csv.DictReader(text.splitlines())), result), None)
        if fault is not None:
            return f"{name}.csv: {fault}"
    updates, seconds = result.get("updates"), result.get("seconds")
    rate = None if updates is None or not seconds else updates / seconds
    if not _equal(result.get("updates_per_second"), rate):
        return "result.json: updates_per_second are not those of updates and seconds"
    return None


def _curve(rows: _Rows, result: Result) -> Iterator[str]:
    for number, (before, row) in enumerate(pairwise(rows), 2):
        if int(row["samples"]) <= int(before["samples"]):
            yield f"row {number}, samples: {row['samples']} after {before['samples']}"
        for name in _RISING:
            if row.get(name) and before.get(name) and float(row[name]) < float(before[name]):
                yield f"row {number}, {name}: {row[name]} after {before[name]}"
    most = None if result.get("lost_workers") else result.get("samples")
    for row in rows[-1:]:
        if most is not None and int(row["samples"]) > most:
            yield f"row {len(rows)}, samples: {row['samples']} of {most} in result.json"
        for name in _SCORES:
            if name in row and name in result and _number(row[name]) != result[name]:
                yield f"row {len(rows)}, {name}: {row[name]}, and {result[name]} in result.json"


def _staleness(rows: _Rows, result: Result) -> Iterator[str]:
    yield from _places(rows, "server", result["servers"], "server", "staleness")
    pushes = {int(row["staleness"]): 0 for row in rows}
    for row in rows:
        pushes[int(row["staleness"])] += int(row["pushes"])
    if (count := sum(pushes.values())) and result["servers"]:
        for name, found in (
            ("staleness_mean", sum(value * times for value, times in pushes.items()) / count),
            ("staleness_max", max(value for value, times in pushes.items() if times)),
            ("stale_share", 1 - pushes.get(0, 0) / count),
        ):
            if not _equal(result.get(name), found):
                yield f"its {name} is {found:.6g}, and {result[name]} in result.json"


def _phases(rows: _Rows, result: Result) -> Iterator[str]:
    yield from _places(rows, "worker", result["workers"], "worker")
    lost = len(result.get("lost_workers") or ())
    if rows and len(rows) + lost != result["workers"]:
        yield f"{len(rows)} rows for {result['workers']} workers, of which {lost} were lost"
    for number, row in enumerate(rows, 1):
        if int(row["samples"]) != int(row["steps"]) * result["batch_size"]:
            yield f"row {number}, samples: {row['samples']} in {row['steps']} steps"
    for name in _SUMS:
        if rows and name in rows[0] and result.get(name) is not None:
            total = sum(int(row[name]) for row in rows)
            if total != result[name]:
                yield f"{name}: {total} in all, and {result[name]} in result.json"


def _timeline(rows: _Rows, result: Result) -> Iterator[str]:
    yield from _places(rows, "worker", result["workers"])
    for number, row in enumerate(rows, 1):
        if float(row["end"]) < float(row["start"]):
            yield f"row {number}, end: {row['end']} before {row['start']}"


def _test(rows: _Rows, result: Result) -> Iterator[str]:
    for number, row in enumerate(rows, 1):
        images = int(row["images"])
        if number > 1 or not _equal(result.get("test_images"), images):
            yield f"row {number}, images: {images}, {result.get('test_images')} in result.json"
        share = float(bits_of(row["right"], images).mean())
        if not _equal(result.get("test_top1"), share, 1e-6):
            yield f"row {number}, right: top-1 {share:.4f}, {result['test_top1']} in result.json"


def _places(rows: _Rows, name: str, count: int, *once: str) -> Iterator[str]:
    """Yield the faults of a column with numbers below `count`. `once`: columns whose values are
    together in one row only.
    """
    seen = set[tuple[int, ...]]()
    for number, row in enumerate(rows, 1):
        if int(row[name]) >= count:
            yield f"row {number}, {name}: there is no {row[name]} of {count}"
        place = tuple(int(row[each]) for each in once)
        if once and place in seen:
            yield f"row {number}, {name}: {row[name]} occurs twice"
        seen.add(place)


def _equal(recorded: float | None, found: float | None, tolerance: float = _SAME) -> bool:
    """Return False if both are known and differ."""
    if recorded is None or found is None:
        return True
    return math.isclose(recorded, found, rel_tol=tolerance, abs_tol=tolerance)


def _number(cell: str) -> float | None:
    return float(cell) if cell else None
