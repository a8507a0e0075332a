"""Predicts the published numbers listed in papers/predictions.yaml, and writes a page of errors."""

import csv
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import yaml

from paceline.analysis.predicted import validation_errors
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from paceline.grouped import grouped
from paceline.prediction.cluster_plan import IMAGENET
from paceline.prediction.evidence import FACTOR
from paceline.prediction.predict import Prediction, predict
from paceline.record.point import Point
from paceline.record.record import write_rows
from paceline.record.report_files import replaced
from paceline.settings import Positive, settings
from paceline.study.compose import composed

Errors = Mapping[tuple[str, str], Collection[float]]  # by platform and experiment
_LEVEL = 0.9
FAR = 0.25  # relative error beyond which the page explains a prediction
_STEPS = 200  # of each worker
_SECONDS = {"min": 60.0, "h": 3600.0, "days": 86400.0}
_TEXT = """\
# Published numbers, predicted

By `paceline predict --published`: modelled time on the profiles in
[conf/cluster](../../conf/cluster), and nothing trained. Naive is N times one accelerator. A number
is judged if it is verified, no rate and no link was fitted to it, its source states the settings,
nothing of it is from memory, the model lacks nothing that it needs, and no other number of the same
runs is judged. An interval is the prediction divided and multiplied by {factor}: within this factor
are the judged numbers here and those of [own_pace](../own_pace/README.md), by split conformal
prediction with equal weight for each experiment; its slower end has all that the
profile assumes at its slowest, and one server of asynchronous pushes. Each number is in
[predictions.csv](predictions.csv), its source in [published.csv](../../papers/published.csv).

{summary}

| source | judged | median error | worst | naive, median |
|---|---:|---:|---:|---:|
{lines}

## Errors beyond {far}

{explanations}
"""
FROM_MEMORY = "from memory"
Verdict = Literal[
    "judged", "calibrated", "not verified", "settings assumed", "not modelled", "same runs"
]


@settings("prediction")
class Entry:
    """Published number, and the settings that predict it.

    `row`: id of the number in papers/published.csv. `settings`: settings of the predicted run.
    `epochs`: passes over ImageNet-1k, if the number is a time. `baseline`: settings of the run over
    which a speed-up is taken, with its `baseline_epochs` if the speed-up compares times. `assumed`:
    settings that the source does not state. `same_as`: id of another published number of the same
    runs, which is judged instead. `error_from`: what the model lacks, which explains a large error.
    """

    row: str
    settings: list[str]
    epochs: Positive | None = None
    baseline: list[str] | None = None
    baseline_epochs: Positive | None = None
    assumed: str = ""
    same_as: str = ""
    error_from: str = ""


@dataclass(frozen=True)
class Judged:
    """Prediction of one published number, with its 90 % `interval` if the model lacks nothing.

    `platform`: the modelled cluster. `naive`: N times the rate of one accelerator; None if that
    rate is not known. `verdict`: "calibrated" if the published number was used to make the
    prediction, "same runs" if another number of the same runs is judged, "not modelled" if the
    model lacks something for it. `rows`: ids of the published numbers that were used to make the
    prediction.
    """

    entry: Entry
    published: Mapping[str, str]
    predicted: float
    interval: tuple[float, float] | None
    naive: float | None
    verdict: Verdict
    rows: Sequence[str]
    platform: str = ""

    @property
    def target(self) -> float:
        return float(self.published["value"])

    @property
    def error(self) -> float:
        return self.predicted / self.target - 1

    @property
    def naive_error(self) -> float | None:
        return None if self.naive is None else self.naive / self.target - 1


def write_published(root: Path) -> Path:
    """Predict every entry, write reports/predictions and return the path of its page.

    The interval is judged among the errors of predictions of own runs too, if they are there.
    """
    folder, own_pace = root / "reports/predictions", root / "reports/own_pace"
    own = validation_errors(read_tables(own_pace)) if own_pace.is_dir() else {}
    known = published_rows(root)
    found = [judge(entry, known, root) for entry in entries(root)]
    text = _TEXT.format(
        summary=f"{summary(found)} {coverage(found, own)}",
        lines="\n".join(_lines(found)),
        factor=FACTOR,
        far=_percent(FAR),
        explanations="\n".join(_explanations(found)),
    )
    with replaced(folder) as new:
        write_rows(new / "predictions.csv", _row(found[0]), map(_row, found))
        (new / "README.md").write_text(text)
    return folder / "README.md"


def published_rows(root: Path) -> dict[str, Mapping[str, str]]:
    """Return the published numbers by id."""
    with (root / "papers/published.csv").open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def entries(root: Path) -> list[Entry]:
    listed = yaml.safe_load((root / "papers/predictions.yaml").read_text())
    return [Entry(**each) for each in listed]


def judge(entry: Entry, known: Mapping[str, Mapping[str, str]], root: Path) -> Judged:
    """Predict a published number. Raises SettingError for an unknown row or unit.

    `known`: published numbers by id.
    """
    if entry.row not in known:
        raise SettingError("prediction.row", f"papers/published.csv has no {entry.row}")
    row = known[entry.row]
    prediction = predict(composed(entry.settings, root), _STEPS)
    base = predict(composed(entry.baseline, root), _STEPS) if entry.baseline else None
    rows = [*prediction.rows, *(base.rows if base else ())]
    point, rate, lacks = prediction.point, prediction.rate, prediction.lacks
    in_unit = partial(_in_unit, entry, row, point, base)
    images = point.workers * point.sharding.shards * point.batch_size  # if all work on their own
    predicted = in_unit(prediction.run.images_per_second)
    told = [row, *(known[each] for each in (rate.rows if rate else ()))]
    from_memory = any(FROM_MEMORY in text for each in told for text in each.values())
    return Judged(
        entry=entry,
        published=row,
        predicted=predicted,
        interval=_ordered(map(in_unit, prediction.interval)) if prediction.interval else None,
        naive=None if rate is None else in_unit(images / rate.seconds(point.batch_size)),
        verdict=_verdict(entry, row, rows, from_memory, lacks),
        rows=list(dict.fromkeys(rows)),
        platform=point.config.names["cluster"],
    )


def _ordered(ends: Iterable[float]) -> tuple[float, float]:
    low, high = sorted(ends)  # a time is long where images/s are few
    return low, high


def _verdict(
    entry: Entry, row: Mapping[str, str], rows: Sequence[str], from_memory: bool, lacks: str
) -> Verdict:
    if row["id"] in rows:
        return "calibrated"
    if row["verified"] != "yes":
        return "not verified"
    if entry.same_as:
        return "same runs"
    if entry.assumed or from_memory:
        return "settings assumed"
    return "not modelled" if lacks else "judged"


def factor(errors: Errors) -> float:
    """Return the factor within which a prediction of another experiment is, in 90 % of cases.

    This is split conformal prediction (Vovk, Gammerman, Shafer 2005), with equal weight for each
    experiment, since the numbers of one experiment share their errors. `errors`: logarithms of
    observed / predicted. Each of K experiments has the weight 1 / (K + 1), and one that is not
    known yet has the rest. With fewer than nine, this is the largest error.
    """
    sizes = [np.abs([*each]) for each in errors.values()]
    values = np.concatenate([*sizes, [max(map(max, sizes))]])
    weights = np.concatenate([*(np.full(len(each), 1 / len(each)) for each in sizes), [1]])
    level = _LEVEL - 1e-12  # sums of weights are rounded
    return float(np.exp(np.quantile(values, level, weights=weights, method="inverted_cdf")))


def inside(errors: Errors) -> tuple[int, int]:
    """Count the numbers within the factor that the other platforms give, and all numbers."""
    found = [
        abs(error) <= np.log(factor({of: each for of, each in errors.items() if of[0] != platform}))
        for (platform, _), own in errors.items()
        for error in own
    ]
    return sum(found), len(found)


def errors_of(found: Iterable[Judged]) -> Errors:
    """Return the logarithms of published / predicted of what is judged."""
    judged = (each for each in found if each.verdict == "judged")
    of = grouped(judged, lambda each: (each.platform, each.published["experiment"]))
    return {name: [-math.log1p(each.error) for each in own] for name, own in of.items()}


def coverage(found: Iterable[Judged], own: Errors) -> str:
    """Say how many numbers are inside of the interval that other platforms give."""
    errors = {**errors_of(found), **own}
    if len({platform for platform, _ in errors}) < 2:
        return ""
    within, of = inside(errors)
    return f"With the factor of the other platforms, {within} of {of} are inside of the interval."


def _in_unit(
    entry: Entry,
    row: Mapping[str, str],
    point: Point,
    base: Prediction | None,
    images_per_second: float,
) -> float:
    """Return images/s in the unit of the published number."""
    unit, batch_size = row["unit"], point.batch_size
    images = {"images/s": 1, "1/s": point.workers * batch_size, "steps/s": batch_size}
    if unit in images:
        return images_per_second / images[unit]
    if unit == "x" and base is not None:
        passes = (entry.baseline_epochs or 1) / (entry.epochs or 1)
        return passes * images_per_second / base.run.images_per_second
    if unit in _SECONDS and entry.epochs is not None:
        return entry.epochs * IMAGENET / images_per_second / _SECONDS[unit]
    raise SettingError("prediction", f"{row['id']} is in {unit!r}: epochs or a baseline is missing")


def summary(found: Sequence[Judged]) -> str:
    """Return the errors of the judged predictions in two or three sentences.

    Skill is 1 - (median error of the predictions) / (median error of N times one accelerator), both
    over the same numbers.
    """
    judged = [each for each in found if each.verdict == "judged"]
    if not judged:
        return "None is judged."
    errors = sorted(abs(each.error) for each in judged)
    text = (
        f"**{len(judged)} judged: median error {_percent(median(errors))}, worst "
        f"{_percent(errors[-1])}; {sum(e <= 0.1 for e in errors)} within 10 %, "
        f"{sum(e <= 0.25 for e in errors)} within 25 %.**"
    )
    both = [(abs(j.error), abs(j.naive_error)) for j in judged if j.naive_error is not None]
    if both:
        ours, naive = (median(side) for side in zip(*both, strict=True))
        text += (
            f" Of {len(both)} that N times one accelerator also predicts, the median error is "
            f"{_percent(ours)} against {_percent(naive)}: skill {1 - ours / naive:.2f}."
        )
    return text


def _explanations(found: Sequence[Judged]) -> list[str]:
    """Return a line for each explanation, with the errors that it explains."""
    far = (each for each in found if abs(each.error) > FAR)
    told = grouped(far, lambda each: each.entry.error_from or "Not explained.")
    return [
        f"- {', '.join(_signed(each.error) for each in own)}: {text}" for text, own in told.items()
    ]


def _row(judged: Judged) -> dict[str, object]:
    low, high = judged.interval or (None, None)
    return {
        "row": judged.entry.row,
        "kind": "predicted",
        "unit": judged.published["unit"],
        "published": judged.target,
        "predicted": f"{judged.predicted:.6g}",
        "low": _cell(low),
        "high": _cell(high),
        "error": f"{judged.error:.4f}",
        "naive": _cell(judged.naive),
        "naive_error": _cell(judged.naive_error, ".4f"),
        "verdict": judged.verdict,
        "settings": " ".join(judged.entry.settings),
        "baseline": " ".join(judged.entry.baseline or ()),
        "assumed": judged.entry.assumed,
        "inputs": " ".join(judged.rows),
    }


def _lines(found: Sequence[Judged]) -> list[str]:
    """Return a line of the page's table for each source of judged numbers."""
    judged = [each for each in found if each.verdict == "judged"]
    lines = list[str]()
    for paper, own in grouped(judged, lambda each: each.published["paper"]).items():
        worst = max((each.error for each in own), key=abs)
        naive = [abs(each.naive_error) for each in own if each.naive_error is not None]
        cells = (
            paper.split("_", 1)[1],
            str(len(own)),
            _percent(median(abs(each.error) for each in own)),
            _signed(worst),
            _percent(median(naive)) if naive else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(value: float | None, form: str = ".6g") -> str:
    return "" if value is None else f"{value:{form}}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.0f} %"
