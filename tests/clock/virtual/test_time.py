"""Virtual seconds, by hand: lines at a server and on a link, and the end of an all-reduce."""

import math

import numpy as np
import pytest

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.kernel import Buses, Cores, Kernel, Moment
from paceline.clock.virtual.message_sizes import tensors_of_servers
from paceline.clock.virtual.simulated_messages import Brought, allreduce_end
from paceline.clock.virtual.simulation import Simulation
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.exchange.collectives import collective as named
from paceline.prediction.predict import whole_rounds
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import AbstractScheme, Adopt, Apply, Mean, PairMean
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_gossip import SyncGossip
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import BUCKET_BYTES, Bucket, OwnNetwork
from tests.clock.virtual.trained import train

FREE = Link(0, math.inf)
NUM_BYTES = 8 * 103  # of the tiny network's gradient


def clock_of(scheme, workers, steps, profile, **options):
    """The clock after so many steps of 1 s of all workers."""
    options = {"step_times": StepTimes(), **options}
    return train(scheme, workers, steps, profile=profile, **options)[0].simulation


def timed(scheme, workers, profile, num_bytes=NUM_BYTES, times=None, steps=1):
    """The same for messages of any length, of so many steps of each worker, without training."""
    num_steps = whole_rounds(scheme, workers, steps)
    run = RunSpec(workers, num_steps=num_steps, workload=OwnNetwork().of_size(num_bytes, 0))
    return Simulation(scheme, run, profile, times or StepTimes()).completed()


def ends_of(clock):
    return [worker.step_ends for worker in clock.workers]


def nodes(link=FREE, node_link=FREE, of=1, server_seconds=0.0, **more):
    return ClusterProfile(link, node_link, of, server_seconds, math.inf, **more)


def machine(server_seconds=0.0, link=FREE, server_bandwidth=math.inf):
    return ClusterProfile(FREE, link, None, server_seconds, server_bandwidth)


_BOTH_WAYS = [("push", 0, 0), ("push", 1, 0), ("answer", 0, 0), ("answer", 0, 1)]


def passages(profile, messages, workers=4, servers=2, **options):
    """Passages of (time, verb, sender, receiver, bytes) over one network."""
    kernel, found = Kernel(), {}
    shared = profile.topology == "pcie_host"
    buses = Buses(kernel, Cores(kernel, None), profile.num_nodes(workers) if shared else 0)
    network = VirtualNetwork(profile, workers, servers, kernel=kernel, buses=buses, **options)

    def send(number, begin, verb, *message):
        yield Moment(begin)
        found[number] = yield from getattr(network, verb)(*message)

    kernel.begin(send(number, *message) for number, message in enumerate(messages))
    assert not any(kernel.run())
    return [found[number] for number in range(len(messages))]


def test_messages_to_one_server_share_its_link():
    """From 1 s to 3 s by halves; the first had half of its bytes before, the second has after."""
    profile = nodes(Link(0.5, 100))
    messages = [
        (0, "push", 0, 0, 200),
        (1, "push", 1, 0, 200),
        (1, "push", 2, 1, 200),  # another server's link is free
        (1, "answer", 0, 1, 100),  # and so is the other direction
    ]
    assert passages(profile, messages) == [(0, 3.5), (1, 4.5), (1, 3.5), (1, 2.5)]
    messages = [(0, "push", 0, 0, 100), (0, "push", 1, 1, 100), (2, "push", 2, 1, 100)]
    of_twos = nodes(Link(0, 100), of=2)  # workers of a node share its link
    assert passages(of_twos, messages) == [(0, 2), (0, 2), (2, 3)]


@pytest.mark.parametrize("seed", range(5))
def test_messages_of_a_single_server_pass_as_any_fair_ones(seed):
    """By processor sharing at its link, and by max-min fairness over all links."""
    draw = np.random.default_rng(seed)
    profile = ClusterProfile(Link(0.5, 100, unevenness=0.4 * (seed % 2)), FREE, 3, 0, math.inf)
    messages = [
        (draw.uniform(0, 20), "push", worker, 0, draw.uniform(0, 100))
        if draw.random() < 0.5
        else (draw.uniform(0, 20), "answer", 0, worker, draw.uniform(0, 100))
        for worker in draw.integers(0, 12, 60).tolist()
    ]
    star, fair = (np.array(passages(profile, messages, 12, 1, star=each)) for each in (True, False))
    assert star == pytest.approx(fair, rel=1e-9)


def test_answers_share_a_link_unevenly_and_pushes_do_not():
    """The first of two has passed when the other has the share of its bytes that its weight has."""
    profile = nodes(Link(0, 100, unevenness=0.5))
    both = [(10 * n, verb, *ends, 100) for n in range(400) for verb, *ends in _BOTH_WAYS]
    found = np.array(passages(profile, both, workers=2, servers=1, star=True))
    taken = (found[:, 1] - found[:, 0]).reshape(400, 4)
    assert taken[:, :2] == pytest.approx(np.full((400, 2), 2))
    answers = taken[:, 2:]
    assert answers.max(axis=1) == pytest.approx(np.full(400, 2))
    logs = np.log(answers.min(axis=1) - 1) * np.where(answers[:, 0] < answers[:, 1], 1, -1)
    assert logs.std() == pytest.approx(0.5 * math.sqrt(2), rel=0.1)
    assert abs(logs.mean()) < 0.1
    runs = [passages(profile, both, 2, 1, star=True, seed=seed) for seed in (1, 2, 1)]
    assert runs[0] == runs[2] != runs[1]


def test_servers_beside_workers_share_the_links_of_their_nodes():
    """Server 1 is on the node of workers 2 and 3, to which its own messages take no link."""
    link, inside = Link(0, 100), Link(0.25, math.inf)
    profile = ClusterProfile(link, inside, 2, 0, math.inf, server_placement="beside_workers")
    messages = [
        (0, "push", 0, 1, 100),
        (0, "pass_on", 1, 2, 100),  # out of one node and into the other, as that push
        (0, "push", 2, 1, 100),
        (0, "answer", 2, 3, 100),  # server 2 is on the first node again
    ]
    assert passages(profile, messages, servers=3) == [(0, 3), (0, 3), (0, 0.25), (0, 3)]


class LateMean(AbstractScheme):
    """A mean of gradients or weights after a pairwise mean, long after backward has ended."""

    equal_steps = True

    def __init__(self, of_weights):
        self._of_weights = of_weights

    def partners(self, worker, workers):
        return (1 - worker,) if worker == 1 else ()

    def step(self, worker):
        for partner in self.partners(worker.index, worker.num_workers):
            yield PairMean(partner)
        mean = yield Mean(worker.weights if self._of_weights else worker.gradient)
        yield Adopt(mean) if self._of_weights else Apply(mean)


def test_servers_share_the_tensors_of_a_message():
    """Of 103 weights in 4 tensors, a cut in the middle divides the first one."""
    tensors, ways = [80, 5, 15, 3], ("bytes", "round_robin")
    found = [tensors_of_servers(tensors, n, sharding) for sharding in ways for n in (1, 2)]
    assert found == [[4], [1, 4], [4], [2, 2]]


@pytest.mark.parametrize(
    ("latency", "asked", "asking"),
    [
        (0.125, [(1, 0, 0), (1, 1, 1)], [(0, 0, 0), (0, 1, 1)]),  # 0.375 s there, and back
        (1.0, [(1, 1, 1)], [(0, 0, 2)]),  # 1.25 s: not held before the third step begins
    ],
)
def test_a_mean_in_pairs_goes_there_and_back_beside_the_steps_and_costs_no_time(
    latency, asked, asking
):
    """A message takes 0.25 s more than the latency; worker 0 is asked."""
    profile = machine(server_seconds=9, link=Link(latency, NUM_BYTES * 4))
    passive, active = clock_of(Gossip("ring"), 2, 4, profile).workers
    for worker in (passive, active):
        assert worker.step_ends == [1, 2]
        assert worker.seconds_communicating == 0
        assert [span[1] for span in worker.timeline] == ["compute"] * 2
        sent = len(asked) * NUM_BYTES
        assert (worker.bytes_sent, worker.bytes_received) == (sent, sent)
    assert (passive.averages, active.averages) == (asked, asking)


def test_means_in_pairs_between_nodes_pass_the_links_of_the_nodes():
    """Workers 0 and 1 on a node, 2 and 3 on another, and a second per message between them."""
    profile = nodes(Link(0.5, NUM_BYTES), of=2)
    messages = [(1, "pass_on", *ends, NUM_BYTES) for ends in ((1, 0), (1, 2), (0, 3), (2, 1))]
    inside, first, second, back = passages(profile, messages, servers=0)
    assert inside == (1, 1)
    assert first == second == (1, 3.5)  # they share the link
    assert back == (1, 2.5)  # and it is free the other way
    clock = clock_of(Gossip("complete"), 4, 48, profile)
    steps_under_way = {True: set(), False: set()}
    for active in clock.workers[1::2]:
        for mean in active.averages[:-1]:
            away = mean.partner // 2 != active.index // 2
            steps_under_way[away].add(mean.held_after - mean.sent_after)
    assert steps_under_way[False] == {0}
    assert min(steps_under_way[True]) == 3  # of 1 s each, and the messages 1.5 s


BANDWIDTH, PUSH = 16_000, 1600
OF_FOURS = nodes(Link(0, BANDWIDTH), of=4)  # 64 workers on 16 nodes, over the links alone
SERVERS = [1, 2, *(pytest.param(number, marks=pytest.mark.slow) for number in (4, 8, 16))]


def least_one_way(servers):
    """Seconds of all bytes into a server, or of four workers' out of their node."""
    return max(64 / servers, 4) * PUSH / BANDWIDTH


@pytest.mark.parametrize("servers", SERVERS)
def test_a_synchronous_step_takes_what_the_busiest_link_needs(servers):
    times = StepTimes(step_seconds=0.1, jitter=0.05)
    clock = timed(SyncParameterServer(servers=servers), 64, OF_FOURS, PUSH, times, 10)
    computing = sum(max(times.seconds(worker, step) for worker in range(64)) for step in range(10))
    least = 10 * 2 * least_one_way(servers)
    assert least <= clock.kernel.now <= computing + 1.1 * least


@pytest.mark.parametrize("servers", SERVERS)
def test_asynchronous_steps_take_what_the_busiest_link_needs(servers):
    """Pushes and answers pass at the same time; from the middle of the run on, since all workers
    begin together.
    """
    times = StepTimes(step_seconds=2, jitter=0.3)
    clock = timed(AsyncParameterServer(servers=servers), 64, OF_FOURS, PUSH, times, 40)
    ends = sorted(end for worker in clock.workers for end in worker.step_ends)
    middle, last = len(ends) // 2, len(ends) - 65  # while all of them are at work
    seconds = 64 * (ends[last] - ends[middle]) / (last - middle)
    least = max(least_one_way(servers), 2 + 2 * PUSH / BANDWIDTH)
    assert 0.95 * least <= seconds <= 1.1 * least


QUARTER, HALF = Link(0.25, math.inf), Link(0, 4 * NUM_BYTES)
HANDLING = {"server_tensor_seconds": 1 / 16, "server_copy_bandwidth": 4 * NUM_BYTES}
ASYNC = AsyncParameterServer(1)
BY_HAND = {  # scheme, workers, profile, and the ends of two steps of each
    "a server takes 0.25 s for each push, both of 1 s": (
        *(ASYNC, 2, machine(0.25)),
        [[1.25, 2.5], [1.5, 2.75]],
    ),
    "bandwidth counts there, at the server, and back": (
        *(ASYNC, 1, machine(link=Link(0.125, NUM_BYTES * 4), server_bandwidth=NUM_BYTES * 8)),
        [[1.875, 3.75]],
    ),
    "on one machine messages in and out are work of the server, as an update is": (
        *(ASYNC, 2, machine(0.25, QUARTER)),
        [[1.75, 3.5], [2.5, 4.25]],
    ),
    "three pushes of 0.25 s are one update; worker 0 is answered first": (
        *(SyncParameterServer(1), 3, machine(link=QUARTER)),
        [[2, 4.0], [2.25, 4.25], [2.5, 4.5]],
    ),
    "one update of three pushes takes 1 s": (
        *(SyncParameterServer(1), 3, machine(server_bandwidth=NUM_BYTES)),
        [[2, 4]] * 3,
    ),
    "each of three updates takes 1 s": (
        *(ASYNC, 3, machine(server_bandwidth=NUM_BYTES)),
        [[2, 5], [3, 6], [4, 7]],
    ),
    "between nodes a server takes half a second for each message: 4 tensors and all bytes": (
        *(ASYNC, 2, nodes(**HANDLING)),
        [[2.0, 4.0], [3.0, 5.0]],
    ),
    "between nodes both pushes share the link until 1.5 s, while the server works": (
        *(ASYNC, 2, nodes(HALF, server_seconds=0.25)),
        [[2.0, 3.75], [2.25, 4.0]],
    ),
    "a group on two nodes: 0.25 s for each message, also to and from the other": (
        *(AsyncParameterServer(1, group_size=2), 2, nodes(HALF)),
        [[1.75, 3.75], [2.0, 4.0]],
    ),
    "a group sends one message: 0.125 s inside a node, 0.5 s to the server, and back": (
        *(AsyncParameterServer(1, group_size=2), 4, nodes(HALF, Link(0.125, math.inf), 2)),
        [[2.25, 4.5]] * 4,
    ),
}


@pytest.mark.parametrize(("scheme", "workers", "profile", "ends"), BY_HAND.values(), ids=BY_HAND)
def test_two_steps_by_hand(scheme, workers, profile, ends):
    assert ends_of(clock_of(scheme, workers, 2 * workers, profile)) == ends


def test_what_a_group_sends_and_when():
    scheme, _, profile, _ = BY_HAND[[*BY_HAND][-1]]
    clock = clock_of(scheme, 4, 8, profile)
    report = clock.servers.pushes[0].report
    assert report.pushes == [(0, 0), (2, 1), (0, 1), (2, 1)]
    assert report.bytes_received == 4 * NUM_BYTES
    for way in ("bytes_sent", "bytes_received"):
        assert [getattr(worker, way) / NUM_BYTES for worker in clock.workers] == [4, 2, 4, 2]
    first, other = ([span[1:] for span in worker.timeline[:4]] for worker in clock.workers[:2])
    assert first == [
        ("compute", 0, 1),
        ("wait", 1, 1.125),
        ("communicate", 1.125, 1.625),
        ("communicate", 1.625, 2.125),
    ]
    assert other == [
        ("compute", 0, 1),
        ("communicate", 1, 1.125),
        ("wait", 1.125, 2.125),
        ("communicate", 2.125, 2.25),
    ]


def test_a_saturated_server_sets_the_pace_and_the_staleness():
    """Eight workers at 1 s a step, and a server that needs 0.25 s for each push."""
    clock = clock_of(ASYNC, 8, 80, machine(0.25))
    assert clock.kernel.now == 1 + 80 * 0.25
    assert {staleness for _, staleness in clock.servers.pushes[0].report.pushes[8:]} == {7}
    waited = clock.workers[1].timeline[:3]
    assert waited == [(1, "compute", 0, 1), (1, "wait", 1, 1.25), (1, "communicate", 1.25, 1.5)]


def test_servers_share_the_work_of_an_update():
    """Three updates after 1 s, of half a second at each of two servers."""
    clock = clock_of(AsyncParameterServer(2), 3, 3, machine(server_bandwidth=NUM_BYTES))
    assert max(end for end, *_ in ends_of(clock)) == pytest.approx(2.5, rel=0.01)  # 103 weights


@pytest.mark.parametrize(
    ("placement", "ends"),
    [
        # Worker 0 pushes to servers 0, 1, 2 and worker 1 to 1, 2, 0, a second each, from 1 s on;
        # answers follow by a second. Of two servers each takes 1.5 s.
        ("own_nodes", {2: [5.5, 5.5], 3: [5, 5]}),
        # Server 0 is beside worker 0 and server 1 beside worker 1: a worker's own costs nothing.
        ("beside_workers", {1: [1, 7], 2: [4, 4]}),
    ],
)
def test_servers_are_sent_to_one_after_another_and_answer_meanwhile(placement, ends):
    """A worker that shares its links with nobody: three seconds for all bytes, one way."""
    profile = nodes(Link(0, NUM_BYTES / 3), server_placement=placement)
    for servers, expected in ends.items():
        clock = timed(AsyncParameterServer(servers), 2, profile, steps=2)
        assert [end for end, *_ in ends_of(clock)] == pytest.approx(expected, rel=0.01), servers


@pytest.mark.parametrize(
    ("scheme", "seconds"),
    [
        (SyncAllReduce(collective="parameter_server"), 6),
        (SyncParameterServer(1, backup_workers=0), 8),
        (SyncParameterServer(2, backup_workers=0), 4),
    ],
)
def test_a_server_sends_after_it_has_received(scheme, seconds):
    """Four workers, a second for all bytes, in one piece. A worker that reduces for all has those
    of three; servers are apart, and have those of four.
    """
    clock = timed(scheme, 4, nodes(Link(0, NUM_BYTES), overlap=False))
    assert clock.kernel.now == pytest.approx(1 + seconds)


@pytest.mark.parametrize("collective", ["native", "tree", "multicolor", "parameter_server"])
def test_synchronous_steps_last_as_long_as_compute_and_the_collective(collective):
    profile = machine(link=Link(0.25, NUM_BYTES))
    times = StepTimes(slow_workers=1, slow_factor=2)
    last = clock_of(SyncAllReduce(collective), 4, 8, profile, step_times=times).workers[3]
    step = 2 + named(collective).seconds(NUM_BYTES, 4, profile)
    assert last.step_ends == pytest.approx([step, 2 * step], rel=1e-12)
    assert last.timeline[1] == (3, "wait", 1.0, 2.0)


def test_buckets_hide_behind_backward_but_for_the_last():
    """Of 6 s that end at 10 s. Three buckets are ready at 10 - 4 x 2/3, 10 - 4 x 1/3 and 10."""

    def per_byte(num_bytes):
        return num_bytes / BUCKET_BYTES  # a second per bucket

    one, buckets = [Brought(10, 6, overlapped=True)], OwnNetwork().buckets
    assert allreduce_end(one, buckets(BUCKET_BYTES), per_byte) == 11
    assert allreduce_end(one, buckets(3 * BUCKET_BYTES), per_byte) == 11
    assert allreduce_end(one, [Bucket(3 * BUCKET_BYTES, 1.0)], per_byte) == 13
    # a slow network delays every bucket; the first is that of who brings it last
    two = [*one, Brought(9, 1, overlapped=True)]
    first = max(10 - 4 * 2 / 3, 9 - (2 / 3) * (2 / 3))
    found = allreduce_end(two, buckets(3 * BUCKET_BYTES), lambda size: 4 * per_byte(size))
    assert found == pytest.approx(first + 12)


@pytest.mark.parametrize(("scheme", "overlaps"), [(SyncAllReduce(), True), (LocalSGD(1), False)])
def test_gradients_leave_during_backward_and_weights_behind_it(scheme, overlaps):
    size = 4 * BUCKET_BYTES
    together, apart = (
        timed(scheme, 2, nodes(Link(0, size), overlap=overlap), size).kernel.now
        for overlap in (True, False)
    )
    assert apart == pytest.approx(2)
    assert together < 1.9 if overlaps else together == apart


@pytest.mark.parametrize("of_weights", [True, False])
def test_a_mean_that_is_brought_late_begins_when_the_last_worker_brings_it(of_weights):
    """Worker 1 asks until 1 + 2 x 3 s; the all-reduce of two workers takes two messages more."""
    profile = machine(link=Link(3, math.inf))
    clock = clock_of(LateMean(of_weights), 2, 4, profile)
    step = 1 + 6 + named("native").seconds(NUM_BYTES, 2, profile)
    assert ends_of(clock) == [[step, 2 * step]] * 2
    passive, active = (worker.timeline for worker in clock.workers)
    assert passive[1:3] == [(0, "wait", 1, 7), (0, "communicate", 7, step)]
    assert active[1] == (1, "communicate", 7, step)


def test_the_mean_at_the_end_of_a_run_takes_its_time():
    """Nine steps of one second with an all-reduce of ten each, and another one after the last."""
    profile = machine(link=Link(5, math.inf))
    seconds = named("native").seconds(NUM_BYTES, 2, profile)
    clock = clock_of(PostLocalSGD(4, 1), 2, 18, profile)
    assert clock.workers[0].step_ends[-1] == 9 * (1 + seconds)
    assert clock.kernel.now == 9 * (1 + seconds) + seconds


@pytest.mark.parametrize(
    ("scheme", "half"), [(Independent(), 4), (ElasticAveraging(1, 2, 0.1), 6), (Gossip("ring"), 4)]
)
def test_a_slow_worker_holds_up_nobody_who_does_not_meet_it(scheme, half):
    """Of 28 steps the fast three workers take 24 of 1 s, the slow one 4 of 2 s. What is exchanged
    after two steps is so after a third one's gradient.
    """
    times = StepTimes(slow_workers=1, slow_factor=2)
    clock = clock_of(scheme, 4, 28, machine(), step_times=times, snapshot_samples=[56, 112])
    assert [worker.num_steps for worker in clock.workers] == [4, 8, 8, 8]
    assert clock.snapshots == [(56, half), (112, 8)]


def test_neighbours_wait_until_the_slowest_of_them_sends_and_then_communicate():
    """A message takes 0.5 s."""
    profile, times = (
        machine(link=Link(0.25, NUM_BYTES * 4)),
        StepTimes(slow_workers=1, slow_factor=4),
    )
    clock = clock_of(SyncGossip("ring"), 4, 8, profile, step_times=times)
    slow, neighbour, far = (worker.timeline for worker in clock.workers[:3])
    assert [phase for _, phase, *_ in slow] == ["compute"] * 2
    assert neighbour[1:3] == [(1, "wait", 1, 4), (1, "communicate", 4, 4.5)]
    assert far[1] == (2, "communicate", 1, 1.5)
    assert far[3:] == [(2, "wait", 2.5, 5.5), (2, "communicate", 5.5, 6)]
