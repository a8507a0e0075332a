"""Pushes that leave by layer, during backward, in virtual seconds by hand."""

import math

import numpy as np
import pytest
from torch.testing import assert_close

from paceline.clock.run_spec import RunSpec
from paceline.prediction.predict import timed_clock
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import BUCKET_BYTES, CountedNetwork, SizedNetwork
from tests.clock.virtual.trained import train, weights_of

FREE = Link(0, math.inf)


def counted(*layers):
    rows = [[f"layer {n}", weights, work, 1] for n, (weights, work) in enumerate(layers)]
    return CountedNetwork(name="made", image_shape=[3, 4, 4], num_classes=2, layers=rows)


# 100 bytes of the first layer, and 300 of the last, which is there after a quarter of backward: of
# a step of 3 s after 1.5 s.
LAYERS = counted((25, 2), (0, 1), (75, 1))
NUM_BYTES = 400


def clock_after(scheme, link, *, workers=1, workload=LAYERS, steps=2, **profile):
    settings = {"workers_per_node": 1, "server_seconds": 0, "server_bandwidth": math.inf, **profile}
    return timed_clock(
        scheme,
        RunSpec(workers, workload=workload),
        profile=ClusterProfile(link, FREE, **settings),
        step_times=StepTimes(step_seconds=3),
        steps=steps,
    )


@pytest.mark.parametrize(
    ("bandwidth", "latency", "servers", "whole", "early"),
    [
        # 0.75 s of the last layer are over at 2.25 s; of the first 0.25 s follow, and 1 s back.
        (400, 0, 1, 5, 4.25),
        (400, 0.25, 1, 5.5, 4.75),
        # 3 s of the last layer are over at 4.5 s only: the first layer waits for them.
        (100, 0, 1, 11, 9.5),
        (100, 0.25, 1, 11.5, 10),
        # Server 1 has 200 bytes of the last layer at 2.25 s, and answers by 2.75 s. Server 0 has
        # 100 of them, behind which the first layer comes from 3 s to 3.25 s, and answers by 3.75 s.
        # Whole pushes leave by 3.5 s and 4 s, and server 0 answers while server 1 is sent to.
        (400, 0, 2, 4.5, 3.75),
        (400, 0.25, 2, 5, 4.25),
        (math.inf, 0, 1, 3, 3),
        (math.inf, 0.25, 1, 3.5, 3.5),
        (math.inf, 0, 2, 3, 3),
    ],
)
def test_parts_pass_one_after_the_other_when_they_are_there(
    bandwidth, latency, servers, whole, early
):
    for overlap, end in ((False, whole), (True, early)):
        scheme = AsyncParameterServer(servers, overlap=overlap)
        clock = clock_after(scheme, Link(latency, bandwidth))
        (worker,) = clock.workers
        assert worker.step_ends == pytest.approx([end, 2 * end], rel=1e-12)
        assert worker.seconds_communicating == pytest.approx(2 * (end - 3), rel=1e-12)
        assert worker.bytes_sent == worker.bytes_received == 2 * NUM_BYTES
        received = sum(server.report.bytes_received for server in clock.servers.served)
        assert received == 2 * NUM_BYTES
        assert clock.kernel.num_processes == 0


def test_what_is_shown_of_a_push_is_what_follows_computing():
    clock = clock_after(AsyncParameterServer(1, overlap=True), Link(0.25, 400))
    assert [span[1:] for span in clock.workers[0].timeline[:3]] == [
        ("compute", 0.0, 3.0),
        ("communicate", 3.0, 3.5),
        ("communicate", 3.5, 4.75),
    ]


def test_statistics_come_last():
    """16 parts of 3/16 s, there every 2/16 s from 1 s on; half a second more, and 3 s back."""
    sized = SizedNetwork(num_bytes=3 * BUCKET_BYTES, num_statistics_bytes=BUCKET_BYTES // 2)
    scheme = AsyncParameterServer(1, overlap=True)
    clock = clock_after(scheme, Link(0, BUCKET_BYTES), workload=sized)
    end = 1 + 2 / 16 + 3.5 + 3
    assert clock.workers[0].step_ends == pytest.approx([end, 2 * end], rel=1e-12)
    assert clock.workers[0].bytes_sent == 2 * 7 * BUCKET_BYTES // 2


@pytest.mark.parametrize("workers_per_node", [1, 2])
def test_parts_of_several_workers_share_the_link_of_their_server(workers_per_node):
    """600 bytes from 1.5 s to 3 s, 200 until 3.5 s, and 800 back."""
    scheme = AsyncParameterServer(1, overlap=True)
    clock = clock_after(scheme, Link(0, 400), workers=2, workers_per_node=workers_per_node)
    assert [worker.step_ends[0] for worker in clock.workers] == pytest.approx([5.5, 5.5])


def test_a_server_may_have_the_gradients_of_all_workers_before_backward_ends():
    """Both have 100 bytes of the last layer at server 0 at 2 s, and 200 at server 1 at 2.5 s, which
    answers until 3.5 s. By then server 0 has the first layer, too, and answers until 4.5 s.
    """
    for overlap, end in ((True, 4.5), (False, 5)):
        scheme = SyncParameterServer(2, overlap=overlap)
        clock = clock_after(scheme, Link(0, 400), workers=2)
        assert [worker.step_ends for worker in clock.workers] == 2 * [[end, 2 * end]]
        assert [server.report.updates for server in clock.servers.served] == [2, 2]
        assert clock.kernel.num_processes == 0


def test_nothing_leaves_early_inside_a_node():
    """Server 0 is beside worker 0, and server 1 beside worker 1: each pushes 1 s to the other."""
    profile = {"server_placement": "beside_workers"}
    whole, early = (
        clock_after(SyncParameterServer(2, overlap=overlap), Link(0, 200), workers=2, **profile)
        for overlap in (False, True)
    )
    assert [worker.step_ends[0] for worker in whole.workers] == [5, 5]
    # Server 1 has both pushes at 3 s. Its answer shares the link out of node 1 with the first layer
    # to server 0, until 4 s, and is there at 4.5 s; that of server 0 takes another second.
    assert [worker.step_ends[0] for worker in early.workers] == pytest.approx([4.5, 5])
    local = {"workers_per_node": None, "server_seconds": 0.5}
    ends = [
        [worker.step_ends for worker in clock_after(scheme, FREE, workers=2, **local).workers]
        for scheme in (SyncParameterServer(1, overlap=False), SyncParameterServer(1, overlap=True))
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("seed", range(20))
def test_who_overlaps_is_never_later_when_alone(seed):
    """At best the push is over with backward, and takes no less than its bytes.

    Parts leave to several servers at the same time, so that none answers before the others have
    their pushes: then it is never later than a push to a single one.
    """
    draw = np.random.default_rng(seed)
    sizes, work = draw.integers(1, 400, 6).tolist(), draw.integers(0, 9, 6).tolist()
    workload = counted(*zip(sizes, [1, *work[1:]], strict=True))
    link = Link(float(draw.uniform(0, 0.5)), float(draw.uniform(100, 4000)))
    number = int(draw.integers(1, 4))
    one, whole, early = (
        clock_after(
            AsyncParameterServer(servers, overlap=overlap),
            link,
            workload=workload,
            steps=3,
            server_seconds=0.125,
        )
        for servers, overlap in ((1, False), (number, False), (number, True))
    )
    ends = [np.array(clock.workers[0].step_ends) for clock in (one, early)]
    assert (ends[1] <= ends[0] + 1e-9).all()
    one_way = 4 * sum(sizes) / link.bandwidth
    assert ends[1][0] >= max(3, 1 + one_way) + link.latency + 0.125 + one_way / number - 1e-9
    assert early.busy_seconds() == pytest.approx(whole.busy_seconds(), rel=1e-12)


@pytest.mark.parametrize("servers", [1, 2])
def test_overlap_changes_no_weight_of_a_synchronous_scheme(servers):
    link = Link(0.05, 400)
    options = {"profile": ClusterProfile(link, FREE, 2, 0.02, 10_000), "workload": LAYERS}
    (early, ours), (whole, theirs) = (
        train(SyncParameterServer(servers, overlap=overlap), 4, 40, batch_norm=True, **options)
        for overlap in (True, False)
    )
    assert_close(weights_of(ours), weights_of(theirs), rtol=1e-12, atol=1e-14)
    for worker, other in zip(early.clock.workers, whole.clock.workers, strict=True):
        assert worker.bytes_sent == other.bytes_sent
        assert worker.step_ends[-1] < other.step_ends[-1]


@pytest.mark.parametrize(
    "scheme", [AsyncParameterServer, lambda n, **s: StaleSynchronous(n, 1, **s)]
)
@pytest.mark.parametrize("length", [7, 8, 9])
def test_a_step_that_is_abandoned_sends_nothing_that_counts(scheme, length):
    """The Trainer ends in the middle of what the servers have granted."""
    options = {"profile": ClusterProfile(Link(0.05, 400), FREE, 1, 0, math.inf), "length": length}
    strategy, _ = train(scheme(2, overlap=True), 3, 60, workload=LAYERS, **options)
    clock = strategy.clock
    assert clock.kernel.num_processes == 0
    sent = sum(worker.bytes_sent for worker in clock.workers)
    assert sent == length * NUM_BYTES
    busy = clock.busy_seconds()
    assert sum(busy[f"server {n}, in"] for n in range(2)) == pytest.approx(sent / 400)
    assert sum(server.report.bytes_received for server in clock.servers.served) == sent


def test_a_run_is_the_same_each_time():
    options = {"profile": ClusterProfile(Link(0.05, 400), FREE, 2, 0.02, 10_000)}
    ends = [
        train(AsyncParameterServer(2, overlap=True), 5, 40, workload=LAYERS, **options)[0]
        .clock.report()
        .workers
        for _ in range(2)
    ]
    assert [each.step_ends.tolist() for each in ends[0]] == [
        each.step_ends.tolist() for each in ends[1]
    ]
