"""Where a worker that clips its own gradient clips what is applied to the weights."""

import torch
from torch import Tensor

from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme, Adopt, Apply, Message, PairMean, WorkerView, drive
from paceline.scheme.serving import Arrival


def check_clipping(value: float | None, scheme: AbstractScheme, workers: int) -> None:
    """Raises SettingError("training.gradient_clip_val") where a mean, or anything else that is made
    of a gradient after the worker has clipped it, is applied. DDP clips the mean itself. None and 0
    clip nothing.
    """
    if value and not applies_own_gradients(scheme, workers):
        name = type(scheme).__name__
        message = f"workers clip their own gradients, but {name} applies others made of them; "
        raise SettingError("training.gradient_clip_val", message + "null is needed")


def applies_own_gradients(scheme: AbstractScheme, workers: int) -> bool:
    """Whether every gradient that is applied is one that a worker computed, at the run's beginning
    and at its end. Damping by staleness counts: it lowers the rate.
    """
    if workers == 1:
        return True
    applied = _applied_by_workers if scheme.own_weights else _applied_by_servers
    return all(applied(scheme, workers, progress) for progress in (0.0, 1.0))


def _applied_by_servers(scheme: AbstractScheme, workers: int, progress: float) -> bool:
    if scheme.group_size > 1 or scheme.needs_read:  # a group's mean; one that is compensated
        return False
    return scheme.serving(workers).arrive(Arrival(0, 0, progress)).applied == (0,)


def _applied_by_workers(scheme: AbstractScheme, workers: int, progress: float) -> bool:
    """Drives the rule of one step; what is communicated comes back as another tensor."""
    gradient, weights = torch.ones(1), torch.zeros(1)
    view = WorkerView(
        gradient, weights, index=0, num_workers=workers, num_steps=0, progress=progress
    )
    found = []

    def answer(message: Message) -> Tensor | None:
        if isinstance(message, Apply):
            found.append(message.gradient is gradient)
            return torch.zeros(1)
        return None if isinstance(message, Adopt | PairMean) else message.value.clone()

    drive(scheme.step(view), answer)
    return all(found)
