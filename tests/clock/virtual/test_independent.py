"""The virtual clock against a simulator that shares none of its code, on the same draws."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from tests.clock.virtual import independent
from tests.clock.virtual.independent import AtOnce, Bounded, Served, Together, World
from tests.clock.virtual.trained import module_of, train
from tests.tiny import batches_of, tiny_point

WORKERS, STEPS = 6, 60
DRAWS = StepTimes(jitter=0.4, slow_workers=1, slow_factor=4, seed=5)
FREE = Link(0, math.inf)
MESSAGES = Link(0.01, 40_000)  # 824 bytes take 31 ms
CLUSTERS = {
    "free": {},
    "saturated server": {"server_seconds": 0.4},
    "messages on one machine": {"server_seconds": 0.02, "node_link": MESSAGES},
    "links that contend": {
        "server_seconds": 0.02,
        "link": Link(0.05, 4_000),
        "node_link": MESSAGES,
        "workers_per_node": 1,
    },
}
ON_ONE_MACHINE = [name for name in CLUSTERS if name != "links that contend"]
SERVED = {
    "asynchronous": (AsyncParameterServer(1), AtOnce, 1),
    "divided by staleness": (AsyncParameterServer(1, "inverse_staleness"), independent.Slower, 1),
    "compensated": (AsyncParameterServer(1, "delay_compensation"), independent.Compensated, 1),
    "bound 0": (StaleSynchronous(1, 0), lambda: Bounded(0), 1),
    "bound 2": (StaleSynchronous(1, 2), lambda: Bounded(2), 1),
    "synchronous": (SyncParameterServer(1), Together, 1),
    "backup worker": (SyncParameterServer(1, backup_workers=1), lambda: Together(1), 1),
    "synchronous, then not": (SyncThenAsync(1, 0.5), lambda: Together(0, 0.5), 1),
}
GROUPED = {
    "mixed": (AsyncParameterServer(1, group_size=3), AtOnce, 3),
    "mixed pairs": (AsyncParameterServer(1, group_size=2), AtOnce, 2),
}
OWN = {
    "all-reduce": (SyncAllReduce(), {"period": 0, "switch": 1.0}),
    "local SGD": (LocalSGD(4), {"period": 4}),
    "post-local SGD": (PostLocalSGD(4, 0.5), {"period": 4, "switch": 0.5}),
}


def world_of(**changes):
    config = tiny_point("sync_allreduce", WORKERS, 4)
    shares = [batches_of(config, worker) for worker in range(WORKERS)]
    drawn = [[share[n] for n in range(STEPS)] for share in shares]
    return World(
        seconds=[[DRAWS.seconds(worker, n) for n in range(STEPS)] for worker in range(WORKERS)],
        batches=[[(b[0].numpy().reshape(4, -1), b[1].numpy()) for b in own] for own in drawn],
        first=vector(module_of()),
        steps=STEPS,
        **changes,
    )


def vector(module):
    return torch.cat([each.detach().flatten() for each in module.network.parameters()]).numpy()


def trained(scheme, cluster):
    profile = {"link": FREE, "node_link": FREE, "workers_per_node": None, "server_seconds": 0.0}
    profile = ClusterProfile(**{**profile, "server_bandwidth": math.inf, **cluster})
    options = {"step_times": DRAWS, "profile": profile, "length": 2 * STEPS}  # some are dropped
    strategy, module = train(scheme, WORKERS, STEPS, **options)
    ends = [worker.step_ends for worker in strategy.simulation.workers]
    servers = strategy.report(np.arange(float(STEPS)), seconds_data=0.0).servers
    return SimpleNamespace(weights=vector(module), ends=ends, servers=servers)


def assert_agree(ours, theirs):
    for own, other in zip(ours.ends, theirs.ends, strict=True):
        assert own == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=1e-11, atol=1e-13)


def given(cluster):
    link = cluster.get("link" if "workers_per_node" in cluster else "node_link", FREE)
    return {
        "server_seconds": cluster.get("server_seconds", 0.0),
        "latency": link.latency,
        "bandwidth": link.bandwidth,
        "between_nodes": "workers_per_node" in cluster,
    }


@pytest.mark.parametrize(
    ("name", "cluster", "servers"),
    [
        *((name, cluster, 1) for name in SERVED for cluster in CLUSTERS),
        # each of several has a line and versions; a worker goes on when all have answered
        *((n, c, 3) for n in SERVED for c in ON_ONE_MACHINE if n != "backup worker"),
        *((name, "free", 1) for name in GROUPED),
    ],
)
def test_servers_agree_on_times_staleness_and_weights(name, cluster, servers):
    scheme, policy, group = {**SERVED, **GROUPED}[name]
    ours = trained(replace(scheme, servers=servers), CLUSTERS[cluster])
    theirs = Served(world_of(**given(CLUSTERS[cluster])), policy, group, servers).run()
    assert [server.pushes for server in ours.servers] == theirs.pushes
    assert_agree(ours, theirs)


@pytest.mark.parametrize("name", OWN)
def test_workers_with_weights_of_their_own_agree(name):
    scheme, settings = OWN[name]
    assert_agree(trained(scheme, {}), independent.meetings(world_of(), **settings))


@pytest.mark.parametrize("cluster", ["free", "messages on one machine"])
@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_gossiping_pairs_agree(graph, cluster):
    scheme = Gossip(graph)
    partners = [[partner(scheme, worker, n) for n in range(STEPS)] for worker in range(WORKERS)]
    theirs = independent.Gossiping(world_of(**given(CLUSTERS[cluster])), partners).run()
    assert_agree(trained(scheme, CLUSTERS[cluster]), theirs)


def partner(scheme, worker, n):
    """Whom the rule draws."""
    beside = scheme.beside(worker, WORKERS, n, seed=0)
    return None if beside is None else next(beside).partner


@pytest.mark.parametrize("cluster", ON_ONE_MACHINE)
@pytest.mark.parametrize("period", [1, 3])
def test_workers_and_a_center_agree(period, cluster):
    ours = trained(ElasticAveraging(1, period, 0.2), CLUSTERS[cluster])
    theirs = independent.Elastic(world_of(**given(CLUSTERS[cluster])), period, 0.2).run()
    assert [server.pushes for server in ours.servers] == theirs.pushes
    assert_agree(ours, theirs)


def test_workers_that_share_nothing_agree():
    assert_agree(trained(Independent(), {}), independent.Rounds(world_of()).run())


def test_the_worlds_are_not_all_alike():
    """A server that is never late, a line that is never long, would agree with anything."""
    runs = [Served(world_of(**given(each)), AtOnce).run() for each in CLUSTERS.values()]
    assert len({run.ends[0][-1] for run in runs}) == len(CLUSTERS)
    assert len({tuple(run.pushes[0]) for run in runs}) > 1
    assert max(staleness for _, staleness in runs[0].pushes[0]) > WORKERS
