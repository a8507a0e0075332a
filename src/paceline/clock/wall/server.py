"""Parameter server process, which applies pushes to its weights by a scheme's rule. It does not
import Lightning, so that it starts as fast as torch does.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.distributed as dist

from paceline.clock.reports import ServerReport, TrainingClock
from paceline.clock.served_weights import ServedWeights
from paceline.clock.snapshot import Snapshot, send_snapshot
from paceline.clock.vector_spec import ServerSpec
from paceline.exchange.liveness import Lost, LostPeerError
from paceline.exchange.process_group import count_workers, members, receive_json, send_json
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import ServerWire
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme

_HOST = torch.device("cpu")
Tolerate = Callable[[Iterable[int]], None]


class Checkpoints(Protocol):
    """Checkpoints of a server. `load` returns the state to continue from, or None. `is_due` says
    whether workers are to stop for one. `keep` writes the state after `samples` of all workers.
    After `end` nobody waits for one.
    """

    def load(self) -> Mapping[str, Any] | None: ...
    def is_due(self) -> bool: ...
    def keep(self, state: Mapping[str, Any], samples: int) -> None: ...
    def end(self) -> None: ...


class Server:
    """Serves its part of the weights until every worker has left or is lost."""

    def __init__(
        self,
        scheme: AbstractScheme,
        spec: ServerSpec,
        tolerate: Tolerate,
        checkpoints: Checkpoints | None,
        device: torch.device,
    ) -> None:
        self._spec, self._tolerate, self._checkpoints = spec, tolerate, checkpoints
        self._before: Mapping[str, Any] = {"sent": 0, "received": 0, "seconds": 0.0}
        vectors, num_workers = spec.vectors, spec.run.num_workers
        counts = Counts(scheme, num_workers)
        self._workers = counts.pushing
        dtype = getattr(torch, vectors.dtype)
        weights = torch.zeros(vectors.num_weights, dtype=dtype, device=device)
        self._wire = ServerWire(
            weights,
            vectors.num_statistics,
            self._workers,
            vectors.num_numbers,
            at_once=counts.can_meet or len(self._workers) == 1,
        )
        self._clock = TrainingClock()
        self._served = ServedWeights(
            scheme,
            spec,
            self._wire.weights,
            gradient=lambda worker: self._wire.gradient(worker).to(device),
            statistics=self._wire.statistics,
            seconds=self._seconds,
            numbers=self._wire.numbers,
        )
        all_are_needed = scheme.own_weights or scheme.group_size > 1
        # number of workers that may still die
        self._spare = 0 if all_are_needed else num_workers - counts.batches_per_update
        self._training = set(self._workers)
        self._stepping: set[int] = set()  # workers with a granted step that is not pushed yet
        self._waiting: list[int] = []  # workers without a step, until another's may return
        # checkpoints for which this server stops the workers, if it grants steps
        self._stops = None if scheme.own_weights or spec.server else checkpoints
        self._stop_after: int | None = None  # pushes of each worker; None: no checkpoint comes

    @property
    def living(self) -> list[int]:
        lost = dict(self._served.report.lost)
        return [worker for worker in self._workers if worker not in lost]

    @property
    def snapshot_samples(self) -> list[int]:
        return [snapshot.samples for snapshot in self._served.snapshots]

    def snapshots_at(self, samples: list[int]) -> list[Snapshot]:
        """Return this server's part of the snapshots that server 0 has. If a worker died between
        the parts of its push, this server may lack one; its part is that of the final weights then.
        """
        kept = {snapshot.samples: snapshot for snapshot in self._served.snapshots}
        weights = self._served.scored.cpu()
        none = weights.new_empty(0)
        return [kept.get(each) or Snapshot(each, 0, 0.0, weights, none) for each in samples]

    def run(self) -> ServerReport:
        """Serve until no worker trains. Raises LostPeerError without a worker that is needed."""
        first = self._wire.weights.cpu()
        dist.recv(first, group=members(), group_src=0)
        self._wire.weights.copy_(first)
        before = self._checkpoints.load() if self._checkpoints else None
        if before is not None:
            self._resume(before)
        else:
            for worker in self._workers:
                self._answer(worker, may_wait=False)  # count_workers below waits for all of them
        self._wire.flush()
        if self._spare:
            self._tolerate(self._training)
        count_workers(self._spec.run.num_workers, is_worker=False)
        self._clock.start(self._before["seconds"])
        while self._training:
            self._receive(*self._wire.receive())
        report = self._served.report
        report.bytes_sent, report.bytes_received = self._bytes
        return report

    @property
    def _bytes(self) -> tuple[int, int]:
        before, wire = self._before, self._wire
        return before["sent"] + wire.bytes_sent, before["received"] + wire.bytes_received

    def _keep(self) -> None:
        """Write a checkpoint, when all workers have stopped and no push lacks an answer."""
        assert self._checkpoints is not None
        self._stop_after = None
        sent, received = self._bytes
        with self._clock.stopped():
            state = {
                "served": self._served.state(),
                "statistics": {each: self._wire.statistics(each) for each in self._workers},
                "sent": sent,
                "received": received,
                "seconds": self._clock.seconds(),
            }
            self._checkpoints.keep(state, self._served.samples)

    def _end_checkpoints(self) -> None:
        self._stop_after = None
        if self._checkpoints is not None:
            self._checkpoints.end()

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint, in which every worker has a granted step."""
        self._before = state
        self._served.load_state(state["served"])
        for worker, statistics in state["statistics"].items():
            self._wire.statistics(worker).copy_(statistics)
        for worker in self._workers:  # each has kept the weights that it reads
            self._stepping.add(worker)
            self._wire.answer(worker, Header(self._served.report.updates, True))

    def _receive(self, worker: int, message: Header | Lost) -> None:
        if isinstance(message, Lost):
            self._end_checkpoints()
            self._remove_lost(worker, message.reason)
        elif message.keep:
            return self._keep()
        elif message.proceed:
            self._take(worker, message)
        else:
            self._training.remove(worker)
            self._stepping.discard(worker)  # it may stop before a step that it was granted
            self._answer_all(self._served.leave(worker))
        waiting, self._waiting = self._waiting, []
        self._answer_all(waiting)

    def _remove_lost(self, worker: int, reason: str) -> None:
        """Remove a dead worker, and return its unfinished step to the budget."""
        if not self._spare:
            raise LostPeerError(f"worker {worker} is gone: {reason}")
        self._spare -= 1
        self._training.remove(worker)
        self._waiting = [each for each in self._waiting if each != worker]
        answered = self._served.lose(worker, reason, stepping=worker in self._stepping)
        self._stepping.discard(worker)
        self._answer_all(answered)

    def _take(self, worker: int, push: Header) -> None:
        """Apply a push; answer no earlier than the emulated server would."""
        started = time.perf_counter()
        self._stepping.discard(worker)
        answered = self._served.arrive(worker, push.version)
        if self._stops and self._stop_after is None and self._stops.is_due():
            self._stop_after = self._served.pushes_before_a_stop()
        remaining = started + self._spec.run.server_seconds - time.perf_counter()
        if remaining > 0:  # a sleep of 0 s takes 0.1 ms, and may lose the core
            time.sleep(remaining)
        self._answer_all(answered)
        for latest in self._served.snapshots[-1:]:
            if latest.weights.is_cuda:  # tens of milliseconds, in which workers compute
                self._served.snapshots[-1] = replace(latest, weights=latest.weights.cpu())

    def _seconds(self) -> float:
        """Return the training clock's time when the present weights are computed."""
        if self._wire.weights.is_cuda:
            torch.cuda.current_stream(self._wire.weights.device).synchronize()
        return self._clock.seconds()

    def _answer_all(self, workers: Iterable[int]) -> None:
        for worker in workers:
            self._answer(worker)

    def _answer(self, worker: int, *, may_wait: bool = True) -> None:
        """Answer a worker, or let it wait for a step of another worker that may be lost. Workers
        wait only on server 0, which grants steps; on two servers they could wait for each other.
        """
        granted = self._served.grant(worker)
        if granted:
            self._stepping.add(worker)
        elif self._spare and may_wait and self._stepping and self._spec.server == 0:
            self._end_checkpoints()  # this worker stops no more
            self._waiting.append(worker)
            return
        after = self._stop_after
        stop = granted and after is not None and self._served.num_pushes[worker] >= after
        self._wire.answer(worker, Header(self._served.report.updates, granted, stop=stop))


def serve(
    scheme: AbstractScheme,
    tolerate: Tolerate = lambda workers: None,
    checkpoints: Checkpoints | None = None,
    device: torch.device = _HOST,
) -> ServerReport:
    """Run a server of the joined process group, then send its snapshots to the workers. `device`:
    where its weights are; a GPU if the workers' `servers_on_gpus` is set.
    `tolerate(workers)` is called with the workers whose death the run survives; only the project's
    launcher needs it. Snapshots go to the living workers in turn, so that these evaluate at the
    same time. Raises LostPeerError if the run cannot continue without a worker that died.
    """
    spec = ServerSpec.from_json(receive_json(0))
    server = Server(scheme, spec, tolerate, checkpoints, device)
    report = server.run()
    living, samples = server.living, server.snapshot_samples
    if spec.server > 0:  # all agree with what server 0 observed
        living, samples = receive_json(spec.run.num_workers)
    for other in range(1, scheme.servers if spec.server == 0 else 0):
        send_json([living, samples], spec.run.num_workers + other)
    # A living worker that dies from now on would take its snapshots with it.
    tolerate(set(Counts(scheme, spec.run.num_workers).pushing) - set(living))
    for index, snapshot in enumerate(server.snapshots_at(samples)):
        send_snapshot(snapshot, living[index % len(living)])
    for worker in living:
        send_json(None, worker)
    return report
