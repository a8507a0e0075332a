"""Every collective between real processes: bytes, as counted, against formulas; and seconds.

With more processes than cores the seconds say little about a cluster; the bytes are what holds.
The vectors are as long as the gradients of NiN, GoogLeNet, ResNet-50 and AlexNet.
"""

from statistics import median
from typing import Any

import torch

from benchmarks.row import row
from paceline.cluster.launcher import call_in_processes
from paceline.exchange.find_collective import collective, collective_names
from paceline.exchange.process_group import join
from paceline.run.exchange_turns import carry_out
from paceline.timing.profile import ClusterProfile, Link

MEGABYTES = (30, 54, 102, 250)
WORKERS = (2, 4, 8)
WORKERS_PER_NODE = 2  # to collectives that need nodes
TURNS = 3
ONE_BYTE_A_SECOND = ClusterProfile(Link(0, 1), Link(0, 1), None, 0, 1)
Seen = dict[str, Any]  # of one collective and worker


def rows() -> list[dict[str, Any]]:
    return [line for count in WORKERS for line in _rows(count)]


def _rows(workers: int) -> list[dict[str, Any]]:
    of_workers = call_in_processes(measure, MEGABYTES, TURNS, workers=workers)
    found = []
    for number, size in enumerate(MEGABYTES):
        of_size = [worker[number] for worker in of_workers]
        native = _seconds([seen["native"] for seen in of_size])
        for name in collective_names():
            title = f"{name}, {workers} workers, {size} MB"
            found += _lines(title, name, [seen[name] for seen in of_size], native)
    return found


def _lines(title: str, name: str, seen: list[Seen], native: float) -> list[dict[str, Any]]:
    seconds = _seconds(seen)
    by_wire = max(worker["sent"] for worker in seen)
    by_kernel = max(worker["sent_by_kernel"] for worker in seen)
    if name == "native":  # gloo's own messages: the kernel alone has seen them
        busiest, by_wire = by_kernel, by_kernel
    else:
        busiest = busiest_bytes([worker["rounds"] for worker in seen])
    formula = _formula(name, seen[0]["num_bytes"], len(seen))
    return [
        _within(f"{title}: on the busiest links / formula", busiest, formula, 0.05),
        _within("  sent by the worker that sends most / by the kernel", by_wire, by_kernel, 0.01),
        row("  time / native's", seconds, native, "s", seconds / native, "shown", True),
    ]


def busiest_bytes(rounds: list[list[tuple[int, int]]]) -> int:
    """Add up what the busiest link carries in each round; `rounds` of each worker's wire.

    A link carries both directions at once, and a round lasts as long as its busiest worker. Over
    the bandwidth this is the time that cost formulas speak of, latency apart.
    """
    return sum(max(max(counted) for counted in at_once) for at_once in zip(*rounds, strict=True))


def _within(name: str, ours: float, theirs: float, part: float) -> dict[str, Any]:
    ratio = ours / theirs
    target = f"{1 - part:g} to {1 + part:g}"
    return row(name, ours / 1e6, theirs / 1e6, "MB", ratio, target, abs(ratio - 1) <= part)


def _seconds(seen: list[Seen]) -> float:
    """Of the slowest worker, in the median turn."""
    return median(max(turn) for turn in zip(*(worker["seconds"] for worker in seen), strict=True))


def _formula(name: str, num_bytes: int, workers: int) -> float:
    """Bytes that pass the busiest links one after the other."""
    if name == "hierarchical":
        inside = _formula("tree", num_bytes, WORKERS_PER_NODE)
        return inside + _formula("ring", num_bytes, workers // WORKERS_PER_NODE)
    return collective(name).seconds(num_bytes, workers, ONE_BYTE_A_SECOND)


def measure(megabytes: tuple[int, ...], turns: int) -> list[dict[str, Seen]]:
    """In each process: of each size and collective, taken by turns."""
    torch.set_num_threads(1)
    join(300, "cpu")
    return [_measure_size(size * 1_000_000, turns) for size in megabytes]


def _measure_size(num_bytes: int, turns: int) -> dict[str, Seen]:
    vector = torch.zeros(num_bytes // 4)
    found: dict[str, Seen] = {name: {"seconds": []} for name in collective_names()}
    for _ in range(turns):
        for name in collective_names():
            seconds, counted = _measure(name, vector)
            found[name]["seconds"].append(seconds)
            found[name].update(counted)
    return found


def _measure(name: str, vector: torch.Tensor) -> tuple[float, Seen]:
    seen = carry_out(name, vector, WORKERS_PER_NODE)
    return seen.ended - seen.began, {
        "num_bytes": vector.nbytes,
        "sent": seen.sent,
        "sent_by_kernel": seen.by_kernel[0],
        "rounds": seen.rounds,
    }
