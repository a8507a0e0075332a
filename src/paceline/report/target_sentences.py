"""Says where a study's target comes from."""

import re

from paceline.analysis.tables import Row
from paceline.report.findings import StudyFindings

_UNSET = re.compile(r" \S+=nan\b")  # what a configuration leaves as it is
_NAMES = {"top1": "top-1", "top5": "top-5", "loss": "loss"}


def is_of_loss(asked: Row | None) -> bool:
    """Return True if the target that is `asked` is a loss, of which less is better."""
    return asked is not None and asked["metric"] == "loss"


def side(asked: Row | None) -> str:
    """Name the side of the target on which it is reached."""
    return "below" if is_of_loss(asked) else "above"


def target_origin(findings: StudyFindings) -> str:
    """Say which target a study has, as after "the target is"; "" if it has none."""
    frame = findings.concluded["time_to_target"]
    named = [_UNSET.sub("", each) for each in frame["set_by"]] if len(frame) else []
    best = "; ".join(dict.fromkeys(named))
    return _origin(findings.tables.about["target"], best) if best else ""


def _origin(asked: Row | None, best: str) -> str:
    """Say it, where `best` is the one-worker configuration from which it is a distance."""
    if asked is None:
        return f"two points of validation top-1 below the best mean of one worker ({best})"
    number = asked["value"] if "value" in asked else asked["below_baseline"]
    name, amount = _NAMES[asked["metric"]], f"{100 * number:g}"
    if is_of_loss(asked):
        amount = f"{number:g}"
    if "value" in asked:
        unit = "" if is_of_loss(asked) else " %"
        return f"a validation {name} of {amount}{unit} that the study asks for"
    distance = f"{amount} points of validation {name} below the best mean"
    if is_of_loss(asked):
        distance = f"{amount} above the best mean validation loss"
    return f"{distance} of one worker ({best}), as the study asks"
