"""Predicts a study's real processes, by the profiles that the study names."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.exchange.find_collective import collective
from paceline.prediction.predict_paced import emulating, of_paced, run_of, staleness_of
from paceline.record.point import ExchangePoint
from paceline.record.point_config import PointConfig
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.study.study_point import StudyPoint
from paceline.study.study_points import study_points

Run = Mapping[str, str]  # row of runs.csv
COLUMNS = (
    "key",
    "kind",
    "half",
    "cluster",
    "images_per_second",
    "free_images_per_second",
    "staleness_distance",
    "staleness_p",
)


def predict_points(study: str, root: Path) -> Path:
    """Write reports/<study>/predictions.csv and return its path.

    It has a row for each measured or paced point of runs.csv with a rate: the images/s of as many
    steps on the modelled cluster that the study's `predicted_by` names for its model, without
    training; for a paced point, with what `of_paced` says of its messages.

    How fast a shared machine computes changes from hour to hour. So on a cluster with shared cores
    the duration of a step by itself is the mean over the study's own runs of one worker without
    a server, for each model and batch size; the kind of these runs is calibrated, not predicted.

    Where the study says what it is `validated_on`, the half of a point is validation or
    development.

    Raises SettingError if there is no runs.csv, or no profile for a model.
    """
    folder = root / "reports" / study
    if not (folder / "runs.csv").is_file():
        message = f"there is no {folder / 'runs.csv'}; first: paceline sweep {study}"
        raise SettingError("study", message)
    with (folder / "runs.csv").open(newline="") as file:
        runs = {row["key"]: row for row in csv.DictReader(file) if _has_rate(row)}
    declared = study_points(study, root)
    halves = _halves(declared)
    points = [point for point in declared if point.key in runs]
    names = [_profile_of(point.config) for point in points]
    clusters = {name: composed([f"cluster={name}"], root).values["cluster"] for name in set(names)}
    alone = _seconds_alone(runs[point.key] for point in points if _is_whole(point))
    rows = []
    paced = any(run["kind"] == "paced" for run in runs.values())
    staleness = staleness_of(folder) if paced else {}
    for point, name in zip(points, names, strict=True):
        run, cluster, half = runs[point.key], clusters[name], halves[point.key]
        if run["kind"] == "paced":
            found = of_paced(point.config, cluster, int(run["samples"]), staleness.get(point.key))
            rows.append((point.key, "predicted", half, name, *found))
            continue
        if shared := cluster["step_seconds"] is None and cluster.get("shared_cores"):
            own = alone.get(_computes(run)) or shared["step_seconds"]
            cluster = {**cluster, "shared_cores": {**shared, "step_seconds": own}}
        rate = run_of(point.config, cluster, int(run["samples"])).images_per_second
        calibrated = shared and _is_whole(point) and _is_alone(run)
        kind = "calibrated" if calibrated else "predicted"
        rows.append((point.key, kind, half, name, f"{rate:.6g}", "", "", ""))
    path = folder / "predictions.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return path


def exchange_predictor(root: Path) -> Callable[[ExchangePoint], float | None]:
    """Return a function that predicts the seconds of a point, as its study's `predicted_by` asks.

    It returns None where the study names no modelled cluster. Between emulated nodes the links are
    those of the point itself. Nobody computes, so that only messages take time.
    """
    clusters = dict[str, Mapping[str, Any]]()

    def predict(exchange: ExchangePoint) -> float | None:
        if not exchange.config.values.get("predicted_by"):
            return None
        name = _profile_of(exchange.config)
        if name not in clusters:
            clusters[name] = composed([f"cluster={name}"], root).values["cluster"]
        own = exchange.config.values["cluster"]
        modelled = emulating(clusters[name], own, exchange.workers)
        cluster = Target("cluster", modelled).build_as(VirtualCluster)
        profile = replace(cluster.profile, shared_cores=None)
        chosen = collective(exchange.collective)
        return chosen.seconds(exchange.num_bytes, exchange.workers, profile)

    return predict


def _has_rate(run: Run) -> bool:
    """Return True for a real point with a rate, even if its accuracy is at chance."""
    return run["kind"] in ("measured", "paced") and bool(run["images_per_second"])


def _is_whole(point: StudyPoint) -> bool:
    """Return True if no worker is split."""
    return point.config.of_the_run("model")["shards"] == 1


def _is_alone(run: Run) -> bool:
    return run["kind"] == "measured" and run["workers"] == "1" and run["servers"] == "0"


def _computes(run: Run) -> tuple[str, str]:
    return run["model"], run["batch_size"]


def _seconds_alone(runs: Iterable[Run]) -> dict[tuple[str, str], dict[int, float]]:
    """Return {batch size: mean seconds of a step} of runs of one worker, by what they compute."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in filter(_is_alone, runs):
        seconds = int(run["batch_size"]) / float(run["images_per_second"])
        found.setdefault(_computes(run), []).append(seconds)
    return {each: {int(each[1]): fmean(seconds)} for each, seconds in found.items()}


def _halves(points: Sequence[StudyPoint]) -> dict[str, str]:
    """Return the half of each point of a study, by key; "" if the study has only one.

    Raises SettingError("validated_on") for what is no axis, no list, or no value of a point.
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
    validating = {
        each.key
        for each in points
        if all(each.axes.get(axis) in values for axis, values in chosen.items())
    }
    keys = (each.key for each in points)
    return {key: "validation" if key in validating else "development" for key in keys}


def _profile_of(config: PointConfig) -> str:
    """Return the name of the modelled cluster that predicts a measured point.

    Raises SettingError("predicted_by") if the study names none for its model.
    """
    chosen, model = config.values.get("predicted_by"), config.names["model"]
    if not isinstance(chosen, Mapping) or model not in chosen:
        message = f"{{model: file of conf/cluster}} is needed, with {model}"
        raise SettingError("predicted_by", message)
    return str(chosen[model])
