"""Links of a worker on the virtual clock."""

from dataclasses import dataclass

from torch import Tensor

from paceline.clock.links import AbstractLinks, Process, at_once
from paceline.clock.virtual.buffers import BufferPool
from paceline.clock.virtual.virtual_mean_link import VirtualMeanLink
from paceline.clock.virtual.virtual_own_weights import VirtualOwnWeights
from paceline.clock.virtual.virtual_pair_link import VirtualPairLink
from paceline.clock.virtual.virtual_push_link import VirtualPushLink
from paceline.clock.virtual.virtual_worker import VirtualWorker


@dataclass(frozen=True)
class SharedLinks:
    """Parts that the links of all workers share; None for a part that the scheme does not use."""

    pool: BufferPool
    mean: VirtualMeanLink
    push: VirtualPushLink | None
    pair: VirtualPairLink | None
    own: VirtualOwnWeights | None


class VirtualLinks(AbstractLinks):
    """Links of one worker, which wait for events of the virtual clock."""

    def __init__(self, worker: VirtualWorker, shared: SharedLinks) -> None:
        self._worker, self._shared = worker, shared

    def mean(self, value: Tensor) -> Process[Tensor]:
        return self._shared.mean.mean(self._worker, value)

    def push(self, value: Tensor) -> Process[Tensor]:
        worker, shared = self._worker, self._shared
        assert shared.push is not None
        worker.message = value
        if shared.own is None:
            assert worker.weights is not None
            shared.pool.release(worker.weights)
            worker.weights = None  # the answer replaces them
        weights, worker.granted = yield from shared.push.push(worker)
        return worker.take_answer(weights, shared.pool)

    def pair(self, partner: int) -> Process[None]:
        assert self._shared.pair is not None
        return self._shared.pair.pair(self._worker, partner)

    def apply(self, gradient: Tensor) -> Process[Tensor]:
        assert self._shared.own is not None
        return self._shared.own.apply(self._worker, gradient)

    @at_once
    def adopt(self, weights: Tensor) -> None:
        worker, shared = self._worker, self._shared
        if shared.own is not None:
            shared.own.adopt(worker, weights)
        elif worker.answer is not None and weights is worker.answer.vector:
            worker.weights, worker.answer = worker.answer, None
        else:
            worker.weights = shared.pool.copy(weights)

    def release(self) -> None:
        """Release the gradient and the answer of a step whose rule has ended."""
        self._worker.release_gradient(self._shared.pool)
        self._worker.release_answer(self._shared.pool)
