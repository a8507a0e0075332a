"""Driver of a scheme's rule for one worker, the same on both clocks."""

from torch import Tensor

from paceline.clock.links import AbstractLinks, Process
from paceline.clock.run_spec import RunSpec
from paceline.scheme.rule import AbstractScheme, Step, begin_step, next_message


class RuleDriver:
    """Carries out the messages of one worker's rule over its links, and answers each.

    Its methods return processes: the virtual clock runs them among those of the other workers, the
    wall clock completes them at once (see `complete`).
    """

    def __init__(
        self, scheme: AbstractScheme, links: AbstractLinks, index: int, run: RunSpec
    ) -> None:
        self._scheme, self._links, self._index, self._run = scheme, links, index, run

    def step(
        self, gradient: Tensor, weights: Tensor, num_steps: int, progress: float
    ) -> Process[None]:
        """Take a step with its computed gradient; WorkerView documents the arguments."""
        step = begin_step(
            self._scheme,
            gradient,
            weights,
            index=self._index,
            num_workers=self._run.num_workers,
            num_steps=num_steps,
            progress=progress,
        )
        return self._drive(step)

    def beside(self, num_steps: int) -> Process[None] | None:
        """Carry out what the rule does beside the computing of a step; None: nothing."""
        run = self._run
        rule = self._scheme.beside(self._index, run.num_workers, num_steps, run.seed)
        return None if rule is None else self._drive(rule)

    def end(self, weights: Tensor, num_steps: int) -> Process[None]:
        """Carry out the scheme's `end` after the last step of a worker with its own weights."""
        return self._drive(self._scheme.end(weights, num_steps))

    def _drive(self, rule: Step) -> Process[None]:
        answer = None
        while (message := next_message(rule, answer)) is not None:
            answer = yield from self._links.carry_out(message)


def complete(process: Process[None]) -> None:
    """Run a process of the wall clock, which never waits, to its end."""
    for awaited in process:
        raise RuntimeError(f"a process of the wall clock waits for {awaited!r}")
