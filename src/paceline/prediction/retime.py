"""The curve of a record on another modelled cluster, without training it again."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.predict import sized_workload
from paceline.prediction.timed_run import point_clock
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.reading import require_fit
from paceline.scheme.accounting import Accounting
from paceline.study.compose import composed

_TIMING = ("cluster", "workload")
_ORDER = ("step_jitter", "slow_workers", "slow_factor", "straggler_probability", "straggler_factor")


class Retimed(NamedTuple):
    """Evaluation of a record; `before`: its virtual seconds, `seconds`: on the other cluster."""

    samples: int
    top1: float
    before: float
    seconds: float


def retime(key: str, overrides: Sequence[str], root: Path) -> list[Retimed]:
    """Return the evaluations of the record `key` with the times of the cluster in `overrides`.

    The weights are those of a run that trains there, bit for bit: workers meet in each mean, in an
    order that only the draws of step times decide. Raises SettingError for a record that there is
    not, or that does not fit, for a scheme whose updates have an order that depends on time, and
    for a cluster on which other steps are slow.
    """
    folder = _folder(key, root)
    old = Point.of(_with_timing(PointConfig(_yaml(folder / "config.yaml")), composed([], root)))
    config = composed(overrides, root)
    unknown = [each for each in overrides if each.split("=")[0].split(".")[0] not in _TIMING]
    if unknown:
        raise SettingError(unknown[0].split("=")[0], "only cluster and workload can be retimed")
    new = Point.of(
        old.config.replaced(cluster=config.values["cluster"], workload=config.values["workload"])
    )
    _check(old, new)
    with (folder / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    seconds = snapshot_seconds(new, [int(row["samples"]) for row in rows])
    return [
        Retimed(int(row["samples"]), float(row["top1"]), float(row["seconds"]), after)
        for row, after in zip(rows, seconds, strict=True)
    ]


def snapshot_seconds(point: Point, samples: Sequence[int]) -> list[float]:
    """Return the virtual seconds at which a run of `point` is behind each number of samples."""
    steps = samples[-1] // (point.batch_size * point.workers)
    clock = point_clock(point, sized_workload(point), steps, samples)
    return [snapshot.seconds for snapshot in clock.holder.snapshots]


def table(rows: Sequence[Retimed]) -> str:
    """Return a line for each evaluation, with units in the head."""
    lines = [f"{'samples':>12}  {'top-1':>7}  {'before [s]':>12}  {'retimed [s]':>12}"]
    lines += [
        f"{row.samples:12,}  {100 * row.top1:5.2f} %  {row.before:12,.4f}  {row.seconds:12,.4f}"
        for row in rows
    ]
    return "\n".join([*lines, "retimed virtual: the record's weights, modelled times"])


def _folder(key: str, root: Path) -> Path:
    found = sorted(path.parent for path in root.glob(f"runs/*/{key}/result.json"))
    if not found:
        raise SettingError("key", f"there is no record {key} in runs/")
    require_fit(found[0])
    return found[0]


def _yaml(path: Path) -> dict[str, object]:
    return yaml.safe_load(path.read_text())


def _with_timing(config: PointConfig, defaults: PointConfig) -> PointConfig:
    """Add what records of earlier versions lack."""
    missing = {name: defaults.values[name] for name in _TIMING if name not in config.values}
    model = {**defaults.of_the_run("model"), **config.values["model"]}
    measurement = {**defaults.values["measurement"], **config.values["measurement"]}
    return config.replaced(model=model, measurement=measurement, **missing)


def _check(old: Point, new: Point) -> None:
    if not isinstance(new.cluster, VirtualCluster) or not isinstance(old.cluster, VirtualCluster):
        raise SettingError("cluster", "only a modelled cluster can be retimed, and only to another")
    accounting = Accounting(old.scheme, old.workers)
    if not accounting.equal_steps or old.scheme.servers:
        name = type(old.scheme).__name__
        raise SettingError("scheme", f"the order of updates of {name} depends on time: train again")
    for setting in _ORDER:
        if getattr(old.cluster, setting) != getattr(new.cluster, setting):
            was = getattr(old.cluster, setting)
            message = f"it decides who is first in a mean: {was} is needed, as in the record"
            raise SettingError(f"cluster.{setting}", message)
