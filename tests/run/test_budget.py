"""A run's length is in samples over all workers, whatever the scheme."""

from dataclasses import replace

import pytest

from paceline.errors import SettingError
from paceline.run.budget import Budget, budget_of
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.sync_allreduce import SyncAllReduce
from tests.tiny import point_of, tiny_point

SCHEMES = {"sync": SyncAllReduce(), "async": AsyncParameterServer(servers=1)}
PERIODIC = {"elastic": ElasticAveraging(1, period=3, elasticity=0.1)}


def budget(scheme, workers, batch_size, *, epochs=1, samples=None, evaluations=3):
    config = tiny_point(
        "sync_allreduce",
        workers,
        batch_size,
        training__epochs=epochs,
        training__samples=samples,
        measurement__evaluations=evaluations,
    )
    point = replace(point_of(config), scheme=(SCHEMES | PERIODIC)[scheme])
    return budget_of(point, num_train=100)


def test_a_budget_by_hand():
    """250 images: 8 rounds of 4 workers with 8 images each, or 32 of one."""
    together = budget("sync", 4, 8, epochs=2.5)
    assert together == Budget(256, 32, num_steps=32, thresholds=[64, 160, 256])
    alone = budget("async", 4, 8, epochs=2.5)
    assert alone == Budget(256, 8, num_steps=32, thresholds=[80, 168, 256])


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 10), (2, 25), (5, 4)])
def test_schemes_get_the_same_samples_and_steps(workers, batch_size):
    sync, served = (budget(scheme, workers, batch_size, epochs=3) for scheme in SCHEMES)
    assert sync.samples == served.samples == 300
    assert sync.num_steps == served.num_steps == 300 // batch_size


def test_samples_override_epochs_and_are_rounded_up_to_whole_updates():
    assert budget("sync", 2, 8, epochs=9, samples=16).samples == 16
    assert budget("sync", 2, 8, samples=17).samples == 32
    assert budget("async", 2, 8, samples=17).samples == 24


def test_no_more_snapshots_than_rounds_and_the_last_is_the_end():
    assert budget("sync", 1, 50, evaluations=10).thresholds == [50, 100]
    assert budget("sync", 1, 10, evaluations=1).thresholds == [100]


def test_fewer_samples_than_a_round_are_refused():
    with pytest.raises(SettingError, match=r"training.samples: 15 is less than one round of 16 "):
        budget("sync", 2, 8, samples=15)


def test_a_budget_that_leaves_a_worker_without_a_step_is_refused():
    with pytest.raises(SettingError, match=r"training.samples: 32 leave some of workers=2"):
        budget("async", 2, 32, samples=32)


def test_workers_of_a_common_budget_take_a_round_each_at_least():
    assert budget("elastic", 2, 8, samples=33).samples == 48
    with pytest.raises(SettingError, match=r"training.samples: 24 leave some of workers=2"):
        budget("elastic", 2, 8, samples=24)


def test_more_servers_than_pushes_are_refused():
    """24 steps of two workers that push as one are 12 pushes."""
    scheme = AsyncParameterServer(servers=12, group_size=2)
    config = tiny_point("sync_allreduce", 2, 4, training__samples=96)
    assert budget_of(replace(point_of(config), scheme=scheme), 100).num_steps == 24
    with pytest.raises(SettingError, match="13 servers, but only 12 pushes") as refused:
        budget_of(replace(point_of(config), scheme=replace(scheme, servers=13)), 100)
    assert refused.value.setting == "scheme.servers"
