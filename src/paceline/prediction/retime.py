"""Computes when a recorded run would have had its accuracies on another modelled cluster.

Nothing is trained again. If all workers take part in each mean, and only the random step times
decide their order, then a run on other links has the same weights. A run of the virtual clock
without gradients tells its times.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

from paceline.clock.virtual.clock import VirtualClock
from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.predict import point_clock
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
# Settings of a modelled cluster that decide which worker comes first in a mean.
_ORDER = ("step_jitter", "slow_workers", "slow_factor", "straggler_probability", "straggler_factor")
# Settings of a modelled cluster that change only times, for workers that meet in each mean.
_OF_TIME = (
    *("step_seconds", "step_rates", "chip", "server_seconds", "server_bandwidth"),
    *("server_tensor_seconds", "server_copy_bandwidth"),
    *("server_placement", "workers_per_node", "topology", "node_cores", "overlap"),
    *("link", "node_link", "allreduce_link", "message_seconds", "message_bandwidth"),
)
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
    a record that is missing or does not fit, for a scheme whose order of updates depends on time,
    and for a cluster with other settings of jitter, slow workers or stragglers.
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
    _check(old, new)
    rows, clock = _curve_and_clock(new, folder)
    return [
        Retimed(int(row["samples"]), float(row["top1"]), float(row["seconds"]), snapshot.seconds)
        for row, snapshot in zip(rows, clock.holder.snapshots, strict=True)
    ]


def _check(old: Point, new: Point) -> None:
    if not isinstance(new.cluster, VirtualCluster) or not isinstance(old.cluster, VirtualCluster):
        raise SettingError("cluster", "only a modelled cluster can be retimed, and only to another")
    if not _is_ordered_by_steps(old):
        name = type(old.scheme).__name__
        raise SettingError("scheme", f"the order of updates of {name} depends on time: train again")
    for setting in _ORDER:
        was = getattr(old.cluster, setting)
        if was != getattr(new.cluster, setting):
            message = f"it decides which worker is first in a mean: {was} is needed, as recorded"
            raise SettingError(f"cluster.{setting}", message)


def _is_ordered_by_steps(point: Point) -> bool:
    return not point.scheme.servers and point.scheme.equal_steps


def retime_points(points: Sequence[StudyPoint]) -> None:
    """Write records without training, for those `points` whose weights another record already has.

    `points`: points that have no record yet. The other record may be of any study; it must be
    finished and made by the present code. Prints a line for each record that is written.
    """
    old = [point for point in points if point.config.sweep.rerun != "all"]
    asked = [point for point in old if has_weights_of_any_network(point.point)]
    if not asked:
        return
    trained = _trained_records(asked[0].folder.parent.parent)
    for point in asked:
        source = trained.get(key_of_weights(point.config))
        if source is not None:
            _write_retimed(point.point, point.folder, source)
            print(f"{point.key} {point.words}: retimed from {source.name}", flush=True)


def has_weights_of_any_network(point: Point) -> bool:
    """Return True if a run of `point` has the same weights on any modelled network."""
    cluster = point.cluster
    if not isinstance(cluster, VirtualCluster) or cluster.shared_cores is not None:
        return False
    whole = point.sharding.shards == 1 and point.placement.shuffle_every is None
    return whole and _is_ordered_by_steps(point)


def key_of_weights(config: PointConfig) -> str:
    """Return a key that is equal for points that differ only in settings that change times."""
    cluster = config.values["cluster"]
    rest = {name: cluster[name] for name in cluster if name not in _OF_TIME}
    return config.replaced(cluster=rest, workload={}).key


def _write_retimed(point: Point, folder: Path, source: Path) -> None:
    """Write the record of `point` to `folder`, with the results of the record `source`.

    Real seconds are copied from `source`, which was trained. Raises SettingError if the record
    cannot be written.
    """
    result, (rows, clock) = require_fit(source), _curve_and_clock(point, source)
    timed = SimpleNamespace(strategy=clock.report(), shard=0)  # what numbers of time read
    observed = Observed(
        [cast("TrainingReport", timed)],
        scheme=point.scheme,
        batch_size=point.batch_size,
        warmup_fraction=point.measurement.warmup_fraction,
        is_scored=point.measurement.evaluations > 0,
    )
    ends = [snapshot.seconds for snapshot in clock.holder.snapshots]
    curve = [{**row, "seconds": round(seconds, 4)} for row, seconds in zip(rows, ends, strict=True)]
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


def _curve_and_clock(point: Point, folder: Path) -> tuple[list[dict[str, str]], VirtualClock]:
    """Return the rows of a record's curve, and the clock of `point` with a snapshot at each."""
    with (chosen_attempt(folder) / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    steps = require_fit(folder)["samples"] // (point.batch_size * point.workers)
    return rows, point_clock(point, steps, [int(row["samples"]) for row in rows])


def _trained_records(runs: Path) -> dict[str, Path]:
    """Return folders of finished virtual trainings by the present code, by key of their weights."""
    digest, found = source_digest(), dict[str, Path]()
    records = (record for study in sorted(runs.glob("[!.]*")) for record in records_in(study))
    for record in records:
        result = read_result(record)
        if result is None or "retimed_from" in result:
            continue
        ended = result["status"] == "finished" and result["kind"] == "virtual"
        if ended and result["source_digest"] == digest:
            config = read_config(record)
            if not is_of_other_data(result, config.target("data"), *config.files_of_model):
                found.setdefault(key_of_weights(config), record)
    return found
