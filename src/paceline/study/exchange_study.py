"""Measures the exchanges of a study, of which those with a record are skipped."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.record import provenance
from paceline.record.point import ExchangePoint
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord
from paceline.run.exchange_turns import Asked, Exchanged, measure_exchanges
from paceline.study.study_folder import one_at_a_time, settle_partial_records, tell_unfit
from paceline.study.study_point import StudyPoint
from paceline.study.study_points import study_points
from paceline.study.sweep import to_run

Predict = Callable[[ExchangePoint], float | None]
Row = dict[str, object]
NUMBERS = ("sent", "received", "formula")
_OWN = ("scheme.collective", "workers", "exchange.megabytes", "cluster")  # axes with a column


@dataclass(frozen=True)
class _Point:
    """A point of the study, and what it asks for."""

    point: StudyPoint
    exchange: ExchangePoint


def exchange_study(study: str, root: Path, overrides: Sequence[str], predict: Predict) -> Path:
    """Measure the exchanges that have no record; return reports/<study>/exchanges.csv.

    It has the study's own exchanges with a record, and those that `overrides` ask for: a row for
    each turn, and one for an exchange that failed. `predict` returns the seconds
    that a cost model expects, or None. Raises SettingError for an invalid setting of any point,
    before the first process starts.
    """
    points = [_Point(p, ExchangePoint.of(p.config)) for p in study_points(study, root, overrides)]
    tell_unfit(each.point.folder for each in points)
    folder = root / "runs" / study
    with one_at_a_time(folder):
        settle_partial_records(folder, None)
        needed = {point.key for point in to_run([each.point for each in points])}
        for group in _groups([each for each in points if each.point.key in needed]):
            _measure(group)
    return _collect(study, root, [*_of_study(study, root, overrides), *points], predict)


def _of_study(study: str, root: Path, overrides: Sequence[str]) -> list[_Point]:
    """Return the study's own points with a record; none if there are no `overrides`."""
    own = study_points(study, root, []) if overrides else []
    return [_Point(p, ExchangePoint.of(p.config)) for p in own if p.result]


def _groups(points: Sequence[_Point]) -> list[list[_Point]]:
    """Group points that the same processes can measure by turns."""
    found: dict[str, list[_Point]] = {}
    for each in points:
        cluster = each.exchange.config.values["cluster"]
        same = json.dumps([cluster, each.exchange.workers, each.exchange.turns])
        found.setdefault(same, []).append(each)
    return list(found.values())


def _measure(group: Sequence[_Point]) -> None:
    """Measure points together, and write their records; if that fails, each of them alone."""
    first, started = group[0].exchange, datetime.now(UTC)
    asked = [Asked(each.exchange.collective, each.exchange.length) for each in group]
    try:
        found = measure_exchanges(first.cluster, first.workers, asked, first.turns)
    except ProcessFailure as failure:
        if len(group) > 1:
            for each in group:
                _measure([each])
            return
        _write(group[0], started, None, str(failure))
        return
    for each, exchanged in zip(group, found, strict=True):
        _write(each, started, exchanged)


def _write(each: _Point, started: datetime, found: Exchanged | None, reason: str = "") -> None:
    partial = PartialRecord(each.point.folder)
    partial.write_config(each.point.config.values)
    numbers = asdict(found) if found else {"seconds": [], **dict.fromkeys(NUMBERS)}
    result = {
        "status": "finished" if found else "failed",
        "reason": reason,
        "kind": each.exchange.cluster.kind,
        "key": each.point.key,
        **numbers,
        "started": started.isoformat(timespec="seconds"),
        "hardware": provenance.hardware(),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "source_digest": provenance.source_digest(),
    }
    partial.complete(result)
    name, workers = each.exchange.config.names["cluster"], each.exchange.workers
    what = f"{each.exchange.collective}, {each.exchange.num_bytes} bytes"
    print(f"{name}, {workers} workers, {what}: {reason or 'finished'}", flush=True)


def _collect(study: str, root: Path, points: Sequence[_Point], predict: Predict) -> Path:
    folder = root / "reports" / study
    folder.mkdir(parents=True, exist_ok=True)
    once = {each.point.key: each for each in points}
    rows = [row for each in once.values() for row in _rows(each, predict)]
    path = folder / "exchanges.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    facets = [name for name in points[0].point.axes if name not in _OWN]
    about = {"study": study, "question": points[0].point.config.question, "facets": facets}
    (folder / "study.json").write_text(json.dumps(about, indent=1) + "\n")
    return path


def _rows(each: _Point, predict: Predict) -> Iterator[Row]:
    """Yield a row for each turn; one without seconds for an exchange that failed."""
    result, exchange = read_result(each.point.folder), each.exchange
    if result is None:
        raise SettingError("study", f"the record {each.point.folder} is gone")
    predicted = predict(exchange)
    for turn, seconds in enumerate(result["seconds"] or [None]):
        yield {
            **{name: result[name] for name in ("status", "reason", "kind", "key")},
            "cluster": exchange.config.names["cluster"],
            **{name: value for name, value in each.point.axes.items() if name not in _OWN},
            "collective": exchange.collective,
            "workers": exchange.workers,
            "num_bytes": exchange.num_bytes,
            "turn": turn,
            "seconds": seconds,
            "predicted_seconds": predicted,
            **{f"bytes_{name}": result[name] for name in NUMBERS},
            "started": result["started"],
            **{f"hardware.{name}": value for name, value in result["hardware"].items()},
            **{f"versions.{name}": value for name, value in result["versions"].items()},
            "commit": result["commit"],
            "source_digest": result["source_digest"],
        }
