"""Split workers on the virtual clock: the weights of whole ones, and times by hand."""

import math

import pytest
import torch

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.simulation import Simulation
from paceline.prediction.predict import whole_rounds
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.independent import Independent
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.profile import ClusterProfile, Link, SharedCores
from paceline.timing.split_plan import SplitStep, all_gathered
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import SizedNetwork
from tests.clock.virtual.trained import SCHEMES, train, weights_of

FREE = Link(0, math.inf)
# Of the tiny network: 85 weights by images, 18 in all processes whole.
OF_TINY = SplitStep(2, [all_gathered(64, 2)], 8, summed=85, sliced=0, repeated=18)
# Of 100 weights of 4 bytes: 20 by images, 2 x 30 in slices, 20 whole; 200 bytes of activations.
STEP = SplitStep(2, [all_gathered(200, 2)], 4, summed=20, sliced=30, repeated=20)
SIZED = SizedNetwork(num_bytes=400)


def timed(scheme, link=FREE, workers=2, steps=1, **more):
    """The clock after steps of 8 s of one process, all on one machine with this link."""
    profile = ClusterProfile(FREE, link, None, 0, math.inf, **more)
    times = StepTimes(step_seconds=8)
    num_steps = whole_rounds(scheme, workers, steps)
    run = RunSpec(workers, num_steps=num_steps, workload=SIZED, split_step=STEP)
    return Simulation(scheme, run, profile, times).completed()


@pytest.mark.parametrize(
    "name", ["sync_allreduce", "async_parameter_server", "local_sgd", "gossip"]
)
def test_weights_are_those_of_whole_workers_bit_for_bit(name):
    """Where links are free and two processes take half of twice the time, times are, too."""
    whole = train(SCHEMES[name](), 2, 20, step_times=StepTimes(1, jitter=0.5, seed=3))
    halves = StepTimes(2, jitter=0.5, seed=3)
    split = train(SCHEMES[name](), 2, 20, step_times=halves, split_step=OF_TINY)
    assert all(map(torch.equal, weights_of(whole[1]).values(), weights_of(split[1]).values()))
    for one, other in zip(whole[0].simulation.workers, split[0].simulation.workers, strict=True):
        assert one.step_ends == other.step_ends
        assert (one.activation_bytes, other.activation_bytes) == (0, 64 * one.num_steps)


LINK, ACTIVATIONS = Link(0.5, 100), 0.5 + 1  # a message of 100 bytes from each process to the other
GATHERED, PUSHED, HANDED_OUT = 0.5 + 200 / 100, 2 * (0.5 + 400 / 100), 0.5 + 284 / 100
CORES = SharedCores(step_seconds={1: 1.0}, speeds={1: 1, 2: 2, 4: 2}, ddp_seconds=0.7)


@pytest.mark.parametrize(
    ("scheme", "workers", "end", "num_bytes"),
    [
        # each process averages its own part: 80 bytes over all four, 200 over two with one slice
        (SyncAllReduce(), 2, 6 * (0.5 + 20 / 100) + 2 * (0.5 + 100 / 100), 2 * (120 + 200)),
        # one worker sums the gradients by images
        (SyncAllReduce(), 1, 2 * (0.5 + 40 / 100), 2 * 80),
        # the first process speaks with the server: it has 80 + 120 bytes of the other's gradient,
        # and hands out 164 + 120, also first weights
        (AsyncParameterServer(1), 1, GATHERED + PUSHED + HANDED_OUT, 200 + 400 + 2 * 284),
    ],
)
def test_a_step_of_split_workers_by_hand(scheme, workers, end, num_bytes):
    """4 s of computing, activations, and what the scheme sends."""
    for worker in timed(scheme, LINK, workers).workers:
        assert worker.step_ends == pytest.approx([4 + ACTIVATIONS + end])
        assert worker.bytes_sent == worker.bytes_received == num_bytes


def test_compute_is_shared_and_activations_come_on_top():
    """Of weights too, which are gathered, and handed out after each step."""
    (worker,) = timed(Independent(), LINK, workers=1, steps=3).workers
    inside = ACTIVATIONS + GATHERED + HANDED_OUT
    assert worker.step_ends == pytest.approx([n * (4 + inside) for n in (1, 2, 3)])
    assert worker.seconds_communicating == pytest.approx(3 * inside)
    assert worker.activation_bytes == 3 * 200
    assert worker.timeline[:2] == [(0, "compute", 0, 4), (0, "communicate", 4, 5.5)]
    busy = timed(SyncAllReduce(), LINK, workers=1).busy_seconds()
    assert busy["inside a worker"] == pytest.approx(ACTIVATIONS)
    # four processes compute at the speed of two: each takes 4 s alone, and 8 s so
    clock = timed(SyncAllReduce(), shared_cores=CORES)
    assert [worker.step_ends for worker in clock.workers] == [[8.0], [8.0]]
