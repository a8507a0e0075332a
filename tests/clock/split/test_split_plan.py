"""Plans of divided networks, by the network or by its counted layers: ways, bytes, refusals."""

import itertools
import math

import pytest
import torch
from torch import nn
from torchvision import models

from paceline.clock.split.network_plan import facts_of, plan_network, trace
from paceline.errors import SettingError
from paceline.model.alexnet import AlexNet
from paceline.model.count_layers import count_layers
from paceline.model.network_size import Layer, Sharding
from paceline.model.small_alexnet import SmallAlexNet
from paceline.model.small_nin import SmallNiN
from paceline.timing.split_plan import (
    all_gathered,
    all_reduced,
    counted_network,
    divided_plan,
    plan_split,
    swapped,
)
from tests.clock.split.networks import CLASSES, IMAGE, NETWORKS, build

IMAGENET, FASHION = (3, 224, 224), (1, 28, 28)


def layers_of(plan):
    """By name: the way of each layer, and the bytes that a process sends for it there and back."""
    nodes = [str(node.target) for node in plan.traced.graph.nodes]
    return {
        name: (placed.way, num_bytes(placed.forward), num_bytes(placed.backward))
        for name, placed in zip(nodes, plan.placed, strict=True)
    }


def num_bytes(exchanges):
    return sum(each.num_bytes for each in exchanges)


def activation_bytes(plan):
    return num_bytes(plan.step.activations)


@pytest.fixture(scope="module")
def alexnet():
    with torch.device("meta"):
        return AlexNet(IMAGENET, 1000)


def test_alexnet_by_hand(alexnet):
    """Krizhevsky 2014: convolutions by images, then every linear layer by channels."""
    plan = plan_network(alexnet, "fully_connected", 2, 128, IMAGENET)
    layers = layers_of(plan)
    assert all(layers[f"features.{place}"][0] == "by_images" for place in (0, 4, 8, 10, 12))
    piece = 4 * 128 // 2  # bytes of one activation of half of the images
    assert layers["classifier.1"] == ("by_channels", piece * 9216, piece * 9216)
    assert layers["classifier.4"] == ("by_channels", piece * 4096, piece * 4096)
    assert layers["classifier.7"] == ("by_inputs", 2 * piece * 1000, 0)
    convolutions = sum(parameter.numel() for parameter in alexnet.features.parameters())
    assert activation_bytes(plan) == piece * (2 * 9216 + 2 * 4096 + 2 * 1000)
    gradient_bytes = plan.step.process_bytes - activation_bytes(plan)
    assert gradient_bytes == 4 * convolutions  # 2 (p-1)/p of them, for two processes
    assert len(plan.summed) == 10
    assert all(name.startswith("features.") for name in plan.summed)
    assert plan.slices == {
        **dict.fromkeys(["classifier.1.weight", "classifier.1.bias"], 0),
        **dict.fromkeys(["classifier.4.weight", "classifier.4.bias"], 0),
        "classifier.7.weight": 1,
    }


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("batch_size", [16, 64, 512])
@pytest.mark.parametrize("network", [SmallAlexNet, SmallNiN])
def test_auto_sends_the_fewest_bytes_of_all_choices(network, batch_size, shards):
    with torch.device("meta"):
        traced = trace(network(FASHION, 10, 0.5), batch_size, FASHION)
    facts = facts_of(traced, traced, shards)
    layers = [each.name for each in facts.operations if each.layer is not None]
    chosen = itertools.product(*(((), (name,)) for name in layers))
    every = [frozenset(itertools.chain(*names)) for names in chosen]
    sent = [bytes_sent(facts, divided, shards) for divided in every]
    plan = plan_network(traced, "auto", shards, batch_size, FASHION)
    assert plan.step.process_bytes == min(sent)
    assert len(set(sent)) > 4


def bytes_sent(facts, divided, shards):
    try:
        return divided_plan(facts, divided, shards).step.process_bytes
    except SettingError:  # a layer that cannot be divided
        return math.inf


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg11", "alexnet"])
@pytest.mark.parametrize("batch_size", [8, 128])
def test_auto_sends_no_more_than_the_others(name, batch_size):
    with torch.device("meta"):
        network = models.get_model(name, weights=None, num_classes=10)
    auto, *others = (
        plan_network(network, split, 2, batch_size, IMAGENET).step.process_bytes
        for split in ("auto", "fully_connected", "all")
    )
    assert auto <= min(others)


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("split", ["all", "fully_connected", "auto"])
def test_slices_are_the_whole(name, split):
    network = build(name)
    plan = plan_network(network, split, 2, 8, IMAGE)
    whole = network.state_dict()
    parts = [plan.slices_of(whole, shard) for shard in range(2)]
    back = plan.joined(parts)
    assert list(back) == list(whole)
    assert all(torch.equal(back[key], whole[key]) for key in whole)
    assert all(2 * parts[0][key].numel() == whole[key].numel() for key in plan.slices)
    assert split == "auto" or (plan.summed == frozenset()) == (split == "all")


def test_a_network_is_planned_without_being_changed():
    network = build("mixed").eval()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    plan_network(network, "auto", 2, 8, IMAGE)
    assert not network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "mobilenet_v2", "shufflenet_v2_x0_5", "vit_b_16"])
@pytest.mark.parametrize("split", ["all", "fully_connected", "auto"])
def test_networks_of_torchvision_can_be_divided(name, split):
    with torch.device("meta"):
        network = models.get_model(name, weights=None, num_classes=10)
    plan = plan_network(network, split, 2, 8, IMAGENET)
    assert plan.slices
    assert activation_bytes(plan) > 0


class Choosing(nn.Linear):
    def forward(self, input):
        outputs = super().forward(input.flatten(1))
        return outputs if outputs.sum() > 0 else -outputs


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight

    def forward(self, images):
        return self.other(self.one(images.flatten(1)))


IMAGENET = (3, 224, 224)


def by_layers(layers, num_classes, sharding, batch_size):
    network = counted_network(layers, num_classes, batch_size)
    return plan_split(network, sharding.split, sharding.shards).step


def test_layers_that_follow_or_share_their_input_move_nothing(alexnet):
    """The input of a residual block goes into a convolution and into a shortcut of stride 2."""
    layers = layers_of(plan_network(build("narrow_resnet"), "all", 4, 16, IMAGE))
    assert layers["layer2.0.conv1"][1] > 0
    assert layers["layer2.0.downsample.0"][1] == 0
    plan = plan_network(build("mixed"), "all", 4, 16, IMAGE)
    layers = layers_of(plan)
    assert layers["depthwise"] == layers["groups"] == layers["norm"] == ("by_channels", 0, 0)
    assert "scale" not in plan.summed | plan.slices.keys()
    assert plan_network(alexnet, "all", 1, 8, IMAGENET).step.process_bytes == 0


@pytest.mark.parametrize(
    ("name", "split", "shards", "batch_size"),
    [
        *(
            ("alexnet", split, shards, batch_size)
            for split in ("auto", "fully_connected")
            for shards in (2, 4)
            for batch_size in (128, 256)
        ),
        # response normalization works on no part of the channels: of that, layers do not tell
        ("alexnet_like", "fully_connected", 2, 8),
        *(("nin_like", split, 2, 8) for split in ("auto", "fully_connected", "all")),
    ],
)
def test_a_step_by_a_networks_layers_is_that_by_its_plan(name, split, shards, batch_size, alexnet):
    if name == "alexnet":
        network, image, classes = alexnet, IMAGENET, 1000
        layers = count_layers(AlexNet(IMAGENET, 1000), IMAGENET).layers
    else:
        network, image, classes = build(name).float(), IMAGE, CLASSES
        layers = count_layers(build(name).float(), IMAGE).layers
    found = by_layers(layers, classes, Sharding(shards=shards, split=split), batch_size)
    assert found == plan_network(network, split, shards, batch_size, image).step
    assert found.num_weights == sum(layer.weights for layer in layers)


LAYERS = [Layer("a", 10, 1000, 30), Layer("b", 210, 200, 20), Layer("c", 55, 50, 10)]


def test_a_step_by_layers_by_hand():
    """A convolution by images; a linear layer by channels, one by inputs; 2 processes, 4 images."""
    found = by_layers(LAYERS, 5, Sharding(shards=2, split="fully_connected"), 4)
    given = 4 * 4 * 20  # bytes
    exchanges = [all_gathered(given, 2), swapped(given, 2), all_reduced(4 * 4 * 5, 2)]
    assert found.activations == exchanges
    assert (found.summed, found.sliced, found.repeated) == (10, (210 + 50) // 2, 5)
    for setting, split, shards, batch_size in (
        ("batch_size", "auto", 2, 5),
        ("model.shards", "fully_connected", 7, 14),
    ):
        with pytest.raises(SettingError) as error:
            by_layers(LAYERS, 5, Sharding(shards=shards, split=split), batch_size)
        assert error.value.setting == setting


@pytest.mark.parametrize(
    ("layers", "split", "shards", "line"),
    [
        ([Choosing(4, 2)], "all", 2, "model.split: torch.fx cannot trace the network"),
        ([Tied()], "all", 2, "model.split: 0.other.weight is shared with another layer"),
        ([nn.Flatten(), nn.Linear(4, 4)], "fc", 2, "model.split: 'fc' is none of all, fully_"),
        ([nn.Flatten(), nn.Linear(4, 4)], "all", 0, "model.shards: 0 is not a number of"),
        ([nn.Flatten(), nn.Linear(5, 4)], "all", 2, "model: it cannot take 1x2x2 images"),
        (
            [nn.Flatten(), nn.Linear(4, 5)],
            "fully_connected",
            3,
            "model.shards: 1 cannot be divided over 3 processes: it has 4 inputs and 5 outputs",
        ),
        (
            [nn.Conv2d(1, 6, 1), nn.Conv2d(6, 6, 1, groups=3)],
            "all",
            2,
            "model.shards: 1 cannot be divided over 2 processes: it has 3 groups",
        ),
        (
            [nn.Conv2d(1, 4, 1)],
            "fully_connected",
            4,
            "batch_size: 6 images cannot be divided over 4 processes, as 0 asks",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused_by_name(layers, split, shards, line):
    with pytest.raises(SettingError) as caught:
        plan_network(nn.Sequential(*layers), split, shards, 6, (1, 2, 2))
    assert str(caught.value).startswith(line)
