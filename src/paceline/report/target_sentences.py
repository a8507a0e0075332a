"""Says where a study's target comes from."""

import pandas as pd

from paceline.analysis.tables import CURVE_IMAGES, Row
from paceline.report.findings import StudyFindings
from paceline.report.number_format import count
from paceline.report.words import configuration_words

_NAMES = {"top1": "top-1", "top5": "top-5", "loss": "loss"}


def is_of_loss(asked: Row | None) -> bool:
    """Return True if the target that is `asked` is a loss, of which less is better."""
    return asked is not None and asked["metric"] == "loss"


def side(asked: Row | None) -> str:
    """Name the side of the target on which it is reached."""
    return "below" if is_of_loss(asked) else "above"


def validation_images(findings: StudyFindings) -> str:
    """Name the images on which targets are set and reached, as in "2,000 validation images"."""
    images = findings.tables.about["settings"].get(CURVE_IMAGES)
    return "validation images" if images is None else f"{count(images)} validation images"


def target_origin(findings: StudyFindings) -> str:
    """Say which target a study has, as after "the target is"; "" if it has none."""
    frame = findings.concluded["time_to_target"]
    if frame.empty:
        return ""
    asked = findings.tables.about["target"]
    if asked is not None and "value" in asked:
        return _asked_value(asked)
    return _distance(asked, "; ".join(_configuration(each) for each in frame["set_by"].unique()))


def _asked_value(asked: Row) -> str:
    value = f"{asked['value']:g}" if is_of_loss(asked) else f"{100 * asked['value']:g} %"
    return f"a validation {_NAMES[asked['metric']]} of {value} that the study asks for"


def _distance(asked: Row | None, best: str) -> str:
    """Say it, where `best` is the one-worker configuration from which it is a distance."""
    alone = f"of one worker ({best})"
    if asked is None:
        return f"two points of validation top-1 below the best mean {alone}"
    below = asked["below_baseline"]
    distance = f"{100 * below:g} points of validation {_NAMES[asked['metric']]} below the best mean"
    if is_of_loss(asked):
        distance = f"{below:g} above the best mean validation loss"
    return f"{distance} {alone}, as the study asks"


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
