"""Computes when a recorded run would have had its accuracies on another modelled cluster.

Nothing is trained again. Two runs whose operations are the same, in the same order, have the same
weights; a simulation of both tells if they are, and the times of the other one.
"""

import csv
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

from paceline.clock.virtual.simulation import Simulation
from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.predict import simulate_point
from paceline.record.data_digest import is_of_other_data
from paceline.record.observed import Observed, TrainingReport
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import chosen_attempt, read_config, read_result, require_fit
from paceline.record.record import PartialRecord, records_in
from paceline.record.result import NUMBERS
from paceline.record.rows import POINT_TABLES
from paceline.study.compose import composed
from paceline.study.study_point import StudyPoint

_TIMING = ("cluster", "workload")
# Settings of a cluster that training depends on, beside the order of its operations.
_TRAINED_ON = ("_target_", "accelerator", "threads_per_worker")
_NUMBERS = (  # of result.json, that change with the times and the bytes of messages
    *("seconds", "images_per_second", "updates_per_second", "data_wait_share"),
    *("bytes_sent", "bytes_received"),
)


class Retimed(NamedTuple):
    """Evaluation of a recorded run.

    `before`: its time in the record [virtual seconds]. `seconds`: its time on the other cluster.
    """

    samples: int
    top1: float
    before: float
    seconds: float


def retime(key: str, overrides: Sequence[str], root: Path) -> list[Retimed]:
    """Return the evaluations of the record `key` with the times of the cluster in `overrides`.

    The weights are bit for bit those of a run that trains on that cluster. Raises SettingError for
    a record that is missing or does not fit, and for a cluster on which the order of operations
    would be another one.
    """
    folder = next(iter(sorted(root.glob(f"runs/*/{key}"))), None)
    if folder is None:
        raise SettingError("record", f"there is no record {key} in runs/")
    old = Point.of(read_config(folder))
    config = composed(overrides, root)
    for name in (each.split("=")[0] for each in overrides):
        if name.split(".")[0] not in _TIMING:
            raise SettingError(name, "only cluster and workload can be retimed")
    new = Point.of(old.config.replaced(**{name: config.values[name] for name in _TIMING}))
    if not (can_be_retimed(old) and can_be_retimed(new)):
        message = "only a modelled cluster without shuffles, and with one server, can be retimed"
        raise SettingError("cluster", message)
    rows = _curve(folder)
    run = retimed(old, new, folder, rows)
    if run is None:
        message = "the order of updates, or of the values in a mean, differs there: train again"
        raise SettingError("cluster", message)
    return [
        Retimed(int(row["samples"]), float(row["top1"]), float(row["seconds"]), seconds)
        for row, (_, seconds) in zip(rows, run.snapshots, strict=True)
    ]


def retime_points(points: Sequence[StudyPoint]) -> None:
    """Write records without training, for those `points` whose weights another record already has.

    `points`: points that have no record yet. The other record may be of any study; it must be
    finished and made by the present code. Prints a line for each record that is written.
    """
    asked = [point for point in points if point.config.sweep.rerun != "all"]
    asked = [point for point in asked if can_be_retimed(point.point)]
    if not asked:
        return
    trained = _trained_records(asked[0].folder.parent.parent)
    for point in asked:
        for source in trained.get(key_without_times(point.config), ()):
            rows = _curve(source)
            run = retimed(Point.of(read_config(source)), point.point, source, rows)
            if run is not None:
                _write_retimed(point.point, point.folder, source, run, rows)
                print(f"{point.key} {point.words}: retimed from {source.name}", flush=True)
                break


def can_be_retimed(point: Point) -> bool:
    """Return True for a modelled cluster on which no data move, and on which a run without training
    has exactly the times of one with: several servers would have other shares of one weight each.
    """
    modelled = isinstance(point.cluster, VirtualCluster) and point.scheme.servers < 2
    return modelled and point.placement.shuffle_every is None


def key_without_times(config: PointConfig) -> str:
    """Return a key that is equal for points that differ only in settings that change times."""
    cluster = config.values["cluster"]
    rest = {name: cluster[name] for name in _TRAINED_ON if name in cluster}
    return config.replaced(cluster=rest, workload={}).key


def retimed(
    old: Point, new: Point, folder: Path, rows: Sequence[Mapping[str, str]]
) -> Simulation | None:
    """Return the run of `new` if it has the operations of `old`, whose record is `folder`, with a
    snapshot at each of the `rows` of its curve; None if it has others.
    """
    num_steps = require_fit(folder)["samples"] // old.batch_size
    samples = [int(row["samples"]) for row in rows]
    before, after = (simulate_point(each, num_steps, samples) for each in (old, new))
    pairs = itertools.zip_longest(*(filter(None, each.operations()) for each in (before, after)))
    return after if all(one == other for one, other in pairs) else None


def _write_retimed(
    point: Point,
    folder: Path,
    source: Path,
    run: Simulation,
    rows: Sequence[Mapping[str, str]],
) -> None:
    """Write the record of `point` to `folder`, with the results of the record `source`.

    Real seconds are copied from `source`, which was trained. Raises SettingError if the record
    cannot be written.
    """
    result = require_fit(source)
    timed = SimpleNamespace(strategy=run.report(), shard=0)  # what numbers of time read
    observed = Observed(
        [cast("TrainingReport", timed)],
        scheme=point.scheme,
        batch_size=point.batch_size,
        warmup_fraction=point.measurement.warmup_fraction,
        is_scored=point.measurement.evaluations > 0,
    )
    times = zip(rows, run.snapshots, strict=True)
    curve = [{**row, "seconds": round(seconds, 4)} for row, (_, seconds) in times]
    partial = PartialRecord(folder)
    partial.copy_files(chosen_attempt(source), ["progress.csv"])
    partial.write_config(point.config.values)
    tables = {table.name: table for table in POINT_TABLES}
    partial.write_table("curve", tables["curve"].columns, curve)
    for name in ("phases", "timeline"):
        partial.write_table(name, tables[name].columns, tables[name].rows(observed))
    own = {"study": point.study, "key": point.config.key, **point.config.names}  # in place of its
    numbers = {each.name: each.of_run(observed) for each in NUMBERS if each.name in _NUMBERS}
    partial.complete({**result, **own, **numbers, "retimed_from": source.name})


def _curve(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a record's curve."""
    with (chosen_attempt(folder) / "curve.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _trained_records(runs: Path) -> dict[str, list[Path]]:
    """Return folders of finished virtual trainings by the present code, by key without times."""
    digest, found = source_digest(), dict[str, list[Path]]()
    records = (record for study in sorted(runs.glob("[!.]*")) for record in records_in(study))
    for record in records:
        result = read_result(record)
        if result is None or "retimed_from" in result:
            continue
        ended = result["status"] == "finished" and result["kind"] == "virtual"
        if ended and result["source_digest"] == digest:
            config = read_config(record)
            if not is_of_other_data(result, config.target("data"), *config.files_of_model):
                found.setdefault(key_without_times(config), []).append(record)
    return found
