"""What the workers and servers of a run report when it has ended, the same on either clock.

No torch here: rooms that only read numbers import these types.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

Span = tuple[int, str, float, float]  # worker, phase, start and end [seconds]


@dataclass
class WorkerReport:
    """What one worker has done.

    `step_ends` [steps]: seconds of the training clock, modelled ones on the virtual clock.
    `seconds_communicating`: waiting for others included; what computing hides is not counted.
    `step_numbers`: of its steps and the next, among all steps of the run; empty where servers grant
    steps. `averages`: (own steps before, partner) of each pairwise mean. `late_steps`: those that a
    paced worker could not compute in time. `weights_digest`: of the weights that it ended with.
    """

    worker: int
    steps: int
    step_ends: np.ndarray
    weights_digest: str
    seconds_data: float = 0.0
    seconds_communicating: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    late_steps: int = 0
    step_numbers: Sequence[int] = ()
    averages: Sequence[tuple[int, int]] = ()
    timeline: Sequence[Span] = ()


@dataclass
class ServerReport:
    """What one server has seen.

    `pushes`: (worker, staleness) in the order of arrival. `dropped_steps`: (worker, number of the
    push among its own) of those that are not in the weights; `dropped`: how many. `held`: answers
    that waited for another worker's push. `samples`: behind the weights, over all workers. `lost`:
    workers that are gone, and what was seen of it.
    """

    server: int
    pushes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    updates: int = 0
    samples: int = 0
    dropped: int = 0
    dropped_steps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    held: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    diverged: bool = False
    lost: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    peak_rss_bytes: int = 0


@dataclass
class StrategyReport:
    """What a strategy of Lightning has seen of the training in its process.

    `workers`: the one of this process, or all on the virtual clock, with their modelled `servers`.
    `counted`: workers that took part, by an all-reduce or by their steps. `updates`: of the weights
    of a worker of this process.
    """

    counted: int
    updates: int
    diverged: bool
    workers: list[WorkerReport]
    servers: list[ServerReport] = field(default_factory=list[ServerReport])
