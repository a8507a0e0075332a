"""Runs a study of exchanges: measures how long workers take to sum vectors by a collective.

Points of the study that have a record already are not measured again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from paceline.cluster.supervisor import ProcessFailure
from paceline.grouped import grouped
from paceline.record import provenance
from paceline.record.point import ExchangePoint
from paceline.record.point_config import flat_settings
from paceline.record.reading import require_fit
from paceline.record.record import PartialRecord, Row, write_rows
from paceline.record.tied_files import SUMS, replaced, write_sums
from paceline.run.exchange_turns import Asked, Exchanged, measure_exchanges
from paceline.study.study_point import Points, StudyPoint, to_run
from paceline.study.study_points import study_points
from paceline.study.sweep import one_at_a_time, settle_partial_records, tell_unfit

Predict = Callable[[ExchangePoint], float | None]
NUMBERS = ("sent", "received", "formula")
_OWN = ("scheme.collective", "workers", "exchange.megabytes", "cluster")  # axes with a column


def exchange_study(study: str, root: Path, overrides: Sequence[str], predict: Predict) -> Path:
    """Measure the exchanges that have no record; return the path reports/<study>/exchanges.csv.

    This table has a row for each turn of an exchange, and one row for a failed exchange. It has all
    points that the study with `overrides` consists of, and those points of the study without
    overrides that have a record. `predict` returns the seconds that a cost model expects, or None.
    Raises SettingError for an invalid setting of any point, before the first process starts.
    """
    points = study_points(study, root, overrides)
    for point in points:
        point.check()
    tell_unfit(point.folder for point in points)
    folder = root / "runs" / study
    with one_at_a_time(folder):
        settle_partial_records(folder, None)
        for group in _groups(to_run(points)):
            _measure(group)
    recorded = [each for each in study_points(study, root) if each.result] if overrides else []
    return _collect(study, root, [*recorded, *points], predict)


def _groups(points: Points) -> list[list[StudyPoint]]:
    """Return groups of points with the same cluster, number of workers and number of turns.

    The points of a group can be measured by the same processes.
    """

    def shared(point: StudyPoint) -> str:
        exchange = point.exchange
        return json.dumps([exchange.config.values["cluster"], exchange.workers, exchange.turns])

    return list(grouped(points, shared).values())


def _measure(group: Points) -> None:
    """Measure points together and write their records; after a failure, measure each separately."""
    first, started = group[0].exchange, datetime.now(UTC)
    asked = [Asked(each.exchange.collective, each.exchange.length) for each in group]
    try:
        found = measure_exchanges(first.cluster, first.workers, asked, first.turns)
    except ProcessFailure as failure:
        if len(group) == 1:
            return _write(group[0], started, None, str(failure))
        for each in group:
            _measure([each])
        return
    for each, exchanged in zip(group, found, strict=True):
        _write(each, started, exchanged)


def _write(point: StudyPoint, started: datetime, found: Exchanged | None, reason: str = "") -> None:
    exchange, partial = point.exchange, PartialRecord(point.folder)
    partial.write_config(point.config.values)
    partial.complete(
        {
            "status": "finished" if found else "failed",
            "reason": reason,
            "kind": exchange.cluster.kind,
            "key": point.key,
            **(asdict(found) if found else {"seconds": [], **dict.fromkeys(NUMBERS)}),
            "started": started.isoformat(timespec="seconds"),
            **provenance.provenance(),
        }
    )
    where = f"{exchange.config.names['cluster']}, {exchange.workers} workers"
    what = f"{exchange.collective}, {exchange.num_bytes} bytes"
    print(f"{where}, {what}: {reason or 'finished'}", flush=True)


def _collect(study: str, root: Path, points: Points, predict: Predict) -> Path:
    folder = root / "reports" / study
    once = {each.key: each for each in points}
    rows = [row for each in once.values() for row in _rows(each, predict)]
    facets = [name for name in points[0].axes if name not in _OWN]
    about = {"study": study, "question": points[0].config.question, "facets": facets}
    with replaced(folder) as new:
        write_rows(new / "exchanges.csv", rows[0], rows)
        (new / "study.json").write_text(json.dumps(about, indent=1) + "\n")
        write_sums(new / SUMS, {path.name: path for path in new.iterdir()})
    return folder / "exchanges.csv"


def _rows(point: StudyPoint, predict: Predict) -> Iterator[Row]:
    """Yield a row for each turn, in which the exchange was measured once more; for a failed
    exchange yield a single row without seconds.
    """
    result, exchange = require_fit(point.folder), point.exchange
    predicted = predict(exchange)
    for turn, seconds in enumerate(result["seconds"] or [None]):
        yield {
            **{name: result[name] for name in ("status", "reason", "kind", "key")},
            "cluster": exchange.config.names["cluster"],
            **{name: value for name, value in point.axes.items() if name not in _OWN},
            "collective": exchange.collective,
            "workers": exchange.workers,
            "num_bytes": exchange.num_bytes,
            "turn": turn,
            "seconds": seconds,
            "predicted_seconds": predicted,
            **{f"bytes_{name}": result[name] for name in NUMBERS},
            "started": result["started"],
            **flat_settings({name: result[name] for name in ("hardware", "versions")}),
            **{name: result[name] for name in ("commit", "source_digest")},
        }
