"""Check that gradients clipped by their workers are the gradients applied to the weights."""

import torch

from paceline.errors import SettingError
from paceline.scheme.accounting import BEGINNING, END, Accounting
from paceline.scheme.probe import messages_of, step_on_trial
from paceline.scheme.rule import AbstractScheme, Apply
from paceline.scheme.serving import Arrival


def check_clipping(value: float | None, scheme: AbstractScheme, workers: int) -> None:
    """Raise SettingError("training.gradient_clip_val") if clipping would come before other changes.

    This is so if the scheme applies a mean, or anything else that is made of a gradient after the
    worker has clipped it, or if a gradient leaves during backward, before it can be clipped. DDP
    clips the mean itself. `value`: largest norm, or absolute value of an element; None and 0 clip
    nothing.
    """
    if value and scheme.overlap:
        message = "with scheme.overlap, gradients leave before they are clipped; null is needed"
        raise SettingError("training.gradient_clip_val", message)
    if value and not applies_own_gradients(scheme, workers):
        name = type(scheme).__name__
        message = f"workers clip their own gradients, but {name} applies others made of them; "
        raise SettingError("training.gradient_clip_val", message + "null is needed")


def applies_own_gradients(scheme: AbstractScheme, workers: int) -> bool:
    """Return True if every applied gradient is one that a worker computed.

    The scheme is examined at the run's beginning and at its end. A gradient that is damped by
    staleness is as computed: the damping lowers the rate.
    """
    if workers == 1:
        return True
    own_weights = Accounting(scheme, workers).own_weights
    applied = _applied_by_workers if own_weights else _applied_by_servers
    return all(applied(scheme, workers, progress) for progress in (BEGINNING, END))


def _applied_by_servers(scheme: AbstractScheme, workers: int, progress: float) -> bool:
    if scheme.group_size > 1 or Accounting(scheme, workers).needs_read:
        return False  # a group's mean; one that is compensated
    return scheme.serving(workers).arrive(Arrival(0, 0, progress)).applied == (0,)


def _applied_by_workers(scheme: AbstractScheme, workers: int, progress: float) -> bool:
    gradient = torch.ones(1)
    step = step_on_trial(scheme, workers, gradient=gradient, progress=progress)
    applied = [each for each in messages_of(step) if isinstance(each, Apply)]
    return all(message.gradient is gradient for message in applied)
