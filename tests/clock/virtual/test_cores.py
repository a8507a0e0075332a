"""Cores that all processes of a machine share, by hand."""

import math
from dataclasses import replace

import pytest

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.kernel import Cores, Kernel, Moment
from paceline.clock.virtual.simulation import Simulation
from paceline.errors import SettingError
from paceline.prediction.predict import predict, whole_rounds
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


def ends(shared, jobs):
    """Ends of jobs of (begin, seconds that it takes alone)."""
    kernel, found = Kernel(), {}
    cores = Cores(kernel, shared)

    def work(number, begin, seconds):
        yield Moment(begin)
        yield cores.busy(seconds)
        found[number] = kernel.now

    kernel.begin(work(number, *job) for number, job in enumerate(jobs))
    assert not any(kernel.run())
    return [found[number] for number in range(len(jobs))]


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


@pytest.mark.parametrize(
    ("speeds", "jobs", "found"),
    [
        # from 1 s on each has 3/4; the second has its 1.5 at 3 s, the first then lacks a half
        ({1: 1, 2: 1.5}, [(0, 3), (1, 1.5)], [3.5, 3]),
        (None, [(0, 3), (1, 1.5)], [3, 2.5]),
        ({1: 1, 2: 2, 4: 2}, [(0, 1)] * 4, [2] * 4),
        ({1: 1, 2: 2, 4: 2}, [(5, 0), (7, 1)], [5, 8]),
    ],
)
def test_jobs_share_and_one_that_stays_gets_all(speeds, jobs, found):
    shared = machine(speeds).shared_cores if speeds else None
    assert ends(shared, jobs) == pytest.approx(found)


TWO, SERVING = {1: 1, 2: 2}, {"server_seconds": 0.25, "link": Link(0.125, math.inf)}


@pytest.mark.parametrize(
    ("scheme", "workers", "cores", "more", "step"),
    [
        # more workers than cores take turns
        *((Independent(), k, {"speeds": TWO}, {}, max(1, k / 2)) for k in (1, 2, 3, 4)),
        # a core that serves is never idle: 1 s, 1/8 s there and back, 1/4 s at the server
        (AsyncParameterServer(1), 3, {"speeds": {1: 1}, **SERVING}, {}, 3 * 1.5),
        (ElasticAveraging(1, 1, 0.1), 3, {"speeds": {1: 1}, **SERVING}, {}, 3 * 1.5),
        # a push adds its own once, however many servers share it
        *(
            (AsyncParameterServer(n), 1, {"speeds": {1: 1}}, {"push_seconds": 0.5}, 1.5)
            for n in (1, 3)
        ),
        # data parallel adds its own where it is used
        (SyncAllReduce(), 2, {"speeds": TWO, "ddp_seconds": 0.5}, {}, 1.5),
        (SyncAllReduce(), 1, {"speeds": TWO, "ddp_seconds": 0.5}, {}, 1),
        (LocalSGD(period=2), 2, {"speeds": TWO, "ddp_seconds": 0.5}, {}, 1),
    ],
)
def test_four_steps_on_shared_cores(scheme, workers, cores, more, step):
    profile = machine(**cores)
    profile = replace(profile, shared_cores=replace(profile.shared_cores, **more))
    run = RunSpec(workers, num_steps=whole_rounds(scheme, workers, 4))
    clock = Simulation(scheme, run, profile, StepTimes()).completed()
    assert clock.kernel.now == pytest.approx(4 * step)
    if isinstance(scheme, Independent):
        assert [each.compute_seconds for each in clock.workers] == pytest.approx([step] * workers)
