"""Audits of a run's log, which check what a rule promises without using its code.

Each function reads the log of an ended run in which no worker was lost. The function returns a
description of the first entry that breaks the promise, or "". A server's log of pushes has a pair
(worker, staleness [updates]) for each push, in the order of arrival.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Pushes = Sequence[tuple[int, int]]
Dropped = Iterable[tuple[int, int]]  # worker, and number of the push among its own


class Averaged(NamedTuple):
    """Mean of a worker's weights and its partner's. `sent_after`: number of steps that the worker
    had taken when it sent its weights. `held_after`: number of steps that it had taken when it held
    the mean. In the log of the worker that was asked, these two numbers are equal.
    """

    partner: int
    sent_after: int
    held_after: int


class ServedLog(NamedTuple):
    """Log of one server. `workers`: workers that push to it. `grants`: True if the server's answers
    decide whether a worker takes another step.
    """

    pushes: Pushes
    dropped: Dropped
    workers: Sequence[int]
    grants: bool = True


class RunLog(NamedTuple):
    """Log of a run: its servers in order, and the steps and pairwise means of each worker."""

    steps: Mapping[int, int]
    servers: Sequence[ServedLog] = ()
    averages: Mapping[int, Sequence[Averaged]] = {}


def not_at_once(log: ServedLog, first: int = 0) -> str:
    """Check that each push from number `first` on was one update and was answered at once. Then its
    staleness is the number of pushes since the worker's previous one, and each worker had a step
    under way at the end.
    """
    last = {worker: first for worker in log.workers}
    for number, (worker, staleness) in enumerate(log.pushes[first:], first):
        between = number - last[worker]
        if staleness != between:
            return f"push {number} of worker {worker} was {staleness} late, {between} if at once"
        last[worker] = number + 1
    ending = [worker for worker, _ in log.pushes[first:]][-len(log.workers) :]
    if log.grants and len(set(ending)) < len(ending):
        twice = next(worker for worker, count in Counter(ending).items() if count > 1)
        return f"worker {twice} pushed twice while another's last step was under way"
    return ""


def not_together(log: ServedLog, needed: int, end: int | None = None) -> str:
    """Check that, before push number `end`, each update was of `needed` pushes for one version of
    the weights, or of those of all workers still running.
    """
    numbers, dropped = Counter[int](), set(log.dropped)
    pushes, begun = log.pushes[:end], set[int]()
    for place, (worker, staleness) in enumerate(pushes):
        lost = (worker, numbers[worker]) in dropped
        numbers[worker] += 1
        if staleness > 0 and not lost:
            return f"push {place} of worker {worker} was {staleness} late, and applied"
        if lost:
            continue
        if worker in begun:
            there = begun | {each for each, _ in pushes[place:]}
            if len(begun) < min(needed, len(there)):
                return f"push {place} of worker {worker} met an update of {len(begun)} of {needed}"
            begun = set[int]()
        begun.add(worker)
        if len(begun) == needed:
            begun = set[int]()
    return ""


def not_bounded(log: ServedLog, bound: int) -> str:
    """Check that a worker began a step only if it led by at most `bound` steps."""
    steps, left = Counter(dict.fromkeys(log.workers, 0)), Counter(w for w, _ in log.pushes)
    last = dict.fromkeys(log.workers, 0)
    for number, (worker, staleness) in enumerate(log.pushes):
        lead = steps[worker] - min(steps[each] for each in log.workers if left[each])
        if lead > bound:
            return f"push {number} of worker {worker} was of a step that led by {lead}, not {bound}"
        if staleness > number - last[worker]:
            return f"push {number} of worker {worker} was {staleness} late, more than were made"
        last[worker] = number + 1
        steps[worker] += 1
        left[worker] -= 1
    return ""


def not_switched(log: ServedLog, switch_at: float) -> str:
    """Check that pushes were averaged until `switch_at` of all, and applied at once afterwards."""
    needed, total = len(log.workers), len(log.pushes)
    rounds = range(0, total, needed)
    end = next((first for first in rounds if first / total >= switch_at), total)
    if broken := not_together(log, needed, end):
        return broken
    return not_at_once(log, end) if end < total else ""


def not_in_groups(log: ServedLog, group_size: int, steps: Mapping[int, int]) -> str:
    """Check that each group pushed as one. `steps`: number of steps of each worker."""
    pushed = Counter(worker for worker, _ in log.pushes)
    for worker in pushed:
        if worker % group_size:
            return f"worker {worker} pushed without its group"
    for worker, taken in steps.items():
        whole = pushed[worker - worker % group_size]
        if taken != whole:
            return f"worker {worker} took {taken} steps, and its group pushed {whole}"
    return ""


def not_in_pairs(averages: Mapping[int, Sequence[Averaged]], steps: Mapping[int, int]) -> str:
    """Check pairwise means: only a worker of odd number asked one of even number, and it asked no
    other until it held that mean. Both tell of equally many means with each other, except for one
    that may have been under way at the end.
    """
    told = {worker: Counter(each.partner for each in means) for worker, means in averages.items()}
    for worker, partners in told.items():
        for partner, count in partners.items():
            if worker % 2 == partner % 2:
                return f"worker {worker} took a mean with {partner}, of the same kind"
            other, under_way = told.get(partner, Counter())[worker], worker % 2 == 0
            if not other <= count <= other + 1 if under_way else not count <= other <= count + 1:
                return f"worker {worker} tells of {count} means with {partner}, that of {other}"
    for worker, means in averages.items():
        held = 0
        for each in means:
            if not held <= each.sent_after <= each.held_after <= steps[worker]:
                return f"worker {worker} sent to {each.partner} before it held the mean before"
            held = each.held_after
    if len(steps) > 1 and max(steps.values()) > 1 and not any(told.values()):
        return "no two took a mean"
    return ""
