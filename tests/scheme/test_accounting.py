"""What a rule on trial is counted by, against formulas by hand."""

import itertools
from typing import NamedTuple, final

import pytest
import torch

from paceline.errors import SettingError
from paceline.scheme.accounting import Accounting
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import AbstractScheme, AbstractServedScheme, Adopt, Apply, Mean, Push
from paceline.scheme.serving import AbstractServing, Release
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync

WORKERS = (1, 2, 3, 4, 6, 8, 16)


class Expected(NamedTuple):
    """Formulas in the number of workers k. `round`: batches of which a run takes a multiple."""

    own_weights: bool
    equal_steps: bool
    update: object
    round: object
    staleness: object = lambda k: 0.0
    steps_between_pushes: int = 1
    group_size: int = 1
    needs_read: bool = False
    most_batches: object = lambda k, n: n


def served(update, staleness, **others):
    return Expected(False, False, update, update, staleness, **others)


def meeting():
    return Expected(True, True, lambda k: k, lambda k: k)


def apart(update, steps=1):
    return Expected(True, False, update, lambda k: steps, steps_between_pushes=steps)


def one(k):
    return 1


def others(k):
    return float(k - 1)


def late(b):
    """Of k workers, b are late in each version."""
    return lambda k, n: (n // (k - b) + 1) * k


CASES = [
    (SyncAllReduce(), meeting()),
    (SyncAllReduce("ring", "none"), meeting()),
    (AsyncParameterServer(1), served(one, others)),
    (AsyncParameterServer(3, "inverse_staleness"), served(one, others)),
    (AsyncParameterServer(2, "delay_compensation"), served(one, others, needs_read=True)),
    (AsyncParameterServer(1, "delay_compensation", 0), served(one, others, needs_read=True)),
    (SyncParameterServer(2), served(lambda k: k, lambda k: 0.0)),
    *(
        (
            SyncParameterServer(1, b),
            served(lambda k, b=b: k - b, lambda k: 0.0, most_batches=late(b)),
        )
        for b in (1, 2, 5)
    ),
    (StaleSynchronous(1, 0), served(one, lambda k: (k - 1) / 2)),
    (StaleSynchronous(2, 1), served(one, others)),
    (StaleSynchronous(1, 3), served(one, others)),
    (StaleSynchronous(1, 10**6), served(one, others)),
    *(
        (
            AsyncParameterServer(1, group_size=g),
            served(lambda k, g=g: g, lambda k, g=g: k / g - 1, group_size=g),
        )
        for g in (1, 2, 3, 4, 16)
    ),
    *((SyncThenAsync(1, s), served(lambda k: k, others)) for s in (0, 0.25, 0.5, 0.99)),
    (SyncThenAsync(1, 1), served(lambda k: k, lambda k: 0.0)),
    (Independent(), apart(one)),
    *((LocalSGD(period), meeting()) for period in (1, 3, 8)),
    *((PostLocalSGD(period, s), meeting()) for period in (1, 3) for s in (0, 0.5, 1)),
    *((ElasticAveraging(1, period, 0.1), apart(one, period)) for period in (1, 3, 8)),
    (ElasticAveraging(2, 4, 0), apart(one, 4)),
    *((Gossip(graph), apart(lambda k: k)) for graph in ("ring", "exponential", "complete")),
]


def refused(scheme, k):
    return k % scheme.group_size or getattr(scheme, "backup_workers", 0) >= k


EVERY = [(scheme, k, expected) for scheme, expected in CASES for k in WORKERS]


def test_a_rule_on_trial_gives_the_numbers_that_formulas_give():
    for scheme, k, expected in EVERY:
        if refused(scheme, k):
            continue
        accounting, case = Accounting(scheme, k), (scheme, k)
        assert accounting.own_weights == expected.own_weights, case
        assert accounting.equal_steps == expected.equal_steps, case
        assert accounting.batches_per_update == expected.update(k), case
        assert accounting.images_per_update(batch_size=8) == 8 * expected.update(k), case
        assert accounting.batches_per_round == expected.round(k), case
        assert accounting.expected_staleness == expected.staleness(k), case
        between = expected.steps_between_pushes
        assert accounting.steps_between_pushes == between, case
        assert accounting.steps_per_push == between * expected.group_size, case
        assert accounting.needs_read == expected.needs_read, case
        for updates in (1, 7, 10):
            steps = updates * expected.update(k)
            assert accounting.most_batches(steps) == expected.most_batches(k, steps), case
        for num_steps in (None, 48, 480) if not isinstance(scheme, SyncThenAsync) else (None,):
            batches = [accounting.batches(updates, num_steps) for updates in range(20)]
            assert batches == [updates * expected.update(k) for updates in range(20)], case


def test_numbers_of_workers_that_a_rule_cannot_have_are_refused():
    cannot = [(scheme, k) for scheme, k, _ in EVERY if refused(scheme, k)]
    assert cannot
    for scheme, k in cannot:
        with pytest.raises(SettingError, match=r"^scheme\.(group_size|backup_workers): "):
            Accounting(scheme, k)


def test_updates_are_of_all_workers_until_the_switch_and_of_one_then():
    for switch_at, k in itertools.product((0, 0.01, 0.25, 0.3, 0.45, 0.5, 0.99, 1), WORKERS):
        accounting = Accounting(SyncThenAsync(1, switch_at), k)
        for num_steps in (40, 48, 96, 480):
            together = -int(-switch_at * num_steps / k // 1)  # rounded up
            expected = [
                min(n, together) * k + max(0, n - together)
                for n in range(num_steps)
                if switch_at < 1 or n * k <= num_steps
            ]
            found = [accounting.batches(n, num_steps) for n in range(len(expected))]
            assert found == expected, (switch_at, k, num_steps)
        assert [accounting.batches(n, None) for n in range(9)] == [n * k for n in range(9)]


def test_batches_behind_updates_by_hand():
    """Of 40 batches of 4 workers, the first 12 in threes of 4: switched at 0.25, rounded up."""
    accounting = Accounting(SyncThenAsync(servers=1, switch_at=0.25), 4)
    assert [accounting.batches(n, 40) for n in (31, 0, 3, 4)] == [40, 0, 12, 13]


def test_a_group_speaks_by_its_first_worker():
    accounting = Accounting(AsyncParameterServer(servers=1, group_size=2), 4)
    assert [accounting.group_of(worker) for worker in range(4)] == [range(2)] * 2 + [
        range(2, 4)
    ] * 2
    assert list(accounting.pushing) == [0, 2]
    alone = Accounting(SyncAllReduce(), 3)
    assert [list(alone.group_of(worker)) for worker in range(3)] == [[0], [1], [2]]
    assert list(alone.pushing) == [0, 1, 2]


class PushesAtThePeriodsEnd(AbstractScheme):
    """Pushes after it has applied, unlike elastic averaging."""

    servers = 1

    def step(self, worker):
        weights = yield Apply(worker.gradient)
        if worker.num_steps % 3 == 2:
            yield Push(weights)

    def serving(self, num_workers):
        return AsyncParameterServer(1).serving(num_workers)


def test_batches_behind_a_push_are_those_that_were_applied_before_it():
    assert Accounting(PushesAtThePeriodsEnd(), 2).steps_per_push == 3


class BeginsWithAPush(AbstractScheme):
    """Pushes its first gradient, and applies the others."""

    servers = 1

    def step(self, worker):
        yield Push(worker.gradient) if worker.num_steps == 0 else Apply(worker.gradient)

    def serving(self, num_workers):
        return AsyncParameterServer(1).serving(num_workers)


def test_who_applies_gradients_follows_from_the_first_step():
    accounting = Accounting(BeginsWithAPush(), 2)
    assert not accounting.own_weights
    assert [type(message) for message in accounting.messages(1)] == [Apply]


class InTwos(AbstractServing):
    """Every two pushes that have come, of whatever version, are one update."""

    def __init__(self):
        self._waiting = ()

    def arrive(self, arrival):
        self._waiting = (*self._waiting, arrival.worker)
        if len(self._waiting) < 2:
            return Release()
        both, self._waiting = self._waiting, ()
        return Release(both, both)


class StaleInTwos(AbstractServedScheme):
    servers = 1

    def serving(self, num_workers):
        return InTwos()


def test_batches_meanwhile_are_those_of_all_pushes_in_a_stale_update():
    accounting = Accounting(StaleInTwos(), 6)
    assert accounting.expected_staleness == 2  # updates by the two other pairs
    assert accounting.batches_meanwhile == 4


class AnswersNobody(AbstractServing):
    def arrive(self, arrival):
        return Release()


class Silence(AbstractServedScheme):
    servers = 1

    def serving(self, num_workers):
        return AnswersNobody()


class Hoarding(AbstractScheme):
    servers = 1

    def step(self, worker):
        yield Apply(worker.gradient)

    def serving(self, num_workers):
        return AnswersNobody()


def test_rules_that_leave_servers_and_workers_waiting_are_refused(monkeypatch):
    with pytest.raises(SettingError, match=r"^scheme: Silence lets all workers wait"):
        _ = Accounting(Silence(), 2).batches_per_update
    monkeypatch.setattr("paceline.scheme.accounting._MOST_STEPS", 100)
    with pytest.raises(SettingError, match=r"^scheme: Hoarding has servers, but pushes in none of"):
        _ = Accounting(Hoarding(), 2).steps_per_push


@final
class _Computing(AbstractScheme):
    """Scheme whose rule does what tensors allow with the vectors that it gets."""

    def step(self, worker):
        own, gradient = worker.weights, worker.gradient
        assert isinstance(own, torch.Tensor)
        assert (own.shape, len(own), float(gradient), bool(own == 0)) == ((1,), 1, 1.0, True)
        total = torch.stack([own, gradient]).sum(0) + 2 * gradient - own / 1
        assert torch.equal(total, torch.full((1,), 3.0))
        mean = yield Mean(gradient)
        weights = yield Apply(-mean[0:1].abs().pow(2))
        yield Adopt(torch.sub(1 - weights, weights, alpha=2).lerp(weights, 0.5))


def test_a_rule_on_trial_computes_with_tensors():
    accounting = Accounting(_Computing(), 4)
    assert [type(message) for message in accounting.messages()] == [Mean, Apply, Adopt]
    assert accounting.equal_steps
    assert not accounting.applies_own_gradients
