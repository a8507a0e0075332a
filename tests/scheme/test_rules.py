"""The rules by hand, without processes; and what every scheme has to bring."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from torch.testing import assert_close

from paceline.errors import SettingError
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.mixed import Mixed
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import Adopt, Apply, Mean, PairMean, Push, WorkerView, next_message
from paceline.scheme.serving import Arrival, Release
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync

ROOT = Path(__file__).parent.parent.parent
SCHEMES = [
    path
    for path in sorted((ROOT / "src/paceline/scheme").glob("*.py"))
    if path.stem not in ("__init__", "scheme", "serving")
]
GRADIENT = torch.tensor([1.0, -2.0], dtype=torch.float64)
WEIGHTS = torch.tensor([16.0, 32.0], dtype=torch.float64)
REPLY = torch.tensor([4.0, 8.0], dtype=torch.float64)
SERVED = [
    AsyncParameterServer(servers=1),
    SyncParameterServer(servers=1),
    StaleSynchronous(servers=1, bound=1),
    Mixed(servers=1, group_size=2),
    SyncThenAsync(servers=1, switch_at=0.5),
]


def turn(step=0, progress=0.0, worker=1):
    return WorkerView(
        GRADIENT.clone(),
        WEIGHTS.clone(),
        index=worker,
        num_workers=4,
        num_steps=step,
        progress=progress,
    )


def messages_of(scheme, *answers, **when):
    """All messages of a step; communications and Apply are answered in turn, others by nothing."""
    rule, left, found = scheme.step(turn(**when)), list(answers), []
    message = next_message(rule, None)
    while message is not None:
        found.append(message)
        unanswered = isinstance(message, Adopt | PairMean)
        message = next_message(rule, None if unanswered else left.pop(0).clone())
    assert not left
    return found


def is_same(messages, *expected):
    assert [type(message) for message in messages] == [type(message) for message in expected]
    for message, other in zip(messages, expected, strict=True):
        assert_close(vars(message), vars(other), rtol=1e-14, atol=0)
    return True


def test_synchronous_workers_apply_the_mean_of_their_gradients():
    assert is_same(messages_of(SyncAllReduce(), REPLY, WEIGHTS), Mean(GRADIENT), Apply(REPLY))


@pytest.mark.parametrize("scheme", SERVED, ids=lambda scheme: type(scheme).__name__)
def test_served_workers_push_their_gradient_and_adopt_the_answer(scheme):
    assert is_same(messages_of(scheme, REPLY), Push(GRADIENT), Adopt(REPLY))


def test_independent_workers_apply_their_own_gradient():
    assert is_same(messages_of(Independent(), WEIGHTS), Apply(GRADIENT))


@pytest.mark.parametrize(("step", "meets"), [(0, False), (1, False), (2, True), (5, True)])
def test_local_sgd_takes_the_mean_of_weights_at_the_end_of_each_period(step, meets):
    expected = [Apply(GRADIENT), Mean(WEIGHTS), Adopt(REPLY)][: 3 if meets else 1]
    answers = [WEIGHTS, REPLY][: 2 if meets else 1]
    assert is_same(messages_of(LocalSGD(period=3), *answers, step=step), *expected)


@pytest.mark.parametrize("scheme", [LocalSGD(period=3), PostLocalSGD(period=3, switch_at=0.5)])
def test_a_run_of_local_sgd_ends_with_the_mean(scheme):
    assert [type(each) for each in scheme.end(WEIGHTS, steps=6)] == []
    end = scheme.end(WEIGHTS, steps=7)
    assert is_same([next(end), end.send(REPLY)], Mean(WEIGHTS), Adopt(REPLY))
    assert next_message(end, None) is None


def test_post_local_sgd_is_synchronous_first():
    scheme = PostLocalSGD(period=1, switch_at=0.5)
    early = messages_of(scheme, REPLY, WEIGHTS, progress=0.49)
    assert is_same(early, Mean(GRADIENT), Apply(REPLY))
    late = messages_of(scheme, WEIGHTS, REPLY, progress=0.5)
    assert is_same(late, Apply(GRADIENT), Mean(WEIGHTS), Adopt(REPLY))


def test_an_elastic_worker_and_the_center_go_towards_each_other():
    """From 4 and 0, a quarter of the way each: 3 and 1."""
    scheme = ElasticAveraging(1, period=2, elasticity=0.25)
    own, center = torch.full((2,), 4.0), torch.zeros(2)
    changed = center - scheme.served(own, 7, center, center)
    assert_close(changed, torch.ones(2))
    rule = scheme.step(replace(turn(step=4), weights=own))
    pushed = next(rule)
    assert isinstance(pushed, Push)
    assert_close(pushed.value, own)
    adopted = rule.send(changed)
    assert isinstance(adopted, Adopt)
    assert_close(adopted.weights, torch.full((2,), 3.0))
    assert is_same([rule.send(None)], Apply(GRADIENT))
    for step in (0, 5):  # at 0 it holds the center
        assert is_same(messages_of(scheme, WEIGHTS, step=step), Apply(GRADIENT))
    end = scheme.end(own, steps=5)
    assert is_same([next(end)], Push(own))
    assert is_same([end.send(changed)], Adopt(torch.full((2,), 3.0)))


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


def test_an_active_worker_asks_for_a_mean_and_then_applies_its_gradient():
    scheme, asked = Gossip("complete"), []
    for step in range(40):
        mean, *rest = messages_of(scheme, WEIGHTS, step=step, worker=3)
        assert is_same(rest, Apply(GRADIENT))
        asked.append(mean.partner)
    assert set(asked) == {0, 2}
    assert 10 < asked.count(0) < 30
    again = [messages_of(scheme, WEIGHTS, step=step, worker=3)[0].partner for step in range(40)]
    assert asked == again
    assert is_same(messages_of(scheme, WEIGHTS, worker=2), Apply(GRADIENT))


@pytest.mark.parametrize(
    ("damping", "gradient"),
    [
        ("none", [1.0, -2.0]),
        ("inverse_staleness", [0.25, -0.5]),
        ("delay_compensation", [1 + 3 * 1 * 4, -2 + 3 * 4 * 2]),
    ],
)
def test_damping_by_hand(damping, gradient):
    """Staleness 4; weights have gone from (6, 4) to (10, 6)."""
    scheme = AsyncParameterServer(1, damping, compensation=3)
    now, read = torch.tensor([10.0, 6.0]), torch.tensor([6.0, 4.0])
    found = scheme.served(GRADIENT.float(), 4, now, read)
    assert found.tolist() == gradient
    fresh = scheme.served(GRADIENT.float(), 0, now, now)
    assert fresh.tolist() == GRADIENT.tolist()


def test_the_compensation_is_that_of_a_constant_lambda():
    settings = yaml.safe_load((ROOT / "conf/scheme/async_parameter_server.yaml").read_text())
    assert settings["compensation"] == 0.04
    by_default = AsyncParameterServer(1, "delay_compensation").served(GRADIENT, 1, REPLY, -REPLY)
    assert_close(by_default, GRADIENT + 0.04 * GRADIENT**2 * 2 * REPLY)


def released(serving, *arrivals):
    """What each push releases: (applied, answered, dropped)."""
    found = [serving.arrive(Arrival(*arrival)) for arrival in arrivals]
    return [(each.applied, each.answered, each.dropped) for each in found]


NOBODY = ((), (), ())


def test_an_asynchronous_push_is_applied_and_answered_at_once_and_alone():
    serving = AsyncParameterServer(servers=2).serving(workers=3)
    assert released(serving, (0, 4), (2, 9)) == [((0,), (0,), ()), ((2,), (2,), ())]


def test_a_synchronous_server_waits_for_all():
    serving = SyncParameterServer(servers=1).serving(workers=3)
    together = ((2, 0, 1), (2, 0, 1), ())
    assert released(serving, (2, 0), (0, 0), (1, 0)) == [NOBODY, NOBODY, together]


def test_with_a_backup_worker_the_last_gradient_is_dropped():
    serving = SyncParameterServer(servers=1, backup_workers=1).serving(workers=3)
    arrivals = [(2, 0), (0, 0), (1, 1), (1, 0)]
    dropped = ((), (1,), (1,))
    assert released(serving, *arrivals) == [NOBODY, ((2, 0), (2, 0), ()), dropped, NOBODY]


def test_who_has_left_is_not_waited_for():
    serving = SyncParameterServer(servers=1).serving(workers=3)
    assert released(serving, (2, 0), (0, 0)) == [NOBODY, NOBODY]
    assert serving.leave(1) == Release((2, 0), (2, 0))
    assert serving.leave(2) == Release()


def test_a_push_of_a_worker_that_is_gone_is_dropped():
    serving = SyncParameterServer(servers=1).serving(workers=3)
    assert released(serving, (2, 0), (0, 0)) == [NOBODY, NOBODY]
    assert serving.leave(2) == Release(dropped=(2,))
    assert released(serving, (1, 0)) == [((0, 1), (0, 1), ())]
    serving = StaleSynchronous(servers=1, bound=0).serving(workers=2)
    assert released(serving, (0, 0)) == [((0,), (), ())]
    assert serving.leave(0) == Release()


def test_the_fastest_worker_is_held_when_it_leads_by_more_than_the_bound():
    serving = StaleSynchronous(servers=1, bound=1).serving(workers=2)
    arrivals = [(0, 0), (0, 0), (1, 2), (1, 1), (1, 0), (1, 0)]
    held, freed = ((0,), (), ()), ((1,), (0, 1), ())
    assert released(serving, *arrivals) == [
        ((0,), (0,), ()),  # leads by 1
        held,  # by 2
        freed,
        ((1,), (1,), ()),
        ((1,), (1,), ()),
        ((1,), (), ()),
    ]
    assert serving.leave(0) == Release(answered=(1,))


def test_a_group_pushes_as_one_and_waits_for_no_other():
    scheme = Mixed(servers=1, group_size=2)
    assert [scheme.group_of(worker) for worker in range(4)] == [range(2)] * 2 + [range(2, 4)] * 2
    assert list(scheme.pushing(workers=4)) == [0, 2]
    assert scheme.steps_per_push == 2
    serving = scheme.serving(workers=4)
    assert released(serving, (2, 0), (0, 1)) == [((2,), (2,), ()), ((0,), (0,), ())]


def test_sync_then_async_switches_by_samples():
    serving = SyncThenAsync(servers=1, switch_at=0.5).serving(workers=2)
    arrivals = [(0, 0, 0.4), (1, 0, 0.4), (0, 0, 0.5), (1, 1, 0.6)]
    together, first, second = ((0, 1), (0, 1), ()), ((0,), (0,), ()), ((1,), (1,), ())
    assert released(serving, *arrivals) == [NOBODY, together, first, second]


def test_batches_behind_updates():
    """Of 40 batches of 4 workers, the first 12 in threes of 4: switched at 0.25, rounded up."""
    scheme = SyncThenAsync(servers=1, switch_at=0.25)
    assert [scheme.batches(n, 4, 40) for n in (0, 3, 4, 31)] == [0, 12, 13, 40]
    assert [SyncAllReduce().batches(n, 4, 40) for n in (0, 3)] == [0, 12]
    assert AsyncParameterServer(servers=1).batches(3, 4, 40) == 3


@pytest.mark.parametrize(
    ("scheme", "images", "batches_per_round"),
    [
        (SyncAllReduce(), 32, 4),
        (AsyncParameterServer(servers=3), 8, 1),
        (SyncParameterServer(servers=1, backup_workers=1), 24, 3),
        (StaleSynchronous(servers=1, bound=2), 8, 1),
        (Mixed(servers=1, group_size=2), 16, 2),
        (SyncThenAsync(servers=1, switch_at=0.5), 32, 4),
        (Independent(), 8, 1),
        (LocalSGD(period=3), 32, 4),
        (PostLocalSGD(period=3, switch_at=0.5), 32, 4),
        (ElasticAveraging(1, period=3, elasticity=0.1), 8, 3),
        (Gossip("ring"), 32, 1),
    ],
    ids=lambda scheme: type(scheme).__name__,
)
def test_images_behind_one_update_and_batches_of_a_round(scheme, images, batches_per_round):
    assert scheme.images_per_update(batch_size=8, workers=4) == images
    assert scheme.batches_per_round(workers=4) == batches_per_round


def test_a_scheme_without_servers_serves_nobody():
    with pytest.raises(NotImplementedError, match="SyncAllReduce has no servers"):
        SyncAllReduce().serving(workers=1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AsyncParameterServer(0), "servers: a whole number of at least 1 is needed, not 0"),
        (lambda: AsyncParameterServer(1, "some"), "damping: there is no some; there are: none, "),
        (lambda: AsyncParameterServer(1, compensation=-1), "compensation: .* not -1"),
        (lambda: SyncParameterServer(1, -1), "backup_workers: .* not -1"),
        (lambda: SyncParameterServer(2, 1), "backup_workers: .* servers=1 is needed"),
        (lambda: SyncParameterServer(1, 4).serving(4), "backup_workers: 4 leave nobody"),
        (lambda: StaleSynchronous(1, -1), "bound: .* not -1"),
        (lambda: StaleSynchronous(1, 1.5), "bound: .* not 1.5"),
        (lambda: Mixed(1, 0), "group_size: .* not 0"),
        (lambda: Mixed(1, 3).pushes_per_update(4), "group_size: 3 does not divide workers=4"),
        (lambda: SyncThenAsync(1, 1.1), "switch_at: a number from 0 to 1 is needed, not 1.1"),
        (lambda: LocalSGD(0), "period: .* not 0"),
        (lambda: PostLocalSGD(1, "half"), "switch_at: .* not 'half'"),
        (lambda: ElasticAveraging(1, 1, 1), "elasticity: 1 leaves nothing of the center"),
        (lambda: ElasticAveraging(1, 1, -0.1), "elasticity: .* not -0.1"),
        (lambda: Gossip("star"), "graph: there is no star; there are: ring, exponential, complete"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(build, message):
    with pytest.raises(SettingError, match=f"^scheme.{message}"):
        build()


@pytest.mark.parametrize("path", SCHEMES, ids=lambda path: path.stem)
def test_every_scheme_has_settings_a_source_and_laws(path):
    settings = yaml.safe_load((ROOT / "conf/scheme" / path.name).with_suffix(".yaml").read_text())
    assert settings["_target_"].startswith(f"paceline.scheme.{path.stem}.")
    docstring = path.read_text().split('"""')[1]
    assert re.search(r"\([A-Z][a-z]+ .*\b(19|20)\d\d\b", docstring), "no citation"
    assert re.search(r"^Law: \w", docstring, re.MULTILINE)
    assert f'"{path.stem}"' in (ROOT / "tests/cluster/test_laws.py").read_text()


def test_every_setting_of_a_scheme_has_its_file():
    files = {path.stem for path in (ROOT / "conf/scheme").glob("*.yaml")}
    assert files == {path.stem for path in SCHEMES}


@pytest.mark.parametrize(
    ("scheme", "staleness"),
    [
        (AsyncParameterServer(servers=1), 3),
        (StaleSynchronous(servers=1, bound=1), 3),
        (StaleSynchronous(servers=1, bound=0), 1.5),
        (SyncThenAsync(servers=1, switch_at=0.5), 3),
        (SyncThenAsync(servers=1, switch_at=1), 0),
        (Mixed(servers=1, group_size=2), 1),
        (Mixed(servers=1, group_size=4), 0),
        (SyncParameterServer(servers=1), 0),
        (SyncAllReduce(), 0),
        (ElasticAveraging(servers=1, period=2, elasticity=0.1), 0),
    ],
)
def test_expected_staleness_of_four_workers(scheme, staleness):
    assert scheme.expected_staleness(4) == staleness
