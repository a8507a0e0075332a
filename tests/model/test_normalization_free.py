"""Residual networks without normalization: how they begin, and that they learn."""

import pytest
import torch
from torch import nn

from paceline.errors import SettingError
from paceline.model.network import has_normalization, torchvision_network


@pytest.mark.parametrize(("name", "branches", "inner"), [("resnet18", 8, 1), ("resnet50", 16, 2)])
def test_branches_begin_at_zero_and_the_rest_as_fixup_says(name, branches, inner):
    torch.manual_seed(0)
    network = torchvision_network(name, (3, 32, 32), 10, "none")
    assert not has_normalization(network)
    block = network.layer2[1]
    *before, last = [each for each in block.children() if isinstance(each, nn.Conv2d)]
    assert (len(before), last.weight.count_nonzero()) == (inner, 0)
    he = (2 / before[0].weight[0].numel()) ** 0.5
    assert before[0].weight.std().item() == pytest.approx(
        he * branches ** (-1 / (2 * inner)), rel=0.05
    )
    values = torch.rand(2, last.out_channels, 4, 4)
    assert torch.equal(block(values), values)  # the identity, of positive values
    assert torch.equal(network(torch.randn(2, 3, 32, 32)), torch.zeros(2, 10))


def test_a_residual_network_without_normalization_learns():
    torch.manual_seed(0)
    network = torchvision_network("resnet18", (1, 8, 8), 10, "none")
    images, labels = torch.randn(10, 1, 8, 8), torch.arange(10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    assert (network(images).argmax(1) == labels).float().mean().item() >= 0.9
    assert all(weight.grad is not None for weight in network.parameters())


def test_networks_that_never_normalised_stay_as_they_are():
    torch.manual_seed(0)
    free = torchvision_network("squeezenet1_1", (3, 32, 32), 10, "none").state_dict()
    torch.manual_seed(0)
    plain = torchvision_network("squeezenet1_1", (3, 32, 32), 10, "batch").state_dict()
    assert all(torch.equal(free[name], plain[name]) for name in plain)


@pytest.mark.parametrize("name", ["densenet121", "swin_t"])
def test_other_networks_that_normalise_are_refused(name):
    with pytest.raises(SettingError, match="only ResNets") as error:
        torchvision_network(name, (3, 32, 32), 10, "none")
    assert error.value.setting == "model.network.normalization"
