"""Link of a worker for pairwise means on real processes. It asks its neighbours, or answers them,
in a thread, while the worker's network computes on a copy of its weights.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from paceline.clock.run_spec import RunSpec
from paceline.clock.vector_spec import VectorSpec
from paceline.exchange.liveness import Lost, LostPeerError
from paceline.exchange.process_group import worker_index
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import PairWire
from paceline.scheme.audit import Averaged
from paceline.scheme.rule import AbstractScheme


class AbstractPairLink(ABC):
    """Link of one worker, which owns its weights. `weights` [num_weights]: the worker's weights on
    the CPU. `computed` [num_weights]: weights on which its network computes. `averages`: all means.
    """

    def __init__(self, num_weights: int, dtype: torch.dtype, wire: PairWire | ServerWire) -> None:
        self.weights, self.computed = (torch.zeros(num_weights, dtype=dtype) for _ in range(2))
        self.averages: list[Averaged] = []
        self._steps, self._bytes_of = 0, wire
        self._changing = threading.Lock()

    @contextmanager
    def step(self) -> Generator[None]:
        """Lock the weights during the worker's own step, so that no mean changes them."""
        with self._changing:
            yield
            self._steps += 1

    def state(self) -> dict[str, Any]:
        return {"averages": [tuple(each) for each in self.averages], "steps": self._steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.averages[:] = [Averaged(*each) for each in state["averages"]]
        self._steps = state["steps"]

    @abstractmethod
    def begin(self) -> None:
        """Connect to the neighbours, whose weights must equal this worker's."""

    @abstractmethod
    def average(self, partner: int) -> None:
        """Send the weights to `partner`, which replaces its own by the mean; add the mean minus
        what was sent. It runs beside the worker's steps, one call at a time.
        """

    @abstractmethod
    def finish(self) -> None:
        """End the worker's steps; wait until no other worker changes its weights any more."""

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        """Bytes sent and received by this worker."""
        return self._bytes_of.bytes_sent, self._bytes_of.bytes_received


class ActiveLink(AbstractPairLink):
    """Link of a worker that only asks its `partners`, by rank."""

    def __init__(self, num_weights: int, dtype: torch.dtype, partners: Sequence[int]) -> None:
        self._wire = PairWire(num_weights, dtype, partners)
        super().__init__(num_weights, dtype, self._wire)
        self._sent = torch.zeros(num_weights, dtype=dtype)

    def begin(self) -> None:
        self._wire.connect()

    def average(self, partner: int) -> None:
        with self._changing:
            self._sent.copy_(self.weights)
            sent_after = self._steps
        mean = self._wire.weights
        mean.copy_(self._sent)
        self._wire.average(partner)
        mean.sub_(self._sent)
        with self._changing:
            self.weights.add_(mean)
            self.averages.append(Averaged(partner, sent_after, self._steps))

    def finish(self) -> None:
        self._wire.leave()


class PassiveLink(AbstractPairLink):
    """Link of a worker that only answers, in a thread, until all `asking` workers, by rank, have
    ended. The worker's next step raises the thread's error.
    """

    def __init__(self, num_weights: int, dtype: torch.dtype, asking: Sequence[int]) -> None:
        self._wire = ServerWire(torch.zeros(num_weights, dtype=dtype), 0, asking)
        super().__init__(num_weights, dtype, self._wire)
        self._asking, self._answering = set(asking), Future[None]()

    @contextmanager
    def step(self) -> Generator[None]:
        if self._answering.done():
            self._answering.result()
        with super().step():
            yield

    def begin(self) -> None:
        self._wire.weights.copy_(self.weights)
        for worker in sorted(self._asking):
            self._wire.answer(worker, Header(0, True))
        self._answering = ThreadPoolExecutor(1, "answers").submit(self._answer_all)

    def average(self, partner: int) -> None:
        raise RuntimeError(f"worker {worker_index()} is to be asked, not to ask {partner}")

    def finish(self) -> None:
        self._answering.result()

    def _answer_all(self) -> None:
        while self._asking:
            worker, message = self._wire.receive()
            if isinstance(message, Lost):
                raise LostPeerError(f"worker {worker} is gone: {message.reason}")
            if not message.proceed:
                self._asking.remove(worker)
                continue
            with self._changing:
                self.weights.add_(self._wire.gradient(worker)).mul_(0.5)
                self._wire.weights.copy_(self.weights)  # so that sending needs no lock
                self.averages.append(Averaged(worker, self._steps, self._steps))
            self._wire.answer(worker, message)


def pair_link(scheme: AbstractScheme, run: RunSpec, vectors: VectorSpec) -> AbstractPairLink | None:
    """Return this worker's link; None if it has no neighbours."""
    worker, workers = worker_index(), range(run.num_workers)
    dtype = getattr(torch, vectors.dtype)
    if partners := scheme.partners(worker, run.num_workers):
        return ActiveLink(vectors.num_weights, dtype, partners)
    asking = [each for each in workers if worker in scheme.partners(each, run.num_workers)]
    return PassiveLink(vectors.num_weights, dtype, asking) if asking else None
