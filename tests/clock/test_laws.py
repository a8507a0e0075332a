"""The laws of the schemes on both clocks: exact, in float64, against loops that know no clock."""

from collections import Counter
from typing import NamedTuple

import pytest
from torch.testing import assert_close

from paceline.cluster.supervisor import ProcessFailure
from paceline.scheme.counts import Counts
from paceline.scheme.gossip import Gossip
from paceline.scheme.rule import PairMean
from tests.clock.references import (
    apart,
    averaged,
    elastic,
    gossiped,
    mean_kept,
    plain,
    replayed,
    unmoved,
)
from tests.tiny import CLOCKS, NUM_TRAIN, point_of, run_tiny, run_together, tiny_point

SYNC, ASYNC = "sync_allreduce", "async_parameter_server"
on_both_clocks = pytest.mark.parametrize("clock", CLOCKS)
SCHEDULED = {
    "training__schedule": "cosine",
    "training__lr_rule": "linear",
    "training__warmup_epochs": 1,
}
CONSTANT = {"training__schedule": "constant", "training__lr_rule": "none"}
PLAIN_OUTER = {"scheme__outer_lr": 1.0, "scheme__outer_momentum": 0.0}
NO_MOMENTUM = {"model__optimizer__momentum": 0.0}


LAGGING = {"cluster__slow_workers": 1, "cluster__slow_factor": 20}  # on the virtual clock


def replayed_at_once(config, seen):
    """By the rule of async_parameter_server, whatever the scheme."""
    for server in seen.servers:
        assert (server.held, server.updates) == (0, len(server.pushes))
    return replayed({**config, "names": {"scheme": ASYNC}}, seen)


def faster(config, seen):
    """Plain SGD at K times the rate."""
    sgd = config["model"]["optimizer"]
    sgd = {**sgd, "lr": config["workers"] * sgd["lr"]}
    return plain({**config, "model": {**config["model"], "optimizer": sgd}})


class Law(NamedTuple):
    """`expected(config, seen)`: the weights that a run must end with."""

    name: str
    expected: object
    workers: int
    settings: dict


def law(name, expected, fewest=2):
    """Function that makes a Law of so many workers, with these settings."""
    return lambda workers=fewest, **settings: Law(name, expected, workers, settings)


alone = law("one worker is plain SGD", plain, 1)
together = law("K workers are one with K times the batch", plain)
replay = law("replaying the pushes gives the weights", replayed)
replay_pairs = law("replaying the means in pairs gives the weights", gossiped)
meeting = law("loops that meet", averaged)
towards = law("both go towards each other", elastic)
limit = law("this is async_parameter_server", replayed_at_once)


LAWS = {
    "sync_allreduce": [
        alone(),
        together(2),
        together(4),
        together(2, scheme__collective="ring"),
        together(4, scheme__collective="tree"),
        together(4, scheme__collective="multicolor"),
    ],
    "async_parameter_server": [
        alone(scheme__servers=3),
        replay(2),
        replay(2, scheme__servers=2),
        replay(4, scheme__servers=3),
        replay(3, scheme__damping="inverse_staleness"),
        replay(4, scheme__group_size=2, scheme__damping="inverse_staleness"),
        together(2, scheme__group_size=2),
        replay(2, scheme__damping="delay_compensation", scheme__servers=2),
        replay(4, training__lr_rule="inverse_staleness"),
        replay(4, training__momentum_correction="asynchrony"),
    ],
    "sync_parameter_server": [
        alone(),
        together(4, scheme__servers=2),
        replay(3, scheme__backup_workers=1),
        together(4, scheme__group_size=2, scheme__servers=2),
    ],
    "stale_synchronous": [
        alone(),
        Law(
            "bound 0 without momentum is synchronous at K times the rate",
            faster,
            2,
            {"scheme__bound": 0, **CONSTANT, **NO_MOMENTUM, "model__optimizer__weight_decay": 0.0},
        ),
        replay(3, scheme__bound=1, scheme__servers=2),
        replay(4, scheme__bound=0, scheme__group_size=2, scheme__servers=2),
        replay(6, scheme__bound=0, training__lr_rule="inverse_staleness"),
        replay(3, scheme__bound=3, **LAGGING),
        limit(3, scheme__bound=10**6, **LAGGING),
    ],
    "mixed": [
        alone(scheme__group_size=1),
        together(2, scheme__group_size=2),
        replay(4, scheme__group_size=2, scheme__servers=2),
        replay(6, scheme__group_size=3),
        replay(6, scheme__group_size=2, training__lr_rule="inverse_staleness"),
        limit(2, scheme__group_size=1),
    ],
    "sync_then_async": [
        alone(),
        together(2, scheme__switch_at=1),
        limit(2, scheme__switch_at=0),
        replay(2, scheme__switch_at=0.45),  # of 18 batches, after 10: 8/18 = 0.44
        replay(4, scheme__switch_at=0.5, training__lr_rule="inverse_staleness"),
        replay(4, scheme__switch_at=0.5, scheme__group_size=2),
    ],
    "independent": [alone(), Law("loops apart, averaged", apart, 3, {})],
    "local_sgd": [
        alone(scheme__period=3),
        together(2, scheme__period=1),
        meeting(2, scheme__period=3),
        meeting(3, scheme__period=5),
    ],
    "post_local_sgd": [
        alone(scheme__period=3),
        together(2, scheme__switch_at=1, scheme__period=3),
        meeting(2, scheme__switch_at=0.5, scheme__period=3),
        meeting(2, scheme__switch_at=0, scheme__period=4),
    ],
    "diloco": [
        alone(scheme__period=3, **PLAIN_OUTER),
        together(2, scheme__period=1, **PLAIN_OUTER),
        meeting(2, scheme__period=2),
        meeting(3, scheme__period=3, scheme__nesterov=False),
    ],
    "elastic_averaging": [
        towards(2, scheme__period=3),
        towards(3, scheme__period=1),
        Law(
            "without elasticity the center stays",
            unmoved,
            2,
            {"scheme__period": 3, "scheme__elasticity": 0.0},
        ),
    ],
    "gossip": [
        alone(scheme__graph="complete"),
        replay_pairs(2, scheme__graph="ring"),
        replay_pairs(3, scheme__graph="complete"),
        replay_pairs(4, scheme__graph="ring"),
        replay_pairs(6, scheme__graph="exponential"),
    ],
    "sync_gossip": [
        alone(),
        together(3, scheme__graph="ring"),
        meeting(4, scheme__graph="ring"),
        meeting(4, scheme__graph="exponential"),
        meeting(6, scheme__graph="exponential"),
    ],
}


def named_laws():
    for scheme, laws in LAWS.items():
        for law in laws:
            settings = ", ".join(f"{name.split('__')[-1]}={v}" for name, v in law.settings.items())
            name = f"{scheme} x {law.workers}: {law.name} ({settings})"
            yield pytest.param(scheme, law, id=name)


def config_of(scheme, law, clock):
    settings = {**SCHEDULED, **law.settings, **CLOCKS[clock]}
    return tiny_point(scheme, law.workers, 8 if law.workers < 3 else 4, **settings)


def assert_holds(law, config, seen, weights):
    expected = law.expected(config, seen)
    told = (law.name, law.workers, law.settings)
    assert_close(weights, expected, rtol=1e-12, atol=1e-14, msg=lambda said: f"{told}: {said}")
    assert {each.strategy.counted for each in seen.training} == {law.workers}, told
    assert len(seen.workers) == law.workers, told
    assert_nothing_is_lost(config, seen)


@pytest.mark.parametrize(("scheme", "law"), list(named_laws()))
def test_law_on_the_virtual_clock(scheme, law, tmp_path):
    config = config_of(scheme, law, "virtual")
    assert_holds(law, config, *run_tiny(config, tmp_path))


@pytest.mark.parametrize("scheme", LAWS)
def test_laws_of_real_processes(scheme, tmp_path):
    laws = LAWS[scheme]
    configs = [config_of(scheme, law, "wall") for law in laws]
    for law, config, run in zip(laws, configs, run_together(configs, tmp_path), strict=True):
        assert_holds(law, config, *run)


@on_both_clocks
@pytest.mark.parametrize("scheme", [ASYNC, "independent"])
def test_what_a_hook_puts_in_the_place_of_gradients_counts(scheme, clock, tmp_path):
    """Twice the gradient, without weight decay, is twice the rate."""
    settings = {
        "model___target_": "tests.classifiers.DoublingClassifier",
        "model__optimizer__weight_decay": 0.0,
        **CLOCKS[clock],
    }
    config = tiny_point(scheme, 1, 8, **settings)
    _, weights = run_tiny(config, tmp_path)
    config["model"]["optimizer"]["lr"] *= 2
    assert_close(weights, plain(config), rtol=1e-12, atol=1e-14)


def assert_nothing_is_lost(config, seen):
    """Steps add up to the budget, and staleness is what the order of pushes implies."""
    workers = config["workers"]
    budget = config["training"]["epochs"] * NUM_TRAIN // config["batch_size"]
    counts = Counts(point_of(config).scheme, workers)
    if counts.scheme.own_weights and not counts.scheme.equal_steps:
        taken = [number for worker in seen.workers for number in worker.step_numbers]
        assert sorted(number for number in taken if number < budget) == list(range(budget))
    steps = {worker.worker: worker.steps for worker in seen.workers}
    servers = seen.servers
    dropped = len(servers[0].dropped_steps) if servers else 0
    assert sum(steps.values()) == budget + dropped
    if counts.scheme.claim(workers) == "equal at the end":
        assert len({worker.weights_digest for worker in seen.workers}) == 1
    period = counts.scheme.steps_between_pushes
    for server in servers:
        pushes = {worker: steps[worker] // period for worker in counts.pushing}
        assert Counter(worker for worker, _ in server.pushes) == +Counter(pushes)
        if config["names"]["scheme"] == ASYNC:
            assert server.held == 0
        if config["names"]["scheme"] == "sync_parameter_server":
            assert (server.held > 0) == (workers > 1)
        if server.updates == len(server.pushes):
            held = config["names"]["scheme"] == "stale_synchronous"
            assert_staleness_adds_up(server.pushes, answered_at_once=not held)


def assert_staleness_adds_up(pushes, *, answered_at_once):
    read = Counter()
    for version, (worker, staleness) in enumerate(pushes):
        most = version - read[worker]
        assert staleness == most if answered_at_once else 0 <= staleness <= most
        read[worker] = version + 1


@on_both_clocks
def test_gossip_over_a_complete_graph_reaches_consensus_and_keeps_the_mean(clock, tmp_path):
    """The rate is 0 after 18 of 120 steps; paced, so that no worker ends before all have come to
    that.
    """
    settings = {
        "scheme__graph": "complete",
        "training__epochs": 40,
        "training__schedule": "steps",
        "training__milestones": [0.15],
        "training__gamma": 1e-300,
        "model__optimizer__weight_decay": 0.0,
        "cluster__step_seconds": 0.01,
        **NO_MOMENTUM,
    }
    config = tiny_point("gossip", 4, 4, seed=3, **settings | CLOCKS[clock])
    seen, weights = run_tiny(config, tmp_path)
    assert len({worker.weights_digest for worker in seen.workers}) == 1
    assert_close(weights, mean_kept(config, seen), rtol=1e-12, atol=1e-14)
    for worker in (1, 3):
        steps = range(481)  # who is faster takes more than a quarter of the 480
        drawn = [Gossip("complete").beside(worker, 4, n, seed=config["seed"]) for n in steps]
        drawn = [next(beside) for beside in drawn]
        before = -1
        for mean in seen.workers[worker].averages:
            latest = mean.sent_after  # of this step; a thread may come later
            possible = range(before + 1 if clock == "wall" else latest, latest + 1)
            of_steps = [n for n in possible if drawn[n] == PairMean(mean.partner)]
            assert of_steps
            before = of_steps[0]


@pytest.mark.parametrize(("bound", "lead"), [(0, 1), (1, 2), (3, 4), (10**6, 20)])
def test_a_slow_worker_is_left_behind_by_the_bound(bound, lead, tmp_path):
    """Of 36 steps; who leads by more than the bound is answered later, and so takes no other."""
    settings = {"scheme__bound": bound, **LAGGING, **CLOCKS["virtual"]}
    seen, _ = run_tiny(tiny_point("stale_synchronous", 3, 4, **settings), tmp_path)
    steps, leads = Counter(), []
    for worker, _ in seen.servers[0].pushes:
        steps[worker] += 1
        leads.append(steps[worker] - min(steps[each] for each in range(3)))
    assert max(leads) == lead


def waiting(blocked, broadcasting, folder, scheme=ASYNC, **settings):
    patience = 4 if broadcasting else 30
    config = tiny_point(scheme, 2, 4, **(settings or {"training__samples": 4 * 260}))
    module = {"_target_": "tests.classifiers.WaitingClassifier", "folder": str(folder)}
    about = {"blocked": blocked, "broadcasting": broadcasting, "patience": patience}
    config["model"] |= module | about
    return config


@pytest.mark.parametrize("blocked", [0, 1])
def test_asynchronous_means_asynchronous(blocked, tmp_path):
    """A worker blocks before its first push until the other has taken 200 steps."""
    seen, _ = run_tiny(waiting(blocked, False, tmp_path), tmp_path)
    first = [worker for worker, _ in seen.servers[0].pushes].index(blocked)
    assert first >= 200
    assert seen.servers[0].pushes[first] == (blocked, first)


@pytest.mark.parametrize("blocked", [0, 1])
def test_gossip_waits_for_nobodys_step(blocked, tmp_path):
    """200 of 528 steps are the other's before the blocked worker has ended its first.

    The rate is low, so that rounding does not grow over as many steps.
    """
    settings = {"training__epochs": 44, "model__optimizer__lr": 0.01}
    config = waiting(blocked, False, tmp_path, "gossip", **settings)
    seen, weights = run_tiny(config, tmp_path)
    means = list(zip(*(worker.averages for worker in seen.workers), strict=True))
    if blocked == 0:
        assert max(asking.sent_after for asked, asking in means if asked.held_after == 0) >= 100
    else:
        assert means[0][1].held_after == 0  # beside its first step
        assert means[1][0].held_after >= 200
    assert_close(weights, gossiped(config, seen), rtol=1e-12, atol=1e-14)
    sent, received = (
        sum(getattr(worker, way) for worker in seen.workers)
        for way in ("bytes_sent", "bytes_received")
    )
    assert sent == received == (1 + 2 * len(means)) * 103 * 8  # of 103 weights; one says hello


@pytest.mark.slow
def test_the_law_fails_when_lightning_broadcasts_each_step(tmp_path):
    """As it does where its world size is that of the process group: nobody gets past a step."""
    config = waiting(0, True, tmp_path)
    config["cluster"]["timeout_seconds"] = 5
    with pytest.raises(ProcessFailure, match=r"(?i)timed out|timeout|lockstep"):
        run_tiny(config, tmp_path)


def test_evaluation_perturbs_nothing(tmp_path):
    ends = []
    for evaluations in (1, 7):
        folder = tmp_path / str(evaluations)
        folder.mkdir()
        config = tiny_point(SYNC, 2, 4, measurement__evaluations=evaluations)
        seen, weights = run_tiny(config, folder)
        assert sum(len(each.scores) for each in seen.training) == evaluations
        ends.append(weights)
    assert_close(*ends, rtol=0, atol=0)
