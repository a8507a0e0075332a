"""Run-wide numbers of a worker's steps, for schemes whose workers have their own weights."""

from collections.abc import Callable, Mapping

from paceline.scheme.accounting import Accounting


class StepNumbers:
    """Numbers of one worker's steps; a number times the batch size is the samples before the step.

    If workers wait for each other, all take equally many steps. Otherwise they draw rounds of
    `steps_per_push` steps from a common budget, of which faster workers get more. `draw()`: number
    of rounds that all workers have drawn before.
    """

    def __init__(self, accounting: Accounting, draw: Callable[[], int]) -> None:
        self._round = None if accounting.equal_steps else accounting.steps_per_push
        self._workers, self._draw = accounting.num_workers, draw
        self._taken = 0
        self._first = 0  # of the round under way

    def state(self) -> dict[str, int]:
        return {"taken": self._taken, "first": self._first}

    def load_state(self, state: Mapping[str, int]) -> None:
        self._taken, self._first = state["taken"], state["first"]

    def next(self) -> int:
        """Return the number of the worker's next step."""
        taken, self._taken = self._taken, self._taken + 1
        if self._round is None:
            return taken * self._workers
        within = taken % self._round
        if within == 0:
            self._first = self._draw() * self._round
        return self._first + within
