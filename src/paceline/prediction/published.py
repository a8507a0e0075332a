"""Predictions of published numbers, by papers/predictions.yaml, and their errors."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from paceline.errors import SettingError
from paceline.prediction.predict import Prediction, predict
from paceline.settings import Positive, Whole, settings
from paceline.study.compose import composed

IMAGES = 1_281_167  # of an epoch of ImageNet-1k
_SECONDS = {"min": 60.0, "h": 3600.0, "days": 86400.0}
Verdict = Literal["judged", "calibrated", "not verified", "settings assumed", "same runs"]


@settings("prediction")
class Entry:
    """A published number, and the settings that predict it.

    `row`: its id in papers/published.csv. `epochs`: passes over ImageNet-1k, for a time.
    `baseline`, `baseline_epochs`: what a speed-up is over; both passes are given if it is one of
    times. `steps`: of each worker. `assumed`: what of the settings is not in the source.
    `same_as`: row of which this one is only another form. `error_from`: what the model lacks, for
    an error that is far from nothing.
    """

    row: str
    settings: list[str]
    epochs: Positive | None = None
    baseline: list[str] | None = None
    baseline_epochs: Positive | None = None
    steps: Whole = 200
    assumed: str = ""
    same_as: str = ""
    error_from: str = ""


@dataclass(frozen=True)
class Judged:
    """Prediction of one published number.

    `interval`: in its unit, over what the profile assumes; None if it was not asked for.
    `naive`: N times one accelerator, by the same rate; None where there is no rate. `verdict`:
    calibrated if the number went into the prediction itself, same runs if it is another form of one
    that is judged. `rows`: ids of those that went into it.
    """

    entry: Entry
    published: Mapping[str, str]
    predicted: float
    interval: tuple[float, float] | None
    naive: float | None
    verdict: Verdict
    rows: Sequence[str]

    @property
    def target(self) -> float:
        return float(self.published["value"])

    @property
    def error(self) -> float:
        return self.predicted / self.target - 1

    @property
    def naive_error(self) -> float | None:
        return None if self.naive is None else self.naive / self.target - 1


def published_rows(root: Path) -> dict[str, Mapping[str, str]]:
    """Return the published numbers by id. Raises SettingError("papers") where there are none."""
    path = root / "papers/published.csv"
    if not path.is_file():
        raise SettingError("papers", f"there is no {path}; they are in Paceline's repository")
    with path.open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def entries(root: Path) -> list[Entry]:
    return [
        Entry(**each) for each in yaml.safe_load((root / "papers/predictions.yaml").read_text())
    ]


def judge(
    entry: Entry, known: Mapping[str, Mapping[str, str]], root: Path, draws: int = 0
) -> Judged:
    """Predict a published number. Raises SettingError for a row or a unit that is not known.

    `draws`: of what the profile assumes, for the interval; those of a baseline are not drawn.
    """
    if entry.row not in known:
        raise SettingError("prediction.row", f"papers/published.csv has no {entry.row}")
    row = known[entry.row]
    prediction = predict(composed(entry.settings, root), entry.steps, draws=draws)
    base = predict(composed(entry.baseline, root), entry.steps) if entry.baseline else None
    rows = [*prediction.rows, *(base.rows if base else ())]

    def in_unit(images_per_second: float) -> float:
        return _in_unit(images_per_second, entry, row, prediction, base)

    naive, ends = _naive(prediction), sorted(map(in_unit, prediction.interval or ()))
    return Judged(
        entry=entry,
        published=row,
        predicted=in_unit(prediction.run.images_per_second),
        interval=(ends[0], ends[-1]) if ends else None,
        naive=None if naive is None else in_unit(naive),
        verdict=_verdict(entry, row, rows),
        rows=list(dict.fromkeys(rows)),
    )


def _verdict(entry: Entry, row: Mapping[str, str], rows: Sequence[str]) -> Verdict:
    if row["id"] in rows:
        return "calibrated"
    if row["verified"] != "yes":
        return "not verified"
    if entry.same_as:
        return "same runs"
    return "settings assumed" if entry.assumed else "judged"


def _in_unit(
    images_per_second: float,
    entry: Entry,
    row: Mapping[str, str],
    prediction: Prediction,
    base: Prediction | None,
) -> float:
    """Return images/s in the unit of the published number."""
    unit, point = row["unit"], prediction.point
    if unit == "images/s":
        return images_per_second
    if unit == "1/s":
        return images_per_second / (point.workers * point.batch_size)
    if unit == "x" and base is not None:
        passes = (entry.baseline_epochs or 1) / (entry.epochs or 1)
        return passes * images_per_second / base.run.images_per_second
    if unit in _SECONDS and entry.epochs is not None:
        return entry.epochs * IMAGES / images_per_second / _SECONDS[unit]
    raise SettingError("prediction", f"{row['id']} is in {unit!r}: epochs or a baseline is missing")


def _naive(prediction: Prediction) -> float | None:
    """Return the images/s of as many accelerators that never wait."""
    point, rate = prediction.point, prediction.rate
    if rate is None:
        return None
    accelerators = point.workers * point.sharding.shards
    return accelerators * point.batch_size / rate.seconds(point.batch_size)
