"""The memory of a step as it is counted from shapes, against what the allocator counts."""

import pytest
import torch
from torch import nn

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.prediction.step_memory import Phase, Step, count_memory, phases_by_operation
from tests.prediction.counted_bytes import NETWORKS, PROCESSORS, momentum, of_steps, on


def constant(memory):
    return memory.weights + memory.gradients + memory.optimizer


@pytest.mark.parametrize("processor", PROCESSORS)
def test_counted_peak_is_the_allocators(processor):
    check(processor, [("resnet18", 4), ("nin", 4), ("small_cnn", 48)])


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
def test_counted_peak_is_the_allocators_at_every_batch_size(processor):
    check(processor, [(name, size) for name in NETWORKS for size in (4, 8, 16, 32, 48, 64)])


def check(processor, cases):
    """Hold the part that is hard to count, above weights, gradients and the optimizer's state."""
    for case, (said, counted) in zip(cases, on(processor, of_steps, cases), strict=True):
        assert said == pytest.approx(counted, rel=0.01), case


def test_parts_by_hand():
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))
    counted = count_memory(Classifier(network, momentum), (1, 4, 4), 7)
    assert counted.weights == counted.gradients == counted.optimizer == 4 * (16 * 5 + 5 + 5 * 3 + 3)
    assert counted.images == 7 * (4 * 16 + 8)  # and labels of 64 bits
    logits = 4 * 7 * 3
    assert counted.saved == 4 * 7 * 5 + logits + 4  # Tanh, log-softmax, and nll's sum of weights
    assert counted.peak > constant(counted) + counted.images + counted.saved


def test_buckets_keep_gradients_through_the_step():
    build, shape = NETWORKS["small_cnn"]
    module = Classifier(build(), momentum)
    freed = count_memory(module, shape, 2)
    kept = count_memory(module, shape, 2, keeps_gradients=True)
    assert kept.peak > freed.peak
    assert kept.gradients == freed.gradients


def test_the_module_is_left_as_it_is():
    module = Classifier(NETWORKS["small_cnn"][0](), momentum)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    count_memory(module, (1, 28, 28), 2)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(each.grad is None for each in module.parameters())


def test_several_optimizers_are_refused():
    module = Classifier(nn.Linear(2, 2), lambda parameters: [momentum(parameters)])
    with pytest.raises(SettingError, match=r"^model: one optimizer"):
        Step(module, (2,), 3)


def test_libraries_hold_the_rest_of_a_measured_peak():
    build, shape = NETWORKS["small_cnn"]
    counted = count_memory(Classifier(build(), momentum), shape, 2)
    held = counted.with_libraries(counted.peak + 1000)
    assert (held.peak, held.saved) == (counted.peak + 1000, counted.saved)
    assert held.update_peak == counted.update_peak + 1000
    assert counted.with_libraries(counted.peak - 1) == counted


def test_phases_are_counted_from_operations_by_hand():
    """Each peak is of what exists at once, above what was held before; the third phase is empty."""
    held = [torch.ones(1000)]

    def work():
        first = held[0] + 1  # 4,000 bytes
        second = first + 1
        del first
        yield
        second = second[:10] + 1  # 40 bytes beside 4,000
        yield

    phases = phases_by_operation(work(), held)
    assert phases == [Phase(8000, 4000), Phase(4040, 40), Phase(40, 0)]
