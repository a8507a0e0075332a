"""A parameter server process: it holds a part of the weights and applies pushes by a scheme's rule.

It imports no Lightning, so that it starts as fast as torch does.
"""

import time
from collections.abc import Iterable

import torch
import torch.distributed as dist

from paceline.cluster.served_weights import ServedWeights, ServerPlan, ServerReport
from paceline.cluster.snapshot import Snapshot, send_snapshot
from paceline.cluster.training_clock import TrainingClock
from paceline.exchange.message import receive_json, send_json
from paceline.exchange.process_group import count_workers
from paceline.exchange.push_pull import Header, ServerWire
from paceline.scheme.scheme import AbstractScheme


class Server:
    """Serves its part of the weights over the wire until every worker has left."""

    def __init__(self, scheme: AbstractScheme, plan: ServerPlan) -> None:
        self._plan = plan
        dtype = getattr(torch, plan.dtype)
        self._wire = ServerWire(plan.num_weights, plan.num_statistics, dtype, plan.workers)
        self._clock = TrainingClock()
        self._served = ServedWeights(
            scheme,
            plan,
            self._wire.weights,
            gradient=self._wire.gradient,
            statistics=self._wire.statistics,
            seconds=self._clock.seconds,
        )

    @property
    def snapshots(self) -> list[Snapshot]:
        return self._served.snapshots

    def run(self) -> ServerReport:
        dist.recv(self._wire.weights, 0)
        self._answer_all(range(self._plan.workers))
        count_workers(self._plan.workers, is_worker=False)
        self._clock.start()
        training = self._plan.workers
        while training:
            worker, header = self._wire.receive()
            if header.proceed:
                self._take(worker, header)
            else:
                training -= 1
                self._answer_all(self._served.leave(worker))
        report = self._served.report
        report.bytes_sent = self._wire.bytes_sent
        report.bytes_received = self._wire.bytes_received
        return report

    def _take(self, worker: int, push: Header) -> None:
        """A push; paced, a server that stands for a slower one answers later."""
        started = time.perf_counter()
        answered = self._served.arrive(worker, push.version)
        time.sleep(max(0.0, started + self._plan.seconds - time.perf_counter()))
        self._answer_all(answered)

    def _answer_all(self, workers: Iterable[int]) -> None:
        for worker in workers:
            granted = self._served.grant(worker)
            self._wire.answer(worker, Header(self._served.report.updates, granted))


def serve(scheme: AbstractScheme) -> ServerReport:
    """Be a server of the joined process group: take the plan, serve, hand out the snapshots.

    Snapshot n goes to worker n modulo workers, in order, so that all of them can evaluate at once.
    """
    plan = ServerPlan(**receive_json(0))
    server = Server(scheme, plan)
    report = server.run()
    for turn, snapshot in enumerate(server.snapshots):
        send_snapshot(snapshot, turn % plan.workers)
    for worker in range(plan.workers):
        send_json(None, worker)
    return report
