"""Asynchronous SGD on parameter servers (Dean et al. 2012, Downpour SGD with a period of one step).

    worker k:   w_k <- latest w;   push g_k(w_k)
    server:     on every push   w <- sgd(w, damped g_k);   answer that worker alone

Damping, by the push's staleness s (versions between the worker's read and its push's arrival):

    none                   g
    inverse_staleness      g / max(1, s)                             (Zhang et al. 2016, IJCAI)
    delay_compensation     g + lambda g * g * (w_now - w_read)       (Zheng et al. 2017, ICML)

Law: with one worker this is plain SGD; replaying the recorded order of pushes gives the weights.
Each server holds a part of the weights, with its optimizer state, and counts its own versions.
"""

import math
from typing import Any

from torch import Tensor

from paceline.errors import SettingError
from paceline.scheme.rule import AbstractServedScheme, Claim, check_servers
from paceline.scheme.serving import AtOnce, Serving

DAMPINGS = ("none", "inverse_staleness", "delay_compensation")


class AsyncParameterServer(AbstractServedScheme):
    """`servers`: processes that share the weights by bytes. `compensation`: lambda above, the
    constant of DC-ASGD-c; 0.04 as in Apache MXNet's DCASGD. The 2 that is also found belongs to
    DC-ASGD-a, which divides it by the root of a moving mean of squared gradients.
    """

    def __init__(self, servers: int, damping: str = "none", compensation: float = 0.04) -> None:
        self.servers = check_servers(servers)
        if damping not in DAMPINGS:
            message = f"there is no {damping}; there are: {', '.join(DAMPINGS)}"
            raise SettingError("scheme.damping", message)
        self._damping, self._compensation = damping, _check_compensation(compensation)
        self.needs_read = damping == "delay_compensation"

    def claim(self, workers: int) -> Claim:
        return "asynchronous"

    def pushes_per_update(self, workers: int) -> int:
        return 1

    def expected_staleness(self, workers: int) -> float:
        return float(workers - 1)

    def serving(self, workers: int) -> Serving:
        return AtOnce()

    def served(self, pushed: Tensor, staleness: int, weights: Tensor, read: Tensor) -> Tensor:
        if self._damping == "inverse_staleness":
            return pushed / max(1, staleness)
        if self._damping == "delay_compensation":
            return pushed + self._compensation * pushed * pushed * (weights - read)
        return pushed


def _check_compensation(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        message = f"a number of at least 0 is needed, not {value!r}"
        raise SettingError("scheme.compensation", message)
    return float(value)
