"""The rules by hand, without processes; and what every scheme has to bring."""

import inspect
import io
import itertools
import pkgutil
from dataclasses import replace
from importlib import import_module

import pytest
import torch
import yaml
from torch.testing import assert_close

import paceline.scheme
from paceline.errors import SettingError
from paceline.record.target import MOVED, Target
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.counts import END, Counts
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import (
    AbstractScheme,
    Apply,
    Kept,
    Mean,
    NeighbourMean,
    PairMean,
    Push,
    WorkerView,
    next_message,
)
from paceline.scheme.serving import Arrival, AtOnce, Bounded, Release, ThenAtOnce, Together
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_gossip import SyncGossip
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync
from tests.clock.test_laws import LAWS
from tests.tiny import REPOSITORY

CONF = sorted((REPOSITORY / "conf/scheme").glob("*.yaml"))
GRADIENT = torch.tensor([1.0, -2.0], dtype=torch.float64)
WEIGHTS = torch.tensor([16.0, 32.0], dtype=torch.float64)


def view(step=0, progress=0.0, worker=1):
    return WorkerView(
        GRADIENT.clone(),
        WEIGHTS.clone(),
        index=worker,
        num_workers=4,
        num_steps=step,
        progress=progress,
    )


def messages_of(rule):
    """All messages of a rule; a value is answered by its copy, the others by zeros or nothing."""
    answer = None
    while (message := next_message(rule, answer)) is not None:
        yield message
        match message:
            case Apply(gradient):
                answer = 0 * gradient
            case Kept(number):
                answer = [0 * WEIGHTS] * number
            case Mean(value) | NeighbourMean(value) | Push(value):
                answer = value.clone()
            case _:
                answer = None


@pytest.mark.parametrize("graph", ["ring", "exponential"])
def test_neighbours_send_what_others_wait_for_and_keep_the_mean(graph):
    for workers in range(1, 18):
        mixed = torch.eye(workers, dtype=torch.float64)
        for num_steps in range(4):
            matrix = torch.eye(workers, dtype=torch.float64)
            sent = set()
            for worker in range(workers):
                seen = replace(view(num_steps, worker=worker), num_workers=workers)
                messages = messages_of(SyncGossip(graph).step(seen))
                mean = next(each for each in messages if isinstance(each, NeighbourMean))
                sent |= {(worker, receiver) for receiver in mean.receivers}
                matrix[worker, list(mean.senders)] = 1
            received, senders = matrix.fill_diagonal_(0).nonzero().T.tolist()
            assert set(zip(senders, received, strict=True)) == sent
            matrix.fill_diagonal_(1)
            matrix /= matrix.sum(1, keepdim=True)
            assert_close(matrix.sum(0), torch.ones(workers, dtype=torch.float64))
            mixed = matrix @ mixed
        if graph == "exponential" and workers in (2, 4, 16):
            assert_close(mixed, torch.full_like(mixed, 1 / workers))


def partners_of(graph, workers):
    return [Gossip(graph).partners(worker, workers) for worker in range(workers)]


@pytest.mark.parametrize(
    ("graph", "workers", "partners"),
    [
        ("ring", 1, [()]),
        ("ring", 2, [(), (0,)]),
        ("ring", 5, [(), (0, 2), (), (2, 4), ()]),  # and not 4 with 0: both are passive
        ("ring", 6, [(), (0, 2), (), (2, 4), (), (0, 4)]),
        ("exponential", 6, [(), (0, 2, 4), (), (0, 2, 4), (), (0, 2, 4)]),
        ("complete", 5, [(), (0, 2, 4), (), (0, 2, 4), ()]),
    ],
)
def test_active_workers_ask_their_neighbours_in_the_graph(graph, workers, partners):
    assert partners_of(graph, workers) == partners


def test_neighbours_in_an_exponential_graph_are_1_3_5_9_and_17_apart():
    apart = {(partner - 41) % 100 for partner in partners_of("exponential", 100)[41]}
    assert apart == {way * d % 100 for d in (1, 3, 5, 9, 17, 33, 65) for way in (1, -1)}
    assert len(partners_of("complete", 100)[41]) == 50


def test_active_workers_draw_all_partners_about_equally_often():
    scheme, partners = Gossip("complete"), []
    for step in range(40):
        (mean,) = messages_of(scheme.beside(3, 8, num_steps=step, seed=1))
        partners.append(scheme.partners(3, 8).index(mean.partner))
    assert all(4 < partners.count(place) < 20 for place in range(4))
    assert scheme.beside(2, 4, num_steps=0, seed=1) is None


def released(serving, *arrivals):
    """What each push releases: (applied, answered, dropped)."""
    found = [serving.arrive(Arrival(*arrival)) for arrival in arrivals]
    return [(each.applied, each.answered, each.dropped) for each in found]


NOBODY = ((), (), ())


def at_once(*workers):
    return [((worker,), (worker,), ()) for worker in workers]


@pytest.mark.parametrize(
    ("scheme", "workers", "arrivals", "releases"),
    [
        (AsyncParameterServer(servers=2), 3, [(0, 4), (2, 9)], at_once(0, 2)),
        (AsyncParameterServer(servers=1, group_size=2), 4, [(2, 0), (0, 1)], at_once(2, 0)),
        (
            SyncParameterServer(servers=1),
            3,
            [(2, 0), (0, 0), (1, 0)],
            [NOBODY, NOBODY, ((2, 0, 1), (2, 0, 1), ())],
        ),
        (
            SyncParameterServer(servers=1, backup_workers=1),
            3,
            [(2, 0), (0, 0), (1, 1), (1, 0)],
            [NOBODY, ((2, 0), (2, 0), ()), ((), (1,), (1,)), NOBODY],
        ),
        (
            SyncThenAsync(servers=1, switch_at=0.5),
            2,
            [(0, 0, 0.4), (1, 0, 0.4), (0, 0, 0.5), (1, 1, 0.6)],
            [NOBODY, ((0, 1), (0, 1), ()), *at_once(0, 1)],
        ),
        (  # worker 0 leads by 1, by 2, and goes on when 1 has followed
            StaleSynchronous(servers=1, bound=1),
            2,
            [(0, 0), (0, 0), (1, 2), (1, 1), (1, 0), (1, 0)],
            [*at_once(0), ((0,), (), ()), ((1,), (0, 1), ()), *at_once(1, 1), ((1,), (), ())],
        ),
    ],
)
def test_a_server_applies_answers_and_drops_pushes_by_its_rule(scheme, workers, arrivals, releases):
    assert released(scheme.serving(workers), *arrivals) == releases


def test_who_has_left_is_not_waited_for():
    serving = SyncParameterServer(servers=1).serving(num_workers=3)
    assert released(serving, (2, 0), (0, 0)) == [NOBODY, NOBODY]
    assert serving.leave(1) == Release((2, 0), (2, 0))
    assert serving.leave(2) == Release()


def test_a_push_of_a_worker_that_is_gone_is_dropped():
    serving = SyncParameterServer(servers=1).serving(num_workers=3)
    assert released(serving, (2, 0), (0, 0)) == [NOBODY, NOBODY]
    assert serving.leave(2) == Release(dropped=(2,))
    assert released(serving, (1, 0)) == [((0, 1), (0, 1), ())]
    serving = StaleSynchronous(servers=1, bound=0).serving(num_workers=2)
    assert released(serving, (0, 0)) == [((0,), (), ())]
    assert serving.leave(0) == Release()
    serving = StaleSynchronous(servers=1, bound=0).serving(num_workers=2)
    assert released(serving, (1, 0)) == [((1,), (), ())]
    assert serving.leave(0) == Release(answered=(1,))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SyncParameterServer(2, 1), "backup_workers: .* servers=1 is needed"),
        (lambda: SyncParameterServer(1, 1, 2), "backup_workers: .* group_size=1 is needed"),
        (
            lambda: Counts(AsyncParameterServer(1, group_size=3), 4),
            "group_size: 3 does not divide workers=4",
        ),
        (lambda: Counts(SyncParameterServer(1, 4), 4), "backup_workers: 4 leave none"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(build, message):
    with pytest.raises(SettingError, match=f"^scheme.{message}"):
        build()


def rules_in(module):
    """The classes of this module that fill in a rule."""
    for value in vars(module).values():
        rule = isinstance(value, type) and issubclass(value, AbstractScheme)
        if rule and value.__module__ == module.__name__ and not inspect.isabstract(value):
            yield f"{module.__name__}.{value.__name__}"


def built(path):
    return Target("scheme", yaml.safe_load(path.read_text())).build()


def test_every_scheme_has_its_settings_and_every_setting_its_scheme():
    names = [each.name for each in pkgutil.iter_modules(paceline.scheme.__path__)]
    rules = {name: list(rules_in(import_module(f"paceline.scheme.{name}"))) for name in names}
    targets = {path.stem: [yaml.safe_load(path.read_text())["_target_"]] for path in CONF}
    (mixed,) = targets.pop("mixed")
    assert MOVED[mixed] in rules["async_parameter_server"]
    assert targets == {name: found for name, found in rules.items() if found and name != "rule"}
    assert LAWS.keys() == {path.stem for path in CONF}
    assert all(LAWS.values())


VARIANTS = [
    *map(built, CONF),
    AsyncParameterServer(1, "delay_compensation", 0),
    SyncParameterServer(1, 2),
    *(PostLocalSGD(3, switch_at) for switch_at in (0, 0.3, 1)),
    *(ElasticAveraging(1, period, 0.1) for period in (1, 3, 8)),
    *(Gossip(graph) for graph in ("ring", "exponential", "complete")),
]


@pytest.mark.parametrize("scheme", VARIANTS, ids=repr)
def test_the_traits_of_a_scheme_are_true_of_its_rule(scheme):
    found, pushes, averages = set(), [], False
    for progress, worker, num_steps in itertools.product((0, 0.3, END), range(4), range(70)):
        seen = view(num_steps, progress, worker)
        messages = list(messages_of(scheme.step(seen)))
        found |= {type(message) for message in messages}
        applied = [each.gradient for each in messages if isinstance(each, Apply)]
        averages |= any(gradient is not seen.gradient for gradient in applied)
        pushes += [num_steps for each in messages if isinstance(each, Push) and not worker]
    found |= {type(each) for steps in range(70) for each in messages_of(scheme.end(WEIGHTS, steps))}
    besides = [scheme.beside(worker, 4, num_steps=0, seed=0) for worker in range(4)]
    asked = {type(each) for rule in filter(None, besides) for each in messages_of(rule)}
    assert asked == {PairMean} if any(scheme.partners(w, 4) for w in range(4)) else asked == set()
    assert scheme.own_weights == (Apply in found)
    assert scheme.equal_steps == bool(found & {Mean, NeighbourMean})
    assert scheme.averages_gradients == averages
    assert bool(scheme.servers) == (Push in found)
    assert {after - before for before, after in itertools.pairwise(pushes) if after > before} <= {
        scheme.steps_between_pushes
    }
    needed = scheme.served(GRADIENT, WEIGHTS, WEIGHTS * torch.nan)
    assert scheme.needs_read == bool(needed.isnan().any())


SERVING = {
    "at once": AtOnce,
    "together": lambda: Together(3, 2),
    "bounded": lambda: Bounded(range(3), 1),
    "then at once": lambda: ThenAtOnce(3, 0.5),
}


@pytest.mark.parametrize("build", SERVING.values(), ids=SERVING.keys())
def test_a_server_goes_on_from_its_plain_state(build):
    arrivals = [Arrival(n % 3, 0, n / 9) for n in (0, 0, 1, 2, 2, 1, 0, 1, 2)]
    for before in range(len(arrivals)):
        whole, file = build(), io.BytesIO()
        for arrival in arrivals[:before]:
            whole.arrive(arrival)
        torch.save(whole.state(), file)
        file.seek(0)
        resumed = build()
        resumed.load_state(torch.load(file, weights_only=True))
        for arrival in arrivals[before:]:
            assert resumed.arrive(arrival) == whole.arrive(arrival)
        assert resumed.leave(1) == whole.leave(1)
        assert resumed.pushes_before_a_stop() == whole.pushes_before_a_stop()
