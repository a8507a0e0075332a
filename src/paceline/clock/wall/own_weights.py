"""Weights of a worker that applies gradients itself, on real processes."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from paceline.clock.flat_optimizer import flat_optimizer
from paceline.clock.flat_weights import FlatWeights
from paceline.clock.run_spec import RunSpec, StepNumbers, VectorSpec
from paceline.clock.wall.pair_link import AbstractPairLink


class OwnWeights:
    """Weights of one worker, and the optimizer that updates them.

    `step_numbers`: run-wide numbers of this worker's steps, the next one last. If other workers may
    ask for pairwise means, the link owns the weights, and the network computes on a copy.
    `options()`: present numbers among the optimizer's options.
    """

    def __init__(
        self,
        flat: FlatWeights,
        run: RunSpec,
        vectors: VectorSpec,
        numbers: StepNumbers,
        pair: AbstractPairLink | None,
        options: Callable[[], Sequence[float]],
    ) -> None:
        self._options = options
        self.weights = pair.weights if pair else flat.weights
        self._flat, self._run, self._numbers, self._pair = flat, run, numbers, pair
        self._optimizer = flat_optimizer(self.weights, vectors.segments)
        self.step_numbers = [numbers.next()]

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, when no other worker changes these weights."""
        return {
            "weights": self.weights,
            "computed": self._flat.weights,
            "optimizer": self._optimizer.state(),
            "numbers": self._numbers.state(),
            "step_numbers": self.step_numbers,
            "pair": self._pair.state() if self._pair else None,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.weights.copy_(state["weights"])
        self._flat.adopt(state["computed"])
        self._optimizer.load_state(state["optimizer"])
        self._numbers.load_state(state["numbers"])
        self.step_numbers[:] = state["step_numbers"]
        if self._pair is not None:
            self._pair.load_state(state["pair"])

    @property
    def has_step(self) -> bool:
        """True if a step of the run is left for this worker."""
        return not self._run.ends_before(self.step_numbers[-1])

    def begin(self, first: Tensor) -> None:
        """Adopt the first weights, which are the same for all workers."""
        self.adopt(first)
        if self._pair is not None:
            self._pair.begin()

    def apply(self, gradient: Tensor) -> Tensor:
        """Apply `gradient` and return the weights after that."""
        gradient = gradient.to(self.weights.device)  # a GPU may still compute it
        with self._pair.step() if self._pair else nullcontext():
            factor = self._run.rate_factor(self._run.samples_at(self.step_numbers[-1]))
            self._optimizer.step(gradient, factor, self._options())
            self._flat.adopt(self.weights)
        return self._flat.weights

    def adopt(self, weights: Tensor) -> None:
        self.weights.copy_(weights)
        self._flat.adopt(self.weights)

    def pair(self, partner: int) -> None:
        """Average this worker's weights with the partner's, beside its steps: see AbstractPairLink.

        The network computes on the changed weights after the worker's next update.
        """
        assert self._pair is not None
        self._pair.average(partner)

    def finish_step(self) -> None:
        self.step_numbers.append(self._numbers.next())

    def finish(self) -> None:
        """Wait until no other worker changes these weights any more."""
        if self._pair is not None:
            self._pair.finish()
            self._flat.adopt(self.weights)
