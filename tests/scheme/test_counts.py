"""Counts of batches, pushes and updates, against formulas by hand."""

import itertools

import pytest

from paceline.errors import SettingError
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.counts import Counts
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import AbstractServedScheme
from paceline.scheme.serving import AbstractServing, Release
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync

WORKERS = (1, 2, 3, 4, 6, 8, 16)


def one(k):
    return 1


def every(k):
    return k


def others(k):
    return k - 1


def none(k):
    return 0


# batches in an update, batches of which a run takes a multiple, and staleness, of k workers
CASES = [
    (SyncAllReduce(), every, every, none),
    (AsyncParameterServer(1), one, one, others),
    (AsyncParameterServer(3, "inverse_staleness"), one, one, others),
    (AsyncParameterServer(2, "delay_compensation"), one, one, others),
    (SyncParameterServer(2), every, every, none),
    *((SyncParameterServer(1, b), *2 * [lambda k, b=b: k - b], none) for b in (1, 2, 5)),
    (StaleSynchronous(1, 0), one, one, lambda k: (k - 1) / 2),
    (StaleSynchronous(2, 1), one, one, others),
    (StaleSynchronous(1, 10**6), one, one, others),
    *(
        (AsyncParameterServer(1, group_size=g), *2 * [lambda k, g=g: g], lambda k, g=g: k / g - 1)
        for g in (1, 2, 3, 4, 16)
    ),
    *((SyncThenAsync(1, s), every, every, others) for s in (0, 0.25, 0.5, 0.99)),
    (SyncThenAsync(1, 1), every, every, none),
    (Independent(), one, one, none),
    (LocalSGD(3), every, every, none),
    *((PostLocalSGD(3, s), every, every, none) for s in (0, 0.5, 1)),
    *((ElasticAveraging(1, p, 0.1), one, lambda k, p=p: p, none) for p in (1, 3, 8)),
    *((Gossip(graph), every, one, none) for graph in ("ring", "exponential", "complete")),
]


def refused(scheme, k):
    return k % scheme.group_size or getattr(scheme, "backup_workers", 0) >= k


def test_counts_are_those_of_formulas():
    for (scheme, update, together, staleness), k in itertools.product(CASES, WORKERS):
        if refused(scheme, k):
            with pytest.raises(SettingError, match=r"^scheme\.(group_size|backup_workers): "):
                Counts(scheme, k)
            continue
        counts, case, late = Counts(scheme, k), (scheme, k), getattr(scheme, "backup_workers", 0)
        assert counts.batches_per_update == update(k), case
        assert counts.batches_per_round == together(k), case
        assert counts.expected_staleness == staleness(k), case
        for updates in (1, 7, 10):
            steps = updates * update(k)
            most = (updates + 1) * k if late else steps
            assert counts.most_batches(steps) == most, case
        for num_steps in (None, 48, 480) if not isinstance(scheme, SyncThenAsync) else (None,):
            batches = [counts.batches(updates, num_steps) for updates in range(20)]
            assert batches == [updates * update(k) for updates in range(20)], case


def test_updates_are_of_all_workers_until_the_switch_and_of_one_then():
    for switch_at, k in itertools.product((0, 0.01, 0.25, 0.3, 0.45, 0.5, 0.99, 1), WORKERS):
        counts = Counts(SyncThenAsync(1, switch_at), k)
        for num_steps in (40, 48, 96, 480):
            together = -int(-switch_at * num_steps / k // 1)  # rounded up
            expected = [
                min(n, together) * k + max(0, n - together)
                for n in range(num_steps)
                if switch_at < 1 or n * k <= num_steps
            ]
            found = [counts.batches(n, num_steps) for n in range(len(expected))]
            assert found == expected, (switch_at, k, num_steps)
        assert [counts.batches(n, None) for n in range(9)] == [n * k for n in range(9)]


def test_a_group_speaks_by_its_first_worker():
    counts = Counts(AsyncParameterServer(servers=1, group_size=2), 4)
    assert [counts.group_of(worker) for worker in range(4)] == [range(2)] * 2 + [range(2, 4)] * 2
    assert list(counts.pushing) == [0, 2]
    alone = Counts(SyncAllReduce(), 3)
    assert [list(alone.group_of(worker)) for worker in range(3)] == [[0], [1], [2]]
    assert list(alone.pushing) == [0, 1, 2]


class InTwos(AbstractServing):
    """Every `number` pushes that have come, of whatever version, are one update."""

    def __init__(self, number):
        self._number, self._waiting = number, ()

    def arrive(self, arrival):
        self._waiting = (*self._waiting, arrival.worker)
        if len(self._waiting) < self._number:
            return Release()
        together, self._waiting = self._waiting, ()
        return Release(together, together)


class StaleInTwos(AbstractServedScheme):
    servers = 1

    def serving(self, num_workers):
        return InTwos(2)


class Silence(StaleInTwos):
    def serving(self, num_workers):
        return InTwos(num_workers + 1)


def test_batches_meanwhile_are_those_of_all_pushes_in_a_stale_update():
    counts = Counts(StaleInTwos(), 6)
    assert counts.expected_staleness == 2  # updates by the two other pairs
    assert counts.batches_meanwhile == 4
    with pytest.raises(SettingError, match=r"^scheme: Silence lets all workers wait"):
        _ = Counts(Silence(), 2).batches_per_update
