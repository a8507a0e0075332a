"""Workers and servers that kill their own process in a given moment of training."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import torch.distributed as dist

from paceline.exchange.wire import worker_wire
from paceline.exchange.wire.connection import Header, pack
from paceline.scheme.rule import AbstractServedScheme
from paceline.scheme.serving import AbstractServing, Arrival, AtOnce, Release
from tests.classifiers import ActingClassifier

DYING, TURN = 1, 2  # the worker, and the number of its steps before


class _Sent:
    """Socket that keeps what is sent."""

    def __init__(self) -> None:
        self.content = bytearray()

    def sendmsg(self, buffers: Any) -> int:
        before = len(self.content)
        self.content += b"".join(buffers)
        return len(self.content) - before


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingClassifier(ActingClassifier):
    """Worker 1 dies in a step, in the moment `when`; `tcp`: on another wire than it would.

    `num_steps`: of all workers that do not wait, for the moment "at the end". `turn`: its steps
    before.
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        when: str,
        tcp: bool,
        folder: str,
        num_steps: int,
        turn: int = TURN,
    ) -> None:
        super().__init__(network, optimizer)
        self._when, self._num_steps, self._turn = when, num_steps, turn
        self._came = Path(folder) / "worker 1 has come to its last step"
        self._sign = Path(folder) / "the others have taken all other steps"
        self._dying = Path(folder) / "the process that dies while it waits"
        if tcp:
            worker_wire.this_node = lambda: "another node"

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() != DYING:
            if batch_idx == self._turn:
                _wait_for(self._came)  # else a slow machine leaves it no step
            if batch_idx == self._turn and self._when == "held":
                self._let_it_die()
            if batch_idx == self._num_steps - self._turn - 2:  # one is left, beside worker 1's last
                self._sign.touch()
        elif batch_idx == self._turn:
            self._came.touch()
            moments = {
                "before": die,
                "in a push": self._patch,
                "held": self._die_later,
                "at the end": self._wait,
            }
            moments.get(self._when, lambda: None)()

    def _patch(self) -> None:
        """The push of this step goes out in part: of two servers, to the first alone."""
        strategy: Any = self.trainer.strategy
        wire = strategy.push.wire
        wire.push_pull = lambda: self._push_in_part(wire)

    def _push_in_part(self, wire: worker_wire.WorkerWire) -> None:
        if len(wire.versions) == 2:
            wire._ends[0].push(wire.versions[0])
        else:
            end, sent = wire._ends[0], _Sent()
            end._packed[:] = pack(Header(wire.versions[0], True))
            end._whole_push.begin_again().send(sent)
            wire.gradient[: len(wire.gradient) // 2] = 100
            half = 8 if end.shared else len(sent.content) // 2
            end._connection.sendall(sent.content[:half])
        die()

    def _die_later(self) -> None:
        """Its push of this step is answered when the others have come as far."""
        self._dying.write_text(str(os.getpid()))
        threading.Timer(0.3, die).start()

    def _let_it_die(self) -> None:
        while not self._dying.exists() or psutil.pid_exists(int(self._dying.read_text() or 1)):
            time.sleep(0.01)

    def _wait(self) -> None:
        _wait_for(self._sign)
        time.sleep(0.3)  # for the other to come for a step that only this one can leave to it
        die()


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


class AllDie(DyingClassifier):
    """Every worker dies, of those that `dies` names."""

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == TURN and self.dies(dist.get_rank()):
            die()

    def dies(self, rank: int) -> bool:
        return True


class TheOthersDie(AllDie):
    def dies(self, rank: int) -> bool:
        return rank > 0


class FirstDies(AllDie):
    def dies(self, rank: int) -> bool:
        return rank == 0


class DyingServers(AbstractServedScheme):
    """Asynchronous; the last server dies when its fifth push has come."""

    def __init__(self, servers: int) -> None:
        self.servers = servers

    def serving(self, num_workers: int) -> AbstractServing:
        return DiesAtTheFifth()


class DiesAtTheFifth(AbstractServing):
    pushes = 0

    def arrive(self, arrival: Arrival) -> Release:
        self.pushes += 1
        if self.pushes == 5 and dist.get_rank() == dist.get_world_size() - 1:
            die()
        return AtOnce().arrive(arrival)
