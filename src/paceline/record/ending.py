"""Decides how a run ended and builds the observed part of its result."""

from typing import NamedTuple

from paceline.record.numbers import Value, measured
from paceline.record.observed import Observed
from paceline.record.rows import finite


class Ending(NamedTuple):
    """Outcome of a run. `status` is finished, diverged or failed."""

    status: str
    reason: str


def result(observed: Observed) -> dict[str, Value]:
    """Return the observed part of `result.json`: the ending, the processes and all numbers.

    `workers` and `servers` are the counts that took part.
    """
    return {
        **ending(observed)._asdict(),
        "workers": observed.first.strategy.counted,
        "servers": len(observed.servers),
        **measured(observed),
    }


def ending(observed: Observed) -> Ending:
    """Judge a run by its weights, its last score and its certificate.

    A finished run has a reason only if it lost workers.
    """
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
