"""What servers get of a run's vectors, and when its schedulers take a step."""

import math
from itertools import accumulate

import pytest
import torch
from pytorch_lightning.utilities.types import LRSchedulerConfig

from paceline.clock.flat_optimizer import plain_segment
from paceline.clock.run_spec import RunSpec, VectorSpec
from paceline.clock.schedules import LiveOptions, Schedules


@pytest.mark.parametrize("num_servers", [1, 2, 3, 5])
def test_the_parts_of_all_servers_are_those_of_the_vector(num_servers):
    """Cut where a server's share ends as well; each server has the parts of its own weights."""
    sizes = [4, 9, 1, 6]
    vectors = VectorSpec([plain_segment(20)], parts=sizes)
    specs = [vectors.of_server(server, num_servers, plain=True) for server in range(num_servers)]
    assert [sum(spec.parts) for spec in specs] == [spec.num_weights for spec in specs]
    parts = [size for spec in specs for size in spec.parts]
    borders = {*accumulate(sizes), *(last for _, last in vectors.bounds(num_servers))}
    assert list(accumulate(parts)) == sorted(borders)


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
