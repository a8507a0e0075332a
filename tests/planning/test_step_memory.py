"""The memory of a step as it is counted from shapes, against what the allocator counts."""

import pytest
import torch
from torch import nn
from torch.optim import SGD

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.network import torchvision_network
from paceline.model.nin import NiN
from paceline.model.small_cnn import SmallCNN
from paceline.planning.measured_peak import measure_peak
from paceline.planning.step_memory import Step, count_memory

NETWORKS = {  # with the shape of an image
    "small_cnn": (lambda: SmallCNN((1, 28, 28), 10, 16, "batch"), (1, 28, 28)),
    "resnet18": (lambda: torchvision_network("resnet18", (3, 32, 32), 10, "batch"), (3, 32, 32)),
    "nin": (lambda: NiN((3, 67, 67), 10), (3, 67, 67)),
}


def momentum(parameters):
    return SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.01)


def constant(memory):
    return memory.weights + memory.gradients + memory.optimizer


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch_size", [4, 8, 16, 32, 48, 64])
@pytest.mark.slow
def test_counted_peak_is_the_allocators(name, batch_size):
    build, shape = NETWORKS[name]
    counted = count_memory(Classifier(build(), momentum), shape, batch_size)
    measured = measure_peak(
        lambda: Step(Classifier(build(), momentum), shape, batch_size).take, torch.device("cpu")
    )
    assert counted.peak == pytest.approx(measured.allocated, rel=0.1)
    moving = measured.allocated - constant(counted)  # without the part that is easy to count
    assert counted.peak - constant(counted) == pytest.approx(moving, rel=0.1)


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
