"""Workers and servers that kill their own process in a given moment of training."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from paceline.exchange import push_pull
from paceline.exchange.header import Header, pack
from paceline.exchange.pieces import bytes_of
from paceline.model.classifier import Classifier
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.scheme import AbstractScheme, Arrival, Release, Step

DYING, TURN = 1, 2  # the worker, and the number of its steps before


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingClassifier(Classifier):
    """Worker 1 dies in its third step, in the moment `when`; `tcp`: on another wire than it would.

    `num_steps`: of all workers, for the moment "at the end".
    """

    def __init__(
        self, network: Any, optimizer: Any, when: str, tcp: bool, folder: str, num_steps: int
    ) -> None:
        super().__init__(network, optimizer)
        self._when, self._num_steps = when, num_steps
        self._sign = Path(folder) / "the others have taken all other steps"
        if tcp:
            push_pull.this_node = lambda: "another node"

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() != DYING:
            if batch_idx == self._num_steps - TURN - 2:  # one is left, beside worker 1's third
                self._sign.touch()
        elif batch_idx == TURN:
            moments = {"before": die, "in a push": self._patch, "at the end": self._wait}
            moments.get(self._when, lambda: None)()

    def _patch(self) -> None:
        """The push of this step goes out in part: of two servers, to the first alone."""
        strategy: Any = self.trainer.strategy
        strategy.wire.push_pull = lambda: self._push_in_part(strategy.wire)

    def _push_in_part(self, wire: push_pull.WorkerWire) -> None:
        if len(wire.versions) == 2:
            wire._ends[0].push(wire.versions[0])
        else:
            message = pack(Header(wire.versions[0], True)) + bytes(bytes_of(wire.gradient))
            wire.gradient[: len(wire.gradient) // 2] = 100
            over_tcp = bool(wire._ends[0]._pushed)
            wire._ends[0]._connection.sendall(message[: len(message) // 2 if over_tcp else 8])
        die()

    def _wait(self) -> None:
        while not self._sign.exists():
            time.sleep(0.01)
        time.sleep(0.3)  # for the other to come for a step that only this one can leave to it
        die()


class AllDie(DyingClassifier):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == TURN:
            die()


class DyingServers(AbstractScheme):
    """Asynchronous; the last server dies when its fifth push has come."""

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self._rule = AsyncParameterServer(servers)
        self._pushes = 0

    def step(self, gradient: Tensor) -> Step:
        return self._rule.step(gradient)

    def images_per_update(self, batch_size: int, workers: int) -> int:
        return batch_size

    def released(self, waiting: tuple[Arrival, ...], workers: int) -> Release | None:
        self._pushes += 1
        if self._pushes == 5 and dist.get_rank() == dist.get_world_size() - 1:
            die()
        return self._rule.released(waiting, workers)
