"""Record of a point whose weights another record has: its times are those of its own cluster.

Where workers meet in each mean, and nothing but the draws of step times decides who comes first, a
run on another network has the same weights, and a run of the clock without training has its times.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

from paceline.clock.reports import StrategyReport
from paceline.cluster.virtual import VirtualCluster
from paceline.measurement.numbers import NUMBERS
from paceline.measurement.observed import Observed
from paceline.measurement.rows import POINT_TABLES
from paceline.measurement.training_report import TrainingReport
from paceline.prediction.predict import sized_workload
from paceline.prediction.timed_run import point_clock
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord, Result
from paceline.record.tracking.mlflow_record import MARKER
from paceline.scheme.accounting import Accounting
from paceline.study.study_points import StudyPoint

# Settings of a modelled cluster that change times alone, for workers that meet in each mean.
_OF_TIME = (
    "step_seconds",
    "step_rates",
    "server_seconds",
    "server_bandwidth",
    "server_placement",
    "workers_per_node",
    "node_cores",
    "overlap",
    "link",
    "node_link",
    "allreduce_link",
    "message_seconds",
    "message_bandwidth",
)
_NUMBERS = (  # of result.json, that change with the times and the bytes of messages
    "seconds",
    "images_per_second",
    "updates_per_second",
    "data_wait_share",
    "bytes_sent",
    "bytes_received",
)


@dataclass(frozen=True)
class _Timed:
    """Part of a TrainingReport that the numbers of time read."""

    strategy: StrategyReport
    shard: int = 0


def retime_points(points: Sequence[StudyPoint]) -> None:
    """Write the records of those `points` whose weights a record has; print a line for each.

    The record is finished, of any study, and made by the present code. `points`: those that need a
    run.
    """
    asked = [p for p in points if p.config.sweep.takes_over and has_weights_of_any_network(p.point)]
    if not asked:
        return
    trained = _trained_records(asked[0].folder.parent.parent)
    for point in asked:
        source = trained.get(key_of_weights(point.config))
        if source is not None:
            write_retimed(point.point, point.folder, source)
            print(f"{point.key} {point.words}: retimed from {source.name}", flush=True)


def has_weights_of_any_network(point: Point) -> bool:
    """Return True if a run of `point` has the same weights on any modelled network."""
    cluster, scheme = point.cluster, point.scheme
    if not isinstance(cluster, VirtualCluster) or cluster.shared_cores is not None:
        return False
    whole = point.sharding.shards == 1 and point.placement.meeting is None
    return whole and not scheme.servers and Accounting(scheme, point.workers).equal_steps


def key_of_weights(config: PointConfig) -> str:
    """Return a key that points share if they differ in settings of time alone."""
    cluster = config.values["cluster"]
    rest = {name: cluster[name] for name in cluster if name not in _OF_TIME}
    return config.replaced(cluster=rest, workload={}).key


def write_retimed(point: Point, folder: Path, source: Path) -> None:
    """Write the record of `point` to `folder`, with the weights' numbers of the record `source`.

    Real seconds are those of the training. Raises SettingError if it cannot be written.
    """
    result = read_result(source)
    assert result is not None
    with (source / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    samples = [int(row["samples"]) for row in rows]
    steps = samples[-1] // (point.batch_size * point.workers)
    clock = point_clock(point, sized_workload(point), steps, samples)
    observed = Observed(
        [cast("TrainingReport", _Timed(clock.report()))],
        scheme=point.scheme,
        batch_size=point.batch_size,
        warmup_fraction=point.measurement.warmup_fraction,
    )
    ends = [snapshot.seconds for snapshot in clock.holder.snapshots]
    curve = [{**row, "seconds": round(seconds, 4)} for row, seconds in zip(rows, ends, strict=True)]
    partial = PartialRecord(folder)
    partial.copy_files(source, [MARKER, "progress.csv"])
    partial.write_config(point.config.values)
    tables = {table.name: table for table in POINT_TABLES}
    partial.write_table("curve", tables["curve"].columns, curve)
    for name in ("phases", "timeline"):
        partial.write_table(name, tables[name].columns, tables[name].rows(observed))
    own = {"study": point.study, "key": point.config.key, **point.config.names}
    partial.complete({**result, **own, **_numbers(observed), "retimed_from": source.name})


def _numbers(observed: Observed) -> Result:
    return {each.name: each.observe(observed) for each in NUMBERS if each.name in _NUMBERS}


def _trained_records(runs: Path) -> dict[str, Path]:
    """Return the folders of finished trainings on a virtual clock, by the key of their weights."""
    digest, found = source_digest(), dict[str, Path]()
    for path in sorted(runs.glob("[!.]*/[!.]*/result.json")):
        if _is_source(read_result(path.parent), digest):
            values = yaml.safe_load((path.parent / "config.yaml").read_text())
            found.setdefault(key_of_weights(PointConfig(values)), path.parent)
    return found


def _is_source(result: Result | None, digest: str) -> bool:
    """Return True for what the present code has trained to the end on a virtual clock."""
    if result is None or "retimed_from" in result:
        return False
    ended = result["status"] == "finished" and result["kind"] == "virtual"
    return ended and result["source_digest"] == digest
