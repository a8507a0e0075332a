"""The messages of a step by a counted network's layers are those of the plan."""

import pytest
import torch

from paceline.clock.split.network_plan import plan_network
from paceline.errors import SettingError
from paceline.model.alexnet import AlexNet
from paceline.model.count_layers import count_layers
from paceline.model.network_size import Layer, Sharding
from paceline.timing.split_plan import (
    all_gathered,
    all_reduced,
    counted_network,
    plan_split,
    swapped,
)
from tests.clock.split.networks import CLASSES, IMAGE, build

IMAGENET = (3, 224, 224)


def by_plan(network, image, sharding, batch_size):
    return plan_network(network, sharding.split, sharding.shards, batch_size, image).step


def by_layers(layers, num_classes, sharding, batch_size):
    network = counted_network(layers, num_classes, batch_size)
    return plan_split(network, sharding.split, sharding.shards).step


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("batch_size", [128, 256])
@pytest.mark.parametrize("split", ["auto", "fully_connected"])
def test_alexnet_by_its_layers_is_alexnet_by_its_plan(shards, batch_size, split):
    with torch.device("meta"):
        network = AlexNet(IMAGENET, 1000)
    sharding = Sharding(shards=shards, split=split)
    layers = count_layers(AlexNet(IMAGENET, 1000), IMAGENET).layers
    found = by_layers(layers, 1000, sharding, batch_size)
    assert found == by_plan(network, IMAGENET, sharding, batch_size)
    assert found.num_weights == sum(layer.weights for layer in layers)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("alexnet_like", "fully_connected"),
        *(("nin_like", split) for split in ("auto", "fully_connected", "all")),
    ],
)
def test_a_chain_by_its_layers_is_the_chain_by_its_plan(name, split):
    """Response normalization works on no part of the channels: of that, layers do not tell."""
    sharding = Sharding(shards=2, split=split)
    network = build(name).float()
    layers = count_layers(build(name).float(), IMAGE).layers
    found = by_layers(layers, CLASSES, sharding, 8)
    assert found == by_plan(network, IMAGE, sharding, 8)


def test_by_hand():
    """A convolution by images; a linear layer by channels, one by inputs; 2 processes, 4 images."""
    layers = [Layer("a", 10, 1000, 30), Layer("b", 210, 200, 20), Layer("c", 55, 50, 10)]
    found = by_layers(layers, 5, Sharding(shards=2, split="fully_connected"), 4)
    given = 4 * 4 * 20  # bytes
    assert found.activations == [
        all_gathered(given, 2),
        swapped(given, 2),
        all_reduced(4 * 4 * 5, 2),
    ]
    assert (found.summed, found.sliced, found.repeated) == (10, (210 + 50) // 2, 5)


@pytest.mark.parametrize(
    ("setting", "split", "shards", "batch_size"),
    [("batch_size", "auto", 2, 5), ("model.shards", "fully_connected", 7, 14)],
)
def test_what_cannot_be_divided_is_refused(setting, split, shards, batch_size):
    layers = [Layer("a", 10, 1000, 30), Layer("b", 210, 200, 20), Layer("c", 55, 50, 10)]
    with pytest.raises(SettingError) as error:
        by_layers(layers, 5, Sharding(shards=shards, split=split), batch_size)
    assert error.value.setting == setting
    assert "\n" not in str(error.value)
