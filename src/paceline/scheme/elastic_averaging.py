"""Elastic averaging: asynchronous EASGD (Zhang et al. 2015, arXiv:1412.6651, algorithm 1).

    worker k, every step:             w_k <- sgd(w_k, g_k)
    worker k, after `period` steps:   w_k <- w_k - a (w_k - c);   c <- c + a (w_k - c)    at once

a is the `elasticity`. The center c is a vector of weights at the servers; c is what is evaluated. A
server answers with the changed center c', from which the worker computes c = (c' - a w_k) / (1 -
a). As in the paper, the step after an exchange applies the gradient that was computed on the
weights before the exchange. A worker makes a last exchange after its last step.

Law: with elasticity 0 this is the same as the scheme independent, and the center does not move.
"""

from typing import Annotated

from pydantic import Field

from paceline.scheme.rule import (
    AbstractScheme,
    Adopt,
    Apply,
    Push,
    Sharding,
    Step,
    Vector,
    WorkerView,
)
from paceline.scheme.serving import AbstractServing, AtOnce
from paceline.settings import Below1, Whole, settings


@settings("scheme")
class ElasticAveraging(AbstractScheme):
    """Each worker's weights and the center move towards each other. `elasticity`: the number a,
    below 1; the paper uses 0.9 / workers. Each worker has its own momentum, that of torch's SGD;
    the paper's EASGD has no momentum, and its EAMSGD has Nesterov's.
    """

    servers: Whole = Field()
    period: Annotated[int, Field(strict=True, ge=1, le=65_536)] = Field()
    elasticity: Below1 = Field()
    sharding: Sharding = "bytes"

    @property
    def steps_between_pushes(self) -> int:
        return self.period

    def step(self, worker: WorkerView) -> Step:
        if worker.num_steps > 0 and worker.num_steps % self.period == 0:
            yield from self._exchange(worker.weights)
        yield Apply(worker.gradient)

    def end(self, weights: Vector, steps: int) -> Step:
        yield from self._exchange(weights)

    def _exchange(self, weights: Vector) -> Step:
        own, share = weights.clone(), self.elasticity
        after = yield Push(weights)
        # In place: to allocate a large vector takes longer than to compute it.
        before = after.sub(own, alpha=share).div_(1 - share)
        yield Adopt(own.lerp_(before, share))

    def serving(self, num_workers: int) -> AbstractServing:
        return AtOnce()

    def served(self, pushed: Vector, weights: Vector, read: Vector) -> Vector:
        """Return the gradient that moves the center c to c' in a step with learning rate 1."""
        return (weights - pushed).mul_(self.elasticity)
