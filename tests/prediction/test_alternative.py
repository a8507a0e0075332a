"""Alternatives of blocks: they change neither weights nor statistics, and apply to any network."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from paceline.model.network import torchvision_network
from paceline.model.nin import NiN
from paceline.model.small_cnn import SmallCNN
from paceline.prediction.blocks import (
    ALTERNATIVES,
    PLAIN,
    Alternative,
    applied,
    find_blocks,
    inputs_of,
)

IMAGES = torch.rand(4, 1, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 1])


def small_cnn():
    torch.manual_seed(1)
    return SmallCNN((1, 12, 12), 3, 4, "batch").double()


def with_dropout():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(400, 3)
    ).double()


def trained(network, alternative, steps=2):
    network, blocks = deepcopy(network), None
    blocks = find_blocks(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    with applied(blocks, {block.name: alternative for block in blocks[:-1]}):
        for seed in range(steps):
            torch.manual_seed(seed)
            optimizer.zero_grad()
            cross_entropy(network(IMAGES), LABELS).backward()
            optimizer.step()
    return network


@pytest.mark.parametrize("build", [small_cnn, with_dropout])
@pytest.mark.parametrize("alternative", [each for each in ALTERNATIVES if each.precision == "32"])
def test_weights_and_statistics_are_those_of_the_network_itself(build, alternative):
    alone = trained(build(), PLAIN).state_dict()
    assert_close(trained(build(), alternative).state_dict(), alone, rtol=1e-9, atol=1e-12)


def test_bf16_is_near_and_not_the_same():
    network = small_cnn().float()
    blocks = find_blocks(network)
    images = IMAGES.float()
    exact = network(images)
    with applied(blocks, {blocks[1].name: Alternative(precision="bf16")}):
        rounded = network(images)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    assert_close(rounded, exact, rtol=0.05, atol=0.05)
    assert torch.equal(network(images), exact)  # and it is undone


def test_recomputation_keeps_only_what_is_given():
    block = find_blocks(small_cnn())[1]
    value = torch.rand(4, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    saved = []

    def pack(tensor):
        saved.append(tensor.shape)
        return tensor

    network = nn.Sequential(*block.modules)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(value)
        kept = len(saved)
        (whole,) = find_blocks(network)
        saved.clear()
        with applied([whole], {whole.name: Alternative(recompute=True)}):
            network(value)
    assert kept > 3
    assert [shape for shape in saved if shape.numel()] == [value.shape]


def test_blocks_begin_at_weights():
    names = [block.name for block in find_blocks(small_cnn())]
    assert names == ["layers.0", "layers.3", "layers.7", "layers.11"]
    sizes = [len(block.modules) for block in find_blocks(small_cnn())]
    assert sizes == [3, 4, 4, 1]
    assert len(find_blocks(NiN((3, 67, 67), 10))) == 12


def test_stages_of_residual_networks_are_entered():
    network = torchvision_network("resnet18", (3, 32, 32), 10, "batch")
    names = [block.name for block in find_blocks(network)]
    assert names == ["conv1", *(f"layer{n}.{k}" for n in range(1, 5) for k in range(2)), "fc"]


def test_blocks_that_are_called_twice_are_left_out():
    twice, once = nn.Linear(3, 3), nn.Linear(3, 3)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice, self.once = twice, once

        def forward(self, value):
            return self.once(self.twice(self.twice(value)))

    network = Network()
    found = inputs_of(find_blocks(network), lambda: network(torch.ones(2, 3)))
    assert list(found) == ["once"]
