"""Training clock, and the reports of workers and servers at the end of a run. This module does not
import torch, so that rooms that only read numbers can import its types.
"""

import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from paceline.errors import SettingError
from paceline.scheme.audit import Averaged

# A server cannot know a loss scale (16-mixed), and would round its weights at each update (-true).
SERVED_PRECISIONS = ("32-true", "64-true", "bf16-mixed")


def check_served_precision(precision: str, by: str) -> None:
    """Raise SettingError for a precision that only DDP can honour. `by`: what applies updates."""
    if precision not in SERVED_PRECISIONS:
        known = ", ".join(SERVED_PRECISIONS)
        message = f"{precision} is not possible with {by}; there are: {known}"
        raise SettingError("training.precision", message)


class TrainingClock:
    """Seconds since `start`, without those inside `stopped()` for snapshots and evaluation."""

    def __init__(self) -> None:
        self.start()

    def start(self, seconds: float = 0.0) -> None:
        """Begin to count. `seconds`: those before, if the run is resumed."""
        self.started = time.time()  # seconds since 1970
        self._start = time.perf_counter() - seconds
        self._stopped = 0.0
        self._stopped_at: float | None = None

    def seconds(self) -> float:
        now = time.perf_counter() if self._stopped_at is None else self._stopped_at
        return now - self._start - self._stopped

    @contextmanager
    def stopped(self) -> Generator[None]:
        self._stopped_at = before = time.perf_counter()
        try:
            yield
        finally:
            self._stopped_at = None
            self._stopped += time.perf_counter() - before


Span = tuple[int, str, float, float]  # worker, phase, start and end [seconds]


@dataclass
class WorkerReport:
    """Report of one worker.

    `step_ends` [steps]: seconds of the training clock, modelled ones on the virtual clock.
    `seconds_communicating`: time of communication that does not overlap computing, including
    waiting. `step_numbers`: run-wide numbers of this worker's steps and of the next one; empty if
    servers grant steps. `averages`: pairwise means in order. `bytes_sent`, `bytes_received`: bytes
    of gradients and weights. `activation_bytes_sent`, `activation_bytes_received`: among the
    processes of a split worker. `late_steps`: steps that took longer than a paced worker emulates.
    `weights_digest`: digest of the final weights.
    """

    worker: int
    steps: int
    step_ends: np.ndarray
    weights_digest: str
    seconds_data: float = 0.0
    seconds_communicating: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    activation_bytes_sent: int = 0
    activation_bytes_received: int = 0
    late_steps: int = 0
    step_numbers: Sequence[int] = ()
    averages: Sequence[Averaged] = ()
    timeline: Sequence[Span] = ()


@dataclass
class ServerReport:
    """Report of one server.

    `pushes`: (worker, staleness [updates]) in the order of arrival. `dropped_steps`: (worker,
    number of the push among its own, from 0) of pushes that were never applied. `held`: answers
    delayed until another worker's push. `samples`: number of samples, over all workers, whose
    gradients have been applied. `lost`: (worker, reason) of workers that died.
    """

    server: int
    pushes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    updates: int = 0
    samples: int = 0
    dropped_steps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    held: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    diverged: bool = False
    lost: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    peak_rss_bytes: int = 0
    stopped_seconds: float = 0.0

    @property
    def applied(self) -> list[tuple[int, int]]:
        dropped, seen, found = set(self.dropped_steps), Counter[int](), list[tuple[int, int]]()
        for worker, staleness in self.pushes:
            if (worker, seen[worker]) not in dropped:
                found.append((worker, staleness))
            seen[worker] += 1
        return found


@dataclass
class StrategyReport:
    """Report of a Lightning strategy on the training in its process. `workers`: report of this
    process's worker, or, on the virtual clock, of all workers, with the modelled `servers`.
    `counted`: workers that took part, counted by an all-reduce or by their steps. `updates`: number
    of updates of the weights. `engine`: what computed gradients, see wave_engines.
    """

    counted: int
    updates: int
    diverged: bool
    workers: list[WorkerReport]
    servers: list[ServerReport] = field(default_factory=list[ServerReport])
    engine: str = "one_by_one"


def images_per_second(
    step_ends: list[np.ndarray], batch_size: int, warmup_fraction: float
) -> float | None:
    """Return the images per second between the warm-up and the last steps of the run.

    `step_ends`: for each worker, an array of the times at which its steps ended [seconds since the
    run began]. `warmup_fraction`: share of all steps that is left out at the beginning and again at
    the end, where workers wait for others. The measured time begins and ends when some worker ends
    a step. Steps of other workers that run at these two moments count in part, because
    workers in lockstep end their steps some milliseconds apart. The result is None if fewer than
    two steps remain, or if all that remain end at the same time.
    """
    ends = np.sort(np.concatenate(step_ends))
    left_out = int(len(ends) * warmup_fraction)
    timed = ends[left_out : len(ends) - left_out]
    if len(timed) < 2 or timed[-1] <= timed[0]:
        return None
    window = timed[[0, -1]]
    ended = ((np.append(0.0, each), np.arange(len(each) + 1.0)) for each in step_ends)
    steps = sum(np.diff(np.interp(window, times, counts))[0] for times, counts in ended)
    return float(steps) * batch_size / float(timed[-1] - timed[0])
