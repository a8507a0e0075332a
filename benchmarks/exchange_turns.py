"""Measures how long real processes take to sum vectors by several collectives, in turns."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch
import torch.distributed as dist

from paceline.cluster.cluster import AbstractCluster
from paceline.cluster.supervisor import Task
from paceline.exchange.collectives import collective
from paceline.exchange.group_wire import GroupWire
from paceline.exchange.process_group import join, leave
from paceline.prediction.measure import PAUSE, since_the_last, sleep
from tests.exchange.socket_bytes import socket_bytes

_MOST_ROUNDS = 10  # repetitions of a small vector in each turn
_WARM = 1_000_000  # numbers that are exchanged before the first turn, and in a turn's rounds


class Asked(NamedTuple):
    """Request to exchange a vector [length] of float32 by the collective with this name."""

    collective: str
    length: int


class Carried(NamedTuple):
    """One exchange, observed by one worker.

    `began`, `ended`: times on the clock of the machine [seconds]. `sent`, `received`: bytes of this
    worker's messages; the messages of the collective `native` are not counted. `by_kernel`:
    bytes (sent, received) on all connections including headers, as the kernel counts them.
    """

    began: float
    ended: float
    sent: int
    received: int
    by_kernel: tuple[int, int]


@dataclass(frozen=True)
class Exchanged:
    """Measurement of one request, by all workers or (in `exchange_by_turns`) by one.

    `seconds`: for each turn, the time from the arrival of the last worker until a worker has the
    sum, averaged over workers and repetitions. `sent`, `received`: bytes of the workers in one
    exchange, counted in the messages, or for the collective `native` by the kernel. `formula`:
    bytes that the workers send according to the collective's own formula.
    """

    seconds: list[float]
    sent: int
    received: int
    formula: int


def measure_exchanges(
    cluster: AbstractCluster, workers: int, asked: Sequence[Asked], turns: int
) -> list[Exchanged]:
    """Start `workers` processes that carry out the requests `asked`; return their measurements.

    In each of `turns` turns, all requests are carried out one after the other. Raises
    ProcessFailure if a process fails, or waits too long for another process.
    """
    target = f"{exchange_by_turns.__module__}:{exchange_by_turns.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        arguments = (list(asked), turns, cluster.timeout_seconds)
        of_workers = cluster.run(Task(target, arguments, workers, 0, Path(folder)))
    return [_of_all(seen) for seen in zip(*of_workers, strict=True)]


def _of_all(workers: Sequence[Exchanged]) -> Exchanged:
    """Add up the bytes of all workers; their seconds are equal."""
    sums = (sum(getattr(w, name) for w in workers) for name in ("sent", "received", "formula"))
    return Exchanged(workers[0].seconds, *sums)


def exchange_by_turns(
    asked: Sequence[Asked], turns: int, timeout_seconds: float
) -> list[Exchanged]:
    """Act as one worker of `measure_exchanges`.

    Returns, for each request, the seconds and the bytes of this worker.
    """
    torch.set_num_threads(1)
    join(timeout_seconds, "cpu")
    for each in asked:
        _check_sum(each)
    found = [[_turn(each) for each in asked] for _ in range(turns)]
    leave()
    return [
        replace(by_turn[0], seconds=[turn.seconds[0] for turn in by_turn])
        for by_turn in zip(*found, strict=True)
    ]


def carry_out(name: str, vector: torch.Tensor, pause: float = 0) -> Carried:
    """Sum `vector` over all processes by the collective `name`; return times and bytes.

    All processes must call this. `pause`: longest pause before the exchange [seconds].
    """
    wire = GroupWire()
    dist.barrier()
    before = socket_bytes()
    if pause:
        sleep(pause)
    began = time.perf_counter()
    wire.all_reduce(vector, collective(name))
    ended = time.perf_counter()
    dist.barrier()  # before it, the last bytes may still be in a buffer
    sent, received = (now - then for now, then in zip(socket_bytes(), before, strict=True))
    by_wire = wire.bytes_sent, wire.bytes_received
    return Carried(began, ended, *by_wire, (sent, received))


def _turn(asked: Asked) -> Exchanged:
    vector = torch.zeros(asked.length)
    rounds = max(1, min(_MOST_ROUNDS, _WARM // asked.length))
    seen = [carry_out(asked.collective, vector, PAUSE) for _ in range(rounds)]
    seconds = since_the_last([each.began for each in seen], [each.ended for each in seen])
    last = seen[-1]
    counted = last.by_kernel if asked.collective == "native" else (last.sent, last.received)
    chosen, rank = collective(asked.collective), dist.get_rank()
    volume = chosen.volumes(dist.get_world_size(), asked.length)[rank]
    formula, _ = volume.in_bytes(vector.element_size())
    return Exchanged([fmean(seconds)], *counted, formula)


def _check_sum(asked: Asked) -> None:
    """Warm the collective up by summing ones. Raises RuntimeError for a wrong sum."""
    ones = torch.ones(min(asked.length, _WARM))
    carry_out(asked.collective, ones)
    if not bool((ones == dist.get_world_size()).all()):
        raise RuntimeError(f"{asked.collective}: the sum of ones is not the number of workers")
