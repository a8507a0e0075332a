"""Predicts the throughput of a study's real processes, by the modelled clusters that it names.

For paced points, whose step times and links are emulated, it also compares staleness.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from paceline.errors import SettingError
from paceline.grouped import grouped
from paceline.prediction.predict import TimedRun, timed_run
from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.report_files import read_file, replaced
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.study.study_point import StudyPoint
from paceline.study.study_points import study_points
from paceline.timing.step_times import interpolated

Run = Mapping[str, str]  # row of runs.csv
Values = Mapping[str, Any]  # of a cluster's settings
COLUMNS = (
    *("key", "kind", "half", "cluster", "images_per_second"),
    *("free_images_per_second", "staleness_distance", "staleness_p"),
)
DRAWS = 199  # predicted runs of other seeds, against which staleness is compared
_EMULATED = (
    *("step_seconds", "step_jitter", "slow_workers", "slow_factor"),
    *("straggler_probability", "straggler_factor"),
    *("workers_per_node", "server_placement", "link"),
)
_REAL = ("measured", "paced")  # kinds of runs of real processes
_LINKS = ("link", "node_link", "allreduce_link")
# How unevenly TCP divides an emulated link among a server's answers: 0.27 to 0.83 was measured for
# two of them, and 0.005 to 0.024 for two pushes.
UNEVENNESS = 0.6


class ComparedStaleness(NamedTuple):
    """Comparison of the staleness of a run with that of predicted runs.

    `distance`: total variation distance, 0 to 1, between the run's distribution and the mean of the
    predicted ones. `p`: p-value of a Monte Carlo test, the share of all runs (this run included)
    that are at least as far from the mean of all as this run is.
    """

    distance: float
    p: float


def predict_points(study: str, root: Path) -> Path:
    """Write reports/<study>/predictions.csv and return its path.

    The file has a row for each measured or paced point of runs.csv that has images/s. The row's
    images/s are those of the same number of steps, without training, on the modelled cluster that
    the study's `predicted_by` names for the model. `_of_paced` adds columns for paced points.

    The speed of a shared machine changes from hour to hour. So on a cluster with shared cores, the
    seconds of a step are means over the study's own one-worker runs without a server, for each
    model and batch size. The column `kind` says "calibrated" for these runs and "predicted" for
    others. If the study has `validated_on`, the column `half` says "validation" for points with the
    values named there, and "development" for others.

    Raises SettingError if runs.csv is missing or damaged, or if no
    cluster is named for a model.
    """
    folder = root / "reports" / study
    text = io.StringIO(read_file(folder / "runs.csv", f"paceline sweep {study}").decode())
    runs = {
        row["key"]: row
        for row in csv.DictReader(text)
        if row["kind"] in _REAL and row["images_per_second"]
    }
    declared = study_points(study, root)
    halves = _halves(declared)
    points = [point for point in declared if point.key in runs]
    names = [_profile_of(point.config) for point in points]
    alone = _seconds_alone(runs[point.key] for point in points if _is_whole(point))
    paced = any(run["kind"] == "paced" for run in runs.values())
    staleness = _staleness_of(folder, study) if paced else {}
    rows = []
    for point, name in zip(points, names, strict=True):
        run, cluster, kind = runs[point.key], _modelled(name, root), "predicted"
        samples = int(run["samples"])
        if run["kind"] == "paced":
            found = _of_paced(point.config, cluster, samples, staleness.get(point.key))
        else:
            if shared := cluster["step_seconds"] is None and cluster.get("shared_cores"):
                own = alone.get(_computes(run)) or shared["step_seconds"]
                cluster = {**cluster, "shared_cores": {**shared, "step_seconds": own}}
                if _is_whole(point) and _is_alone(run):
                    kind = "calibrated"
            found = (f"{run_of(point.config, cluster, samples).images_per_second:.6g}", "", "", "")
        rows.append((point.key, kind, halves[point.key], name, *found))
    path = folder / "predictions.csv"
    with replaced(folder) as new, (new / path.name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return path


def run_of(config: PointConfig, cluster: Values, samples: int) -> TimedRun:
    """Run the steps of a point on another, modelled cluster, without training.

    `samples`: number of samples that all workers together draw.
    """
    point = Point.of(config.replaced(cluster=cluster))
    return timed_run(point, samples // (point.batch_size * point.workers))


def emulating(cluster: Values, paced: Values, processes: int) -> dict[str, Any]:
    """Return settings of a modelled cluster for a run whose steps and links are emulated.

    `cluster`: settings of the modelled cluster, which describes the real machine. `paced`: settings
    of the emulating cluster, which replace those of steps and of links between nodes. A message
    between nodes has at least the latency of one inside a node. All emulated nodes share the cores
    of the one real machine; a message costs as much as with all `processes` at work.
    """
    own = {name: value for name, value in paced.items() if name in _EMULATED}
    own["server_seconds"] = max(cluster["server_seconds"], paced["server_seconds"])
    if "link" in paced:
        latency = cluster["node_link"]["latency"]
        own["link"] = {**paced["link"], "latency": latency, "unevenness": UNEVENNESS}
        own["node_cores"] = cluster["node_cores"] / math.ceil(processes / paced["workers_per_node"])
        modelled = Target("cluster", dict(cluster)).build()  # with what it leaves out
        for name in ("message_seconds", "message_bandwidth"):
            if values := getattr(modelled, name):
                own[name] = {processes: interpolated(values, processes)}
    return {**cluster, **own, "overlap": False}


def compared_staleness(
    pushes: Counter[int], predicted: Sequence[Counter[int]]
) -> ComparedStaleness:
    """Compare the staleness of a run with that of predicted runs of other seeds.

    `pushes`, `predicted`: number of pushes by staleness, of the run and of each predicted run. If
    the prediction is right, the run's distance is equally likely to have any rank among those of
    all runs, so that p <= 5 % in at most 5 % of such runs (Barnard 1963, J. R. Stat. Soc. B 25;
    Hope 1968, J. R. Stat. Soc. B 30).
    """
    runs = (pushes, *predicted)
    length = 1 + max(max(each) for each in runs)
    counts = [np.bincount([*each], weights=[*each.values()], minlength=length) for each in runs]
    shares = np.array([each / each.sum() for each in counts])
    distances = _distance(shares, shares.mean(axis=0))
    as_far = distances >= distances[0] * (1 - 1e-9)
    own = float(_distance(shares[:1], shares[1:].mean(axis=0))[0])
    return ComparedStaleness(own, float(as_far.mean()))


def _distance(shares: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the total variation distance of each row's distribution from the distribution `of`."""
    return np.abs(shares - of).sum(axis=1) / 2


def _of_paced(
    config: PointConfig, cluster: Values, samples: int, pushes: Counter[int] | None
) -> tuple[str, ...]:
    """Return the predicted columns of a paced point as text.

    These are images/s, images/s if messages took no time, and distance and p of ComparedStaleness.
    `pushes`: number of pushes to the first server by staleness; None without a server, and distance
    and p are then empty.
    """
    processes = config.values["workers"] * config.of_the_run("model")["shards"]
    paced = emulating(cluster, config.values["cluster"], processes)
    links = {name: {"latency": 0.0, "bandwidth": None} for name in _LINKS if name in paced}
    of_servers = {"server_seconds": 0.0, "server_bandwidth": None, "server_copy_bandwidth": None}
    free = {**paced, **links, **of_servers, "server_tensor_seconds": 0.0, "node_cores": None}
    rates = [run_of(config, each, samples).images_per_second for each in (paced, free)]
    of_rates = [f"{rate:.6g}" for rate in rates]
    if not pushes:
        return *of_rates, "", ""
    seeds = [seed for seed in range(DRAWS + 1) if seed != config.values["seed"]][:DRAWS]
    others = [run_of(config.replaced(seed=seed), paced, samples).staleness for seed in seeds]
    compared = compared_staleness(pushes, others)
    return *of_rates, f"{compared.distance:.3g}", f"{compared.p:.3g}"


def _staleness_of(folder: Path, study: str) -> dict[str, Counter[int]]:
    """Return, by key of each point with servers, the pushes to the first server by staleness."""
    found: dict[str, Counter[int]] = {}
    for key, table in read_archive(folder / ARCHIVE)["staleness.csv"].items():
        for row in csv.DictReader(io.StringIO(table.decode())):
            if row["server"] == "0":
                pushes = found.setdefault(key, Counter())
                pushes[int(row["staleness"])] += int(row["pushes"])
    return found


@cache
def _modelled(name: str, root: Path) -> Values:
    return composed([f"cluster={name}"], root).values["cluster"]


def _is_whole(point: StudyPoint) -> bool:
    """Return True if no worker is split."""
    return point.config.of_the_run("model")["shards"] == 1


def _is_alone(run: Run) -> bool:
    return run["kind"] == "measured" and run["workers"] == "1" and run["servers"] == "0"


def _computes(run: Run) -> tuple[str, str]:
    return run["model"], run["batch_size"]


def _seconds_alone(runs: Iterable[Run]) -> dict[tuple[str, str], dict[int, float]]:
    """Return the mean seconds of a step of one-worker runs, for each (model, batch size).

    Each value is {batch size: seconds}, as the setting step_seconds has it.
    """
    return {
        of: {int(of[1]): fmean(int(of[1]) / float(run["images_per_second"]) for run in own)}
        for of, own in grouped(filter(_is_alone, runs), _computes).items()
    }


def _halves(points: Sequence[StudyPoint]) -> dict[str, str]:
    """Return "validation" or "development" for each point by key; "" without `validated_on`.

    Raises SettingError("validated_on") for a wrong axis or list of values.
    """
    chosen = points[0].config.values.get("validated_on")
    if not chosen:
        return {each.key: "" for each in points}
    if not isinstance(chosen, Mapping):
        raise SettingError("validated_on", f"{{axis: [values]}} is needed, not {chosen}")
    for axis, values in chosen.items():
        known = [each.axes.get(axis) for each in points]
        if axis == "seed" or axis not in points[0].axes:
            raise SettingError("validated_on", f"{axis} is no axis of configurations")
        if not isinstance(values, list) or not all(each in known for each in values):
            message = f"a list of values of {axis} is needed, not {values}"
            raise SettingError("validated_on", message)
    halves = ("development", "validation")
    return {p.key: halves[all(p.axes.get(a) in of for a, of in chosen.items())] for p in points}


def _profile_of(config: PointConfig) -> str:
    """Return the modelled cluster of a point; raise SettingError("predicted_by") without it."""
    chosen, model = config.values.get("predicted_by"), config.names["model"]
    if not isinstance(chosen, Mapping) or model not in chosen:
        message = f"{{model: file of conf/cluster}} is needed, with {model}"
        raise SettingError("predicted_by", message)
    return str(chosen[model])
