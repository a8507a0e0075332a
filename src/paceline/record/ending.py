"""Judges how a run ended: finished, diverged, untrained or failed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from paceline.record.rows import finite

if TYPE_CHECKING:
    from paceline.record.observed import Observed

# Times the loss of a guess, of a network that gives all classes the same probability.
_FAR = 10
_NOT_BELOW = 0.999  # the loss of a network whose answer is always the same varies by less
_NEAR_ZERO = 0.1


class Ending(NamedTuple):
    """Outcome of a run. `status` is finished, diverged, untrained or failed."""

    status: str
    reason: str


def ending(observed: Observed) -> Ending:
    """Return how a run ended, and why.

    - diverged: weights or a loss are not finite, or the final validation loss is above _FAR times
      that of a guess;
    - untrained: the final loss is not below that of a guess, neither in training nor in validation;
    - failed: the certificate shows that the workers did not share updates as the scheme claims;
    - finished: all others. The reason names lost workers, and an accuracy that is not above chance.

    Where the accuracy is above chance, losses are not judged, since that of a user's module may
    have any scale.
    """
    last = observed.last_score
    if observed.diverged:
        return Ending("diverged", "weights are no longer finite")
    if observed.is_scored and (last is None or finite(last.loss) is None):
        return Ending("diverged", "the validation loss is not finite")
    train_loss = observed.train_losses.get(last.samples) if last else None
    if last and last.at_chance:
        sides = {"validation": last.loss, "training": train_loss}
        losses = {side: loss for side, loss in sides.items() if loss is not None}
        is_far = last.loss > _FAR * last.guess_loss or not all(map(math.isfinite, losses.values()))
        if is_far or min(losses.values()) >= _NOT_BELOW * last.guess_loss:
            words = " and ".join(f"{loss:.4g} in {side}" for side, loss in losses.items())
            guess = f"guessing among {last.num_classes} classes has {last.guess_loss:.4g}"
            return Ending(
                "diverged" if is_far else "untrained", f"the final loss is {words}; {guess}"
            )
    if not (observed.certificate.earned or observed.lost):
        return Ending("failed", observed.certificate.words)
    reasons = [
        f"worker {each.worker} was lost after {each.steps} steps: {each.reason}"
        for each in observed.lost
    ]
    if last and last.at_chance:
        reasons.append(f"its top-1, {last.top1:.3f}, is not above chance")
        if train_loss is not None and train_loss < _NEAR_ZERO * last.guess_loss:
            reasons[-1] += (
                f", but its training loss, {train_loss:.3f}, is near zero: they disagree, perhaps "
                "since forward returns something else than what the training steps score"
            )
    return Ending("finished", "; ".join(reasons))
