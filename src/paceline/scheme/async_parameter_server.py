"""Asynchronous SGD: with parameter servers (Dean et al. 2012, Downpour SGD, period of 1).

    worker k:   w_k <- latest w;   push g_k(w_k)
    server:     on every push   w <- sgd(w, g, rate);   answer that worker alone

Damping, by the push's staleness s (versions between the worker's read and its push's arrival):

    none                   g = g_k                                     rate
    inverse_staleness      g = g_k                                     rate / max(1, s)
    delay_compensation     g = g_k + lambda g_k * g_k * (w - w_read)   rate

Inverse staleness (Zhang et al. 2016, IJCAI) scales the whole step, weight decay and momentum
included. Delay compensation is of Zheng et al. 2017, ICML.

The workers of a group, as of a node with its GPUs, push one gradient, their mean (Campos et al.
2017, Procedia Computer Science 108; conf/scheme/mixed.yaml).

Law: with one worker this is plain SGD; replaying the recorded order of pushes gives the weights;
with a single group this is sync_parameter_server. Each server holds a part of the weights, with its
optimizer state, and counts its own versions.
"""

from typing import Literal

from pydantic import Field

from paceline.scheme.audit import ServedLog, not_at_once
from paceline.scheme.rule import AbstractServedScheme, Claim, GroupSize, Sharding, Vector
from paceline.scheme.serving import AbstractServing, AtOnce
from paceline.settings import NotNegative, Whole, settings


@settings("scheme")
class AsyncParameterServer(AbstractServedScheme):
    """Gradients are applied when they arrive, with or without damping by staleness.

    `compensation`: lambda above, the constant of DC-ASGD-c; 0.04 as in Apache MXNet's DCASGD. The
    value 2 that is also found belongs to DC-ASGD-a, which divides it by the root of a moving mean
    of squared gradients. AbstractScheme documents the other settings.
    """

    servers: Whole = Field()
    damping: Literal["none", "inverse_staleness", "delay_compensation"] = "none"
    compensation: NotNegative = 0.04
    group_size: GroupSize = 1
    sharding: Sharding = "bytes"

    @property
    def needs_read(self) -> bool:
        return self.damping == "delay_compensation"

    def serving(self, num_workers: int) -> AbstractServing:
        return AtOnce()

    def served(self, pushed: Vector, weights: Vector, read: Vector) -> Vector:
        if self.damping == "delay_compensation":
            return pushed + self.compensation * pushed * pushed * (weights - read)
        return pushed

    def step_factor(self, staleness: int) -> float:
        return 1 / max(1, staleness) if self.damping == "inverse_staleness" else 1.0

    def not_served(self, log: ServedLog) -> str:
        return not_at_once(log)

    def claim(self, num_workers: int) -> Claim:
        if num_workers == self.group_size > 1:
            return "synchronous"
        return "partly asynchronous" if self.group_size > 1 else "asynchronous"
