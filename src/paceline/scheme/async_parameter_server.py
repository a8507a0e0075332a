"""Asynchronous SGD on parameter servers (Dean et al. 2012, Downpour SGD with a period of one step).

    worker k:   w_k <- latest w;   push g_k(w_k)
    server:     on every push   w <- sgd(w, g_k);   answer that worker alone

Law: with one worker this is plain SGD; replaying the recorded order of pushes gives the weights.
Each server holds a part of the weights, with its optimizer state, and counts its own versions.
"""

from torch import Tensor

from paceline.errors import SettingError
from paceline.scheme.scheme import AbstractScheme, Adopt, Arrival, Push, Release, Step


class AsyncParameterServer(AbstractScheme):
    """`servers`: processes that share the weights by bytes."""

    def __init__(self, servers: int) -> None:
        if servers < 1:
            raise SettingError("scheme.servers", f"at least 1 is needed, not {servers}")
        self.servers = servers

    def step(self, gradient: Tensor) -> Step:
        weights = yield Push(gradient)
        return Adopt(weights)

    def images_per_update(self, batch_size: int, workers: int) -> int:
        return batch_size

    def released(self, waiting: tuple[Arrival, ...], workers: int) -> Release | None:
        newest = waiting[-1].worker
        return Release(applied=(newest,), answered=(newest,))
