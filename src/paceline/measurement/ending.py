"""Decides how a run ended, and writes the part of its result that was observed."""

from typing import NamedTuple

from paceline.measurement.numbers import Value, measured
from paceline.measurement.observed import Observed
from paceline.measurement.rows import finite


class Ending(NamedTuple):
    """How a run ended: `status` is finished, diverged or failed."""

    status: str
    reason: str


def result(observed: Observed) -> dict[str, Value]:
    """Return the measured part of `result.json`, with how the run ended and who took part."""
    return {
        **ending(observed)._asdict(),
        "workers": observed.first.strategy.counted,
        "servers": len(observed.servers),
        **measured(observed),
    }


def ending(observed: Observed) -> Ending:
    """Judge a run by its weights, its last score and its certificate."""
    last = observed.last_score
    if observed.diverged:
        return Ending("diverged", "weights are no longer finite")
    if last is None or finite(last.loss) is None:
        return Ending("diverged", "the validation loss is not finite")
    if last.at_chance:
        return Ending("diverged", f"accuracy at chance: top-1 is {last.top1:.3f}")
    if not (observed.certificate.earned or observed.lost):
        return Ending("failed", observed.certificate.words)
    lost = [
        f"worker {each.worker} was lost after {each.steps} steps: {each.reason}"
        for each in observed.lost
    ]
    return Ending("finished", "; ".join(lost))
