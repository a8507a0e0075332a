"""Rules on trial: driven alone, on vectors of one element, to see what they communicate."""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from paceline.errors import SettingError
from paceline.scheme.rule import (
    AbstractScheme,
    Apply,
    Message,
    Step,
    begin_step,
    next_message,
)
from paceline.scheme.serving import Arrival, Release


def step_on_trial(
    scheme: AbstractScheme,
    num_workers: int,
    *,
    gradient: Tensor | None = None,
    worker: int = 0,
    num_steps: int = 0,
    progress: float = 0.0,
) -> Step:
    """Begin a step of a worker at weights of 0; `gradient` [1]: 1 unless it is given."""
    return begin_step(
        scheme,
        torch.ones(1) if gradient is None else gradient,
        torch.zeros(1),
        index=worker,
        num_workers=num_workers,
        num_steps=num_steps,
        progress=progress,
    )


def messages_of(rule: Step) -> Iterator[Message]:
    """Drive a rule, and yield its messages; what is communicated comes back as another tensor."""
    answer = None
    while (message := next_message(rule, answer)) is not None:
        yield message
        answer = _answer(message)


def pushes_in_turn(
    scheme: AbstractScheme, num_workers: int, progress: Callable[[int], float]
) -> Iterator[tuple[Arrival, Release]]:
    """Serve workers that are equally fast: endlessly, each pushes in turn unless it waits.

    `progress(batches)`: the share of the run that so many batches are, where they are behind the
    weights.
    """
    serving = scheme.serving(num_workers)
    read = dict.fromkeys(range(0, num_workers, scheme.group_size), 0)  # versions, of who may push
    version = batches = 0
    for worker in itertools.cycle(list(read)):
        if worker not in read:
            continue
        arrival = Arrival(worker, version - read.pop(worker), progress(batches))
        release = serving.arrive(arrival)
        version += bool(release.applied)
        batches += len(release.applied) * scheme.group_size
        read |= dict.fromkeys(release.answered, version)
        yield arrival, release
        if not read:
            raise SettingError("scheme", f"{type(scheme).__name__} lets all workers wait")


def _answer(message: Message) -> Tensor | None:
    if isinstance(message, Apply):
        return torch.zeros(1)
    value: Tensor | None = getattr(message, "value", None)  # of those that are communicated
    return None if value is None else value.clone()
