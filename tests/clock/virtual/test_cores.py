"""Cores that all processes of a machine share, by hand."""

import math
from dataclasses import replace

import pytest

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.kernel import Cores, Kernel, Moment
from paceline.errors import SettingError
from paceline.prediction.predict import predict, timed_clock
from paceline.record.target import Target
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.study.compose import composed
from paceline.timing.profile import ClusterProfile, Link, SharedCores
from paceline.timing.step_times import StepTimes
from tests.tiny import REPOSITORY

FREE = Link(0, math.inf)


def machine(speeds, *, ddp_seconds=0.0, server_seconds=0.0, link=FREE):
    cores = SharedCores(step_seconds={1: 1.0}, speeds=speeds, ddp_seconds=ddp_seconds)
    return ClusterProfile(FREE, link, None, server_seconds, math.inf, shared_cores=cores)


def clock_of(scheme, profile, workers, steps=4, times=None):
    return timed_clock(
        scheme,
        RunSpec(workers),
        profile=profile,
        step_times=times or StepTimes(),
        steps=steps,
    )


def ends(shared, jobs):
    """Ends of jobs of (begin, seconds that it takes alone)."""
    kernel, found = Kernel(), {}
    cores = Cores(kernel, shared)

    def work(number, begin, seconds):
        yield Moment(begin)
        yield cores.busy(seconds)
        found[number] = kernel.now

    for number, job in enumerate(jobs):
        kernel.start(work(number, *job))
    while len(kernel):
        kernel.advance()
    return [found[number] for number in range(len(jobs))]


def test_two_jobs_share_and_the_one_that_stays_gets_all():
    """From 1 s on each has 3/4; the second has its 1.5 at 3 s, the first then lacks a half."""
    shared = machine({1: 1, 2: 1.5}).shared_cores
    assert ends(shared, [(0, 3), (1, 1.5)]) == pytest.approx([3.5, 3])
    assert ends(None, [(0, 3), (1, 1.5)]) == [3, 2.5]


def test_jobs_of_one_size_end_together_in_order():
    shared = machine({1: 1, 2: 2, 4: 2}).shared_cores
    assert ends(shared, [(0, 1)] * 4) == pytest.approx([2] * 4)
    assert ends(shared, [(5, 0), (7, 1)]) == pytest.approx([5, 8])


@pytest.mark.parametrize(("workers", "step"), [(1, 1), (2, 1), (3, 1.5), (4, 2)])
def test_more_workers_than_cores_take_turns(workers, step):
    clock = clock_of(Independent(), machine({1: 1, 2: 2}), workers)
    assert clock.kernel.now == pytest.approx(4 * step)
    assert [worker.compute_seconds for worker in clock.workers] == pytest.approx([step] * workers)


def test_a_core_that_serves_and_computes_is_never_idle():
    """A step of 1 s, its push of 1/8 s each way and 1/4 s at the server: 1.5 s of one core."""
    profile = machine({1: 1}, server_seconds=0.25, link=Link(0.125, math.inf))
    for scheme in (AsyncParameterServer(servers=1), ElasticAveraging(1, period=1, elasticity=0.1)):
        clock = clock_of(scheme, profile, 3)
        assert clock.kernel.now == pytest.approx(12 * 1.5)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_a_push_adds_its_own_once_however_many_servers_share_it(servers):
    profile = machine({1: 1})
    cores = replace(profile.shared_cores, push_seconds=0.5)
    clock = clock_of(AsyncParameterServer(servers), replace(profile, shared_cores=cores), 1)
    assert clock.kernel.now == pytest.approx(4 * 1.5)


def test_data_parallel_adds_its_own_where_it_is_used():
    profile = machine({1: 1, 2: 2}, ddp_seconds=0.5)
    assert clock_of(SyncAllReduce(), profile, 2).kernel.now == pytest.approx(4 * 1.5)
    assert clock_of(SyncAllReduce(), profile, 1).kernel.now == pytest.approx(4)
    assert clock_of(LocalSGD(period=2), profile, 2).kernel.now == pytest.approx(4)


def test_exchange_hides_behind_backward_only_on_cores_that_are_free():
    profile = replace(machine({1: 1, 2: 2}), node_cores=2)
    assert profile.overlaps(1)
    assert not profile.overlaps(2)
    assert replace(profile, shared_cores=None).overlaps(2)
    assert not replace(profile, shared_cores=None, overlap=False).overlaps(1)


CORES = {"step_seconds": {8: 0.5, 32: 2.0}, "speeds": {1: 1, 2: 2, 4: 2}, "ddp_seconds": 0.0}


def settings_of():
    values = composed(["cluster=virtual", "data=synthetic"], REPOSITORY).values["cluster"]
    return {**values, "step_seconds": None, "shared_cores": CORES}


@pytest.mark.parametrize(
    ("changes", "workload", "setting"),
    [
        ({"workers_per_node": 2}, "own", "cluster.shared_cores"),
        ({}, "resnet50", "workload"),
        ({"shared_cores": None}, "own", "cluster.step_seconds"),
        ({"shared_cores": {**CORES, "speeds": {2: 2}}}, "own", "cluster.shared_cores.speeds"),
    ],
)
def test_what_does_not_fit_is_refused(changes, workload, setting):
    config = composed(["data=synthetic", f"workload={workload}"], REPOSITORY)
    with pytest.raises(SettingError) as refused:
        predict(config.replaced(cluster={**settings_of(), **changes}), steps=10)
    assert refused.value.setting == setting


def test_steps_are_those_measured_unless_accelerators_are_emulated():
    measured, emulated = (
        Target("cluster", {**settings_of(), **changes}).build()
        for changes in ({}, {"step_seconds": 0.1})
    )
    assert (measured.mean_step_seconds(32), measured.profile.shared_cores.speed(4)) == (2, 2)
    assert (emulated.mean_step_seconds(32), emulated.profile.shared_cores) == (0.1, None)
    alone = composed(["data=synthetic", "scheme=independent"], REPOSITORY)
    rates = [
        predict(alone.replaced(workers=n, cluster=settings_of()), steps=10).run.images_per_second
        for n in (1, 2, 4)
    ]
    assert rates == pytest.approx([16, 32, 32])  # on two cores
