"""Says which target a study has, and where it comes from."""

import pandas as pd

from paceline.analysis.frames import Row
from paceline.analysis.tables import CURVE_IMAGES
from paceline.report.findings import StudyFindings
from paceline.report.phrases import say
from paceline.report.words import configuration_words

_NAMES = {"top1": "top-1", "top5": "top-5", "loss": "loss"}


def target_metric(findings: StudyFindings) -> str:
    """Return the metric of the target: top1, top5, or loss, of which less is better."""
    return (findings.tables.about["target"] or {"metric": "top1"})["metric"]


def target_words(findings: StudyFindings, target: float) -> str:
    """Say a target, as in "87.7 % on validation images"."""
    metric, images = target_metric(findings), validation_images(findings)
    return say("target", metric=metric, value=target, images=images)


def validation_images(findings: StudyFindings) -> str:
    """Name the images on which targets are set and reached, as in "2,000 validation images"."""
    images = findings.tables.about["settings"].get(CURVE_IMAGES)
    return say("validation_images", images=images)


def target_origin(findings: StudyFindings) -> str:
    """Say which target a study has, as after "the target is"; "" if it has none."""
    frame = findings.known("target")
    if frame.empty:
        return ""
    asked, metric = findings.tables.about["target"], _NAMES[target_metric(findings)]
    is_loss = metric == "loss"
    if asked is not None and "value" in asked:
        value = f"{asked['value']:g}" if is_loss else f"{100 * asked['value']:g} %"
        return say("target_value", metric=metric, value=value)
    best = "; ".join(_configuration(each) for each in frame["target_set_by"].unique())
    baseline = say("target_baseline", configurations=best)
    if asked is None:
        return say("target_default", baseline=baseline)
    below = asked["below_baseline"]
    distance, name = (below, "target_loss") if is_loss else (100 * below, "target_below")
    return say(name, distance=f"{distance:g}", metric=metric, baseline=baseline)


def _configuration(keys: str) -> str:
    """Say a one-worker configuration, named by keys and values, without what is as it is."""
    scheme, *settings = keys.split()
    pairs = (each.partition("=") for each in settings)
    row: Row = {"scheme": scheme} | {name: _number(value) for name, _, value in pairs}
    known = [name for name, value in row.items() if not pd.isna(value)]
    return configuration_words(row, [name for name in known if name != "workers"])


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
