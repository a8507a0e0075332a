"""A server's weights by hand: what its optimizer does with pushes."""

import math

import pytest
import torch
from pytorch_lightning.utilities.types import LRSchedulerConfig
from torch.testing import assert_close

from paceline.clock.flat_optimizer import group_segments
from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.served_weights import ServedWeights
from paceline.clock.vector_spec import ServerSpec, VectorSpec
from paceline.model.learning_rate import LearningRate
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync

FIRST, PUSHED = torch.tensor([4.0, -2.0]).double(), torch.tensor([1.0, 3.0]).double()
RATE, MOMENTUM, DECAY = 0.5, 0.5, 0.25


def served_by(scheme, workers, snapshots, statistics=lambda worker: torch.empty(0), **options):
    """A server whose pushes are all `PUSHED`; `options`: of its run, or else of SGD."""
    run = {name: options.pop(name) for name in ("num_steps", "learning_rate") if name in options}
    sgd = torch.optim.SGD([FIRST.clone().requires_grad_()], lr=RATE, **options)
    run = RunSpec(workers, batch_size=4, snapshot_samples=snapshots, **run)
    spec = ServerSpec(0, run, VectorSpec(group_segments(sgd), dtype="float64"))
    calls = {"gradient": lambda worker: PUSHED, "statistics": statistics, "seconds": lambda: 0.0}
    return ServedWeights(scheme, spec, FIRST.clone(), **calls)


def test_inverse_staleness_scales_the_whole_step_and_snapshots_stay():
    """Decay and momentum too: w <- w - rate / max(1, s) m,  m <- 0.5 m + g + 0.25 w. A snapshot is
    of the update that reaches its samples, of 4 each.
    """
    scheme = AsyncParameterServer(1, "inverse_staleness")
    served = served_by(scheme, 2, [4, 10], momentum=MOMENTUM, weight_decay=DECAY)
    weights, moving, held = FIRST, torch.zeros(2).double(), []
    for version, factor in [(0, 1), (0, 1), (0, 1 / 2), (0, 1 / 3), (4, 1)]:
        assert served.arrive(0, version) == (0,)
        moving = MOMENTUM * moving + PUSHED + DECAY * weights
        weights = weights - RATE * factor * moving
        assert_close(served.weights, weights)
        held.append(served.weights.clone())
    assert [staleness for _, staleness in served.report.pushes] == [0, 1, 2, 3, 0]
    assert [(each.samples, each.updates) for each in served.snapshots] == [(4, 1), (12, 3)]
    for snapshot, expected in zip(served.snapshots, (held[0], held[2]), strict=True):
        assert torch.equal(snapshot.weights[0], expected)


def test_a_snapshot_has_the_mean_statistics_of_the_workers_that_live():
    """Workers 0 and 2 die one after the other; each worker's statistics are its own vector."""
    own = torch.tensor([[1.0, 5.0], [3.0, 0.0], [8.0, -2.0]]).double()
    served = served_by(AsyncParameterServer(1), 3, [12, 16, 20], own.__getitem__)
    for version, worker in enumerate([2, 0, 1]):
        served.arrive(worker, version)
    served.lose(0, "killed", stepping=True)
    served.arrive(1, 3)
    served.lose(2, "killed", stepping=False)
    served.arrive(1, 4)
    for snapshot, living in zip(served.snapshots, ([0, 1, 2], [1, 2], [1]), strict=True):
        assert_close(snapshot.statistics, own[living].mean(0))


def test_the_rate_follows_the_images_of_an_update_and_the_samples_before_it():
    """Two workers of 4 images, together until half of 16 samples: 2 (1 - 0/16), then 1 - 8/16."""
    linear = LearningRate("linear", 8, 4, 0, "poly", 16, (), 1.0, 1.0)
    served = served_by(SyncThenAsync(1, 0.5), 2, [16], num_steps=4, learning_rate=linear)
    assert served.arrive(0, 0) == ()
    for worker, version, answered, rate in (
        (1, 0, (0, 1), 2),
        (1, 1, (1,), 2 + 8 / 16),
        (0, 2, (0,), 2 + 8 / 16 + 4 / 16),
    ):
        assert served.arrive(worker, version) == answered
        assert_close(served.weights, FIRST - RATE * rate * PUSHED)


@pytest.mark.parametrize(("images", "frequency"), [(40, 1), (48, 1), (25, 2), (7, 3)])
def test_a_scheduler_by_epoch_has_taken_a_step_for_each_epoch_that_is_over(images, frequency):
    """Also where an epoch is no whole number of batches, here of 10 images."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    config = LRSchedulerConfig(scheduler, interval="epoch", frequency=frequency)
    run = RunSpec(2, batch_size=10, epoch_samples=images)
    schedules = Schedules([config], LiveOptions(optimizer), run)
    for batches in range(40):
        schedules.set(batches)
        steps = math.floor(batches / (frequency * images / 10) + 1e-9)
        assert optimizer.param_groups[0]["lr"] == 0.5**steps
