"""Which of all steps of a run a worker takes next: where workers hold weights of their own."""

from collections.abc import Callable

from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme


class StepNumbers:
    """One worker's. The samples behind a step, over all workers, are its number times the batch.

    Workers that meet take equally many steps. Others take theirs from a common budget, a round of
    `steps_per_push` at a time: who is faster takes more. `draw()`: rounds that were drawn before,
    by any worker.
    """

    def __init__(self, scheme: AbstractScheme, workers: int, draw: Callable[[], int]) -> None:
        accounting = Accounting(scheme, workers)
        self._round = None if accounting.equal_steps else accounting.steps_per_push
        self._workers, self._draw = workers, draw
        self._taken = 0
        self._first = 0  # of the round under way

    def next(self) -> int:
        taken, self._taken = self._taken, self._taken + 1
        if self._round is None:
            return taken * self._workers
        within = taken % self._round
        if within == 0:
            self._first = self._draw() * self._round
        return self._first + within
