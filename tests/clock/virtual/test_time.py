"""Virtual seconds, by hand: lines at a server and on a link, and the end of an all-reduce."""

import math
from functools import partial

import numpy as np
import pytest

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.clock_parts import MessageSizes
from paceline.clock.virtual.kernel import Buses, Cores, Kernel, Moment
from paceline.clock.virtual.virtual_links import Brought, allreduce_end
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.exchange.collectives import collective as named
from paceline.prediction.predict import timed_clock
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


def machine(server_seconds=0.0, link=FREE, server_bandwidth=math.inf):
    return ClusterProfile(FREE, link, None, server_seconds, server_bandwidth)


_BOTH_WAYS = [("push", 0, 0), ("push", 1, 0), ("answer", 0, 0), ("answer", 0, 1)]


def passages(profile, messages, workers=4, servers=2, *, star=False):
    """Passages of (time, verb, sender, receiver, bytes) over one network."""
    kernel, found = Kernel(), {}
    shared = profile.topology == "pcie_host"
    buses = Buses(kernel, Cores(kernel, None), profile.num_nodes(workers) if shared else 0)
    network = VirtualNetwork(profile, workers, servers, kernel=kernel, buses=buses, star=star)

    def send(number, begin, verb, *message):
        yield Moment(begin)
        found[number] = yield from getattr(network, verb)(*message)

    for number, message in enumerate(messages):
        kernel.start(send(number, *message))
    while len(kernel):
        kernel.advance()
    return [found[number] for number in range(len(messages))]


def test_messages_to_one_server_share_its_link():
    """From 1 s to 3 s by halves; the first had half of its bytes before, the second has after."""
    profile = ClusterProfile(Link(0.5, 100), FREE, 1, 0, math.inf)
    messages = [
        (0, "push", 0, 0, 200),
        (1, "push", 1, 0, 200),
        (1, "push", 2, 1, 200),  # another server's link is free
        (1, "answer", 0, 1, 100),  # and so is the other direction
    ]
    assert passages(profile, messages) == [(0, 3.5), (1, 4.5), (1, 3.5), (1, 2.5)]


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
    profile = ClusterProfile(Link(0, 100, unevenness=0.5), FREE, 1, 0, math.inf)
    both = [(10 * n, verb, *ends, 100) for n in range(400) for verb, *ends in _BOTH_WAYS]
    found = np.array(passages(profile, both, workers=2, servers=1, star=True))
    taken = (found[:, 1] - found[:, 0]).reshape(400, 4)
    assert taken[:, :2] == pytest.approx(np.full((400, 2), 2))
    answers = taken[:, 2:]
    assert answers.max(axis=1) == pytest.approx(np.full(400, 2))
    logs = np.log(answers.min(axis=1) - 1) * np.where(answers[:, 0] < answers[:, 1], 1, -1)
    assert logs.std() == pytest.approx(0.5 * math.sqrt(2), rel=0.1)
    assert abs(logs.mean()) < 0.1


def test_workers_of_a_node_share_its_link():
    profile = ClusterProfile(Link(0, 100), FREE, 2, 0, math.inf)
    messages = [(0, "push", 0, 0, 100), (0, "push", 1, 1, 100), (2, "push", 2, 1, 100)]
    assert passages(profile, messages) == [(0, 2), (0, 2), (2, 3)]


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


BANDWIDTH, PUSH = 16_000, 1600


def steps_of_64_workers(scheme, step_times, steps):
    """The clock after so many steps of each of 64 workers on 16 nodes, over the links alone."""
    return timed_clock(
        scheme,
        RunSpec(64, workload=OwnNetwork().of_size(PUSH, 0)),
        profile=ClusterProfile(Link(0, BANDWIDTH), FREE, 4, 0, math.inf),
        step_times=step_times,
        steps=steps,
    )


def least_one_way(servers):
    """Seconds of all bytes into a server, or of four workers' out of their node."""
    return max(64 / servers, 4) * PUSH / BANDWIDTH


SERVERS = [1, 2, *(pytest.param(number, marks=pytest.mark.slow) for number in (4, 8, 16))]


@pytest.mark.parametrize("servers", SERVERS)
def test_a_synchronous_step_takes_what_the_busiest_link_needs(servers):
    times = StepTimes(step_seconds=0.1, jitter=0.05)
    clock = steps_of_64_workers(SyncParameterServer(servers=servers), times, 10)
    computing = sum(max(times.seconds(worker, step) for worker in range(64)) for step in range(10))
    least = 10 * 2 * least_one_way(servers)
    assert least <= clock.kernel.now <= computing + 1.1 * least


@pytest.mark.parametrize("servers", SERVERS)
def test_asynchronous_steps_take_what_the_busiest_link_needs(servers):
    """Pushes and answers pass at the same time; from the middle of the run on, since all workers
    begin together.
    """
    times = StepTimes(step_seconds=2, jitter=0.3)
    clock = steps_of_64_workers(AsyncParameterServer(servers=servers), times, 40)
    ends = sorted(end for worker in clock.workers for end in worker.step_ends)
    middle, last = len(ends) // 2, len(ends) - 65  # while all of them are at work
    seconds = 64 * (ends[last] - ends[middle]) / (last - middle)
    least = max(least_one_way(servers), 2 + 2 * PUSH / BANDWIDTH)
    assert 0.95 * least <= seconds <= 1.1 * least


def test_a_server_takes_its_time_for_each_push():
    """Two workers push at 1 s: served until 1.25 s and 1.5 s, and so on every step."""
    strategy, _ = train(
        AsyncParameterServer(1), 2, 6, step_times=StepTimes(), profile=machine(server_seconds=0.25)
    )
    ends = [worker.step_ends for worker in strategy.clock.workers]
    assert ends == [[1.25, 2.5, 3.75], [1.5, 2.75, 4.0]]
    assert strategy.clock.workers[1].timeline[:3] == [
        (1, "compute", 0.0, 1.0),
        (1, "wait", 1.0, 1.25),
        (1, "communicate", 1.25, 1.5),
    ]
    assert [w.seconds_communicating for w in strategy.clock.workers] == [0.75, 1.0]


def test_a_saturated_server_sets_the_pace_and_the_staleness():
    """Eight workers at 1 s a step, and a server that needs 0.25 s for each push."""
    strategy, _ = train(
        AsyncParameterServer(1), 8, 80, step_times=StepTimes(), profile=machine(server_seconds=0.25)
    )
    assert strategy.clock.kernel.now == 1 + 80 * 0.25
    assert [staleness for _, staleness in strategy.clock.servers.served[0].report.pushes[8:]] == (
        [7] * 72
    )


def test_bandwidth_counts_there_and_back_and_at_the_server():
    profile = machine(link=Link(0.125, NUM_BYTES * 4), server_bandwidth=NUM_BYTES * 8)
    strategy, _ = train(AsyncParameterServer(1), 1, 2, step_times=StepTimes(), profile=profile)
    step = 1 + (0.25 + 0.125) + 0.125 + (0.25 + 0.125)
    assert strategy.clock.workers[0].step_ends == [step, 2 * step]
    assert strategy.clock.workers[0].bytes_sent == 2 * NUM_BYTES
    assert strategy.clock.servers.served[0].report.bytes_sent == 2 * NUM_BYTES


@pytest.mark.parametrize("collective", ["native", "tree", "multicolor", "parameter_server"])
def test_synchronous_steps_last_as_long_as_compute_and_the_collective(collective):
    profile = machine(link=Link(0.25, NUM_BYTES))
    times = StepTimes(slow_workers=1, slow_factor=2)
    strategy, _ = train(SyncAllReduce(collective), 4, 8, step_times=times, profile=profile)
    step = 2 + named(collective).seconds(NUM_BYTES, 4, profile)
    assert strategy.clock.workers[3].step_ends == pytest.approx([step, 2 * step], rel=1e-12)
    assert strategy.clock.workers[3].timeline[1] == (3, "wait", 1.0, 2.0)


def per_byte(num_bytes):
    return num_bytes / BUCKET_BYTES  # a second per bucket


def test_the_last_bucket_of_a_gradient_cannot_hide_behind_backward():
    one, buckets = [Brought(10, 6, overlapped=True)], OwnNetwork().buckets
    assert allreduce_end(one, buckets(BUCKET_BYTES), per_byte) == 11
    # three buckets: ready at 10 - 4 x 2/3, 10 - 4 x 1/3 and 10; each takes a second
    assert allreduce_end(one, buckets(3 * BUCKET_BYTES), per_byte) == 11
    assert allreduce_end(one, [Bucket(3 * BUCKET_BYTES, 1.0)], per_byte) == 13


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


@pytest.mark.parametrize("of_weights", [True, False])
def test_a_mean_that_is_brought_late_begins_when_the_last_worker_brings_it(of_weights):
    """Worker 1 asks until 1 + 2 x 3 s; the all-reduce of two workers takes two messages more."""
    profile = machine(link=Link(3, math.inf))
    strategy, _ = train(LateMean(of_weights), 2, 4, step_times=StepTimes(), profile=profile)
    step = 1 + 6 + named("native").seconds(NUM_BYTES, 2, profile)
    assert [w.step_ends for w in strategy.clock.workers] == [[step, 2 * step]] * 2
    passive, active = (worker.timeline for worker in strategy.clock.workers)
    assert passive[1:3] == [(0, "wait", 1, 7), (0, "communicate", 7, step)]
    assert active[1] == (1, "communicate", 7, step)


def test_the_mean_at_the_end_of_a_run_takes_its_time():
    """Nine steps of one second with an all-reduce of ten each, and another one after the last."""
    profile = machine(link=Link(5, math.inf))
    seconds = named("native").seconds(NUM_BYTES, 2, profile)
    strategy, _ = train(PostLocalSGD(4, 1), 2, 18, step_times=StepTimes(), profile=profile)
    assert strategy.clock.workers[0].step_ends[-1] == 9 * (1 + seconds)
    assert strategy.clock.kernel.now == 9 * (1 + seconds) + seconds


def test_a_slow_network_delays_every_bucket():
    one = [Brought(10, 6, overlapped=True), Brought(9, 1, overlapped=True)]
    slow = partial(lambda size: 4 * size / BUCKET_BYTES)
    first = max(10 - 4 * 2 / 3, 9 - (2 / 3) * (2 / 3))
    buckets = OwnNetwork().buckets(3 * BUCKET_BYTES)
    assert allreduce_end(one, buckets, slow) == pytest.approx(first + 12)


def test_on_one_machine_messages_are_work_of_the_server():
    """A server that needs 0.25 s each for a message in, an update and a message out."""
    profile = machine(link=Link(0.25, math.inf), server_seconds=0.25)
    strategy, _ = train(AsyncParameterServer(1), 2, 4, step_times=StepTimes(), profile=profile)
    first, second = (worker.step_ends for worker in strategy.clock.workers)
    assert first == [1.75, 3.5]
    assert second == [2.5, 4.25]


def test_a_server_answers_the_workers_that_it_releases_in_order():
    """Three pushes of 0.25 s are one update; then each answer takes 0.25 s, worker 0's first."""
    profile = machine(link=Link(0.25, math.inf))
    scheme = SyncParameterServer(1)
    strategy, _ = train(scheme, 3, 6, step_times=StepTimes(), profile=profile)
    clock = strategy.clock
    assert [worker.step_ends[0] for worker in clock.workers] == [2, 2.25, 2.5]
    assert [worker for worker, _ in clock.servers.served[0].report.pushes] == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("scheme", "ends"), [(SyncParameterServer(1), 2), (AsyncParameterServer(1), 4)]
)
def test_an_update_takes_its_time_once_and_not_for_each_push(scheme, ends):
    """Three pushes at 1 s, and a second for each update: one of all three, or three."""
    profile = machine(server_bandwidth=NUM_BYTES)
    strategy, _ = train(scheme, 3, 3, step_times=StepTimes(), profile=profile)
    assert max(worker.step_ends[0] for worker in strategy.clock.workers) == ends


def test_servers_share_the_work_of_an_update():
    """Three updates after 1 s, of half a second at each of two servers."""
    profile = machine(server_bandwidth=NUM_BYTES)
    strategy, _ = train(AsyncParameterServer(2), 3, 3, step_times=StepTimes(), profile=profile)
    last = max(worker.step_ends[0] for worker in strategy.clock.workers)
    assert last == pytest.approx(2.5, rel=0.01)  # of 103 weights


def test_between_nodes_a_server_takes_its_time_for_each_message():
    """Half a second each, for four tensors and all bytes. Pushes come at 1 s; the first answer
    leaves before the second push is taken.
    """
    handling = {"server_tensor_seconds": 1 / 16, "server_copy_bandwidth": 4 * NUM_BYTES}
    profile = ClusterProfile(FREE, FREE, 1, 0, math.inf, **handling)
    strategy, _ = train(AsyncParameterServer(1), 2, 4, step_times=StepTimes(), profile=profile)
    assert [worker.step_ends for worker in strategy.clock.workers] == [[2.0, 4.0], [3.0, 5.0]]
    assert strategy.clock.workers[1].seconds_waiting == 1.0


def test_servers_share_the_tensors_of_a_message():
    """Of 103 weights in 4 tensors, a cut in the middle divides the first one."""
    sizes = MessageSizes(OwnNetwork(), NUM_BYTES, False, [80, 5, 15, 3])
    found = [sizes.tensors(n, sharding) for sharding in ("bytes", "round_robin") for n in (1, 2)]
    assert found == [[4], [1, 4], [4], [2, 2]]


def test_between_nodes_messages_pass_while_the_server_works():
    """Both pushes share the link until 1.5 s; they are served until 1.75 s and 2 s."""
    profile = ClusterProfile(Link(0, 4 * NUM_BYTES), FREE, 1, 0.25, math.inf)
    strategy, _ = train(AsyncParameterServer(1), 2, 4, step_times=StepTimes(), profile=profile)
    first, second = (worker.step_ends for worker in strategy.clock.workers)
    assert first == [2.0, 3.75]
    assert second == [2.25, 4.0]


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
    for servers, expected in ends.items():
        clock = timed_clock(
            AsyncParameterServer(servers),
            RunSpec(2, workload=OwnNetwork().of_size(NUM_BYTES, 0)),
            profile=ClusterProfile(
                Link(0, NUM_BYTES / 3), FREE, 1, 0, math.inf, server_placement=placement
            ),
            step_times=StepTimes(),
            steps=2,
        )
        found = [worker.step_ends[0] for worker in clock.workers]
        assert found == pytest.approx(expected, rel=0.01), servers


@pytest.mark.parametrize(
    ("scheme", "half"),
    [(Independent(), 4), (ElasticAveraging(1, 2, 0.1), 6), (Gossip("ring"), 4)],
)
def test_a_slow_worker_holds_up_nobody_who_does_not_meet_it(scheme, half):
    """Of 28 steps the fast three workers take 24 of 1 s, the slow one 4 of 2 s. What is exchanged
    after two steps is so after a third one's gradient.
    """
    times = StepTimes(slow_workers=1, slow_factor=2)
    strategy, _ = train(scheme, 4, 28, step_times=times, snapshot_samples=[56, 112])
    assert [worker.num_steps for worker in strategy.clock.workers] == [4, 8, 8, 8]
    kept = [(each.samples, each.seconds) for each in strategy.clock.holder.snapshots]
    assert kept == [(56, half), (112, 8)]


def test_a_group_sends_one_message_over_the_network():
    """0.125 s inside a node, each way, and 0.5 s to the server or back: the groups share it."""
    profile = ClusterProfile(Link(0, 4 * NUM_BYTES), Link(0.125, math.inf), 2, 0, math.inf)
    strategy, _ = train(
        AsyncParameterServer(1, group_size=2), 4, 8, step_times=StepTimes(), profile=profile
    )
    clock = strategy.clock
    ends = [worker.step_ends for worker in clock.workers]
    assert ends == [[2.25, 4.5]] * 4
    assert clock.servers.served[0].report.pushes == [(0, 0), (2, 1), (0, 1), (2, 1)]
    assert clock.servers.served[0].report.bytes_received == 4 * NUM_BYTES
    assert [worker.bytes_sent for worker in clock.workers] == [n * NUM_BYTES for n in (4, 2, 4, 2)]
    assert [worker.bytes_received for worker in clock.workers] == [
        n * NUM_BYTES for n in (4, 2, 4, 2)
    ]
    first, other = (worker.timeline[:4] for worker in clock.workers[:2])
    assert [span[1:] for span in first] == [
        ("compute", 0, 1),
        ("wait", 1, 1.125),
        ("communicate", 1.125, 1.625),
        ("communicate", 1.625, 2.125),
    ]
    assert [span[1:] for span in other] == [
        ("compute", 0, 1),
        ("communicate", 1, 1.125),
        ("wait", 1.125, 2.125),
        ("communicate", 2.125, 2.25),
    ]


def test_a_group_on_two_nodes_sends_more():
    """0.25 s for each message, of which a worker's first and last are to and from the other."""
    profile = ClusterProfile(Link(0, 4 * NUM_BYTES), FREE, 1, 0, math.inf)
    strategy, _ = train(
        AsyncParameterServer(1, group_size=2), 2, 4, step_times=StepTimes(), profile=profile
    )
    first, other = strategy.clock.workers
    assert first.step_ends == [1.75, 3.75]
    assert other.step_ends == [2.0, 4.0]


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
    strategy, _ = train(Gossip("ring"), 2, 4, step_times=StepTimes(), profile=profile)
    passive, active = strategy.clock.workers
    for worker in (passive, active):
        assert worker.step_ends == [1, 2]
        assert worker.seconds_communicating == 0
        assert [span[1] for span in worker.timeline] == ["compute"] * 2
        sent = len(asked) * NUM_BYTES
        assert (worker.bytes_sent, worker.bytes_received) == (sent, sent)
    assert (passive.averages, active.averages) == (asked, asking)


def test_neighbours_wait_until_the_slowest_of_them_sends_and_then_communicate():
    """A message takes 0.5 s."""
    profile = machine(link=Link(0.25, NUM_BYTES * 4))
    times = StepTimes(slow_workers=1, slow_factor=4)
    strategy, _ = train(SyncGossip("ring"), 4, 8, step_times=times, profile=profile)
    slow, neighbour, far = strategy.clock.workers[:3]
    assert [phase for _, phase, *_ in slow.timeline] == ["compute"] * 2
    assert neighbour.timeline[1:3] == [(1, "wait", 1, 4), (1, "communicate", 4, 4.5)]
    assert far.timeline[1] == (2, "communicate", 1, 1.5)
    assert far.timeline[3:] == [(2, "wait", 2.5, 5.5), (2, "communicate", 5.5, 6)]


def test_means_in_pairs_between_nodes_pass_the_links_of_the_nodes():
    """Workers 0 and 1 on a node, 2 and 3 on another, and a second per message between them."""
    profile = ClusterProfile(Link(0.5, NUM_BYTES), FREE, 2, 0, math.inf)
    messages = [(1, "pass_on", *ends, NUM_BYTES) for ends in ((1, 0), (1, 2), (0, 3), (2, 1))]
    inside, first, second, back = passages(profile, messages, servers=0)
    assert inside == (1, 1)
    assert first == second == (1, 3.5)  # they share the link
    assert back == (1, 2.5)  # and it is free the other way
    strategy, _ = train(Gossip("complete"), 4, 48, step_times=StepTimes(), profile=profile)
    steps_under_way = {True: set(), False: set()}
    for active in strategy.clock.workers[1::2]:
        for mean in active.averages[:-1]:
            away = mean.partner // 2 != active.index // 2
            steps_under_way[away].add(mean.held_after - mean.sent_after)
    assert steps_under_way[False] == {0}
    assert min(steps_under_way[True]) == 3  # of 1 s each, and the messages 1.5 s


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
    clock = timed_clock(
        scheme,
        RunSpec(4, workload=OwnNetwork().of_size(NUM_BYTES, 0)),
        profile=ClusterProfile(Link(0, NUM_BYTES), FREE, 1, 0, math.inf, overlap=False),
        step_times=StepTimes(),
        steps=1,
    )
    assert clock.kernel.now == pytest.approx(1 + seconds)


@pytest.mark.parametrize(("scheme", "overlaps"), [(SyncAllReduce(), True), (LocalSGD(1), False)])
def test_gradients_leave_during_backward_and_weights_behind_it(scheme, overlaps):
    num_bytes = 4 * BUCKET_BYTES
    together, apart = (
        timed_clock(
            scheme,
            RunSpec(2, workload=OwnNetwork().of_size(num_bytes, 0)),
            profile=ClusterProfile(Link(0, num_bytes), FREE, 1, 0, math.inf, overlap=overlap),
            step_times=StepTimes(),
            steps=1,
        ).kernel.now
        for overlap in (True, False)
    )
    assert apart == pytest.approx(2)
    assert together < 1.9 if overlaps else together == apart
