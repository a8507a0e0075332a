"""Numbers of steps among all steps of a run, where workers hold weights of their own."""

from collections.abc import Callable

from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme


class StepNumbers:
    """Draws the numbers of one worker's steps.

    The samples over all workers behind a step are its number times the batch size.

    Workers that meet take equally many steps. Others take theirs from a common budget, a round of
    `steps_per_push` at a time: who is faster takes more. `draw()` returns how many rounds
    any worker has drawn before.
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
