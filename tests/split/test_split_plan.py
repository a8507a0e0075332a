"""Plans of divided networks: ways of layers, bytes, and what is refused."""

import pytest
import torch
from torch import nn
from torchvision import models

from paceline.errors import SettingError
from paceline.model.alexnet import AlexNet
from paceline.model.count_layers import count_layers
from paceline.split.split_plan import plan_split
from paceline.split.whole_weights import gathered, slices_of
from tests.split.networks import IMAGE, NETWORKS, build

IMAGENET = (3, 224, 224)


def ways(plan):
    return {layer.name: layer.way for layer in plan.layers}


@pytest.fixture(scope="module")
def alexnet():
    with torch.device("meta"):
        return AlexNet(IMAGENET, 1000)


def test_alexnet_by_hand(alexnet):
    """Krizhevsky 2014: convolutions by images, then every linear layer by channels."""
    plan = plan_split(alexnet, "fully_connected", 2, 128, IMAGENET)
    assert all(ways(plan)[f"features.{place}"] == "by_images" for place in (0, 4, 8, 10, 12))
    linear = {layer.name: layer for layer in plan.layers if layer.name.startswith("classifier")}
    piece = 4 * 128 // 2  # bytes of one activation of half of the images
    assert linear["classifier.1"][1:] == ("by_channels", piece * 9216, piece * 9216, 0)
    assert linear["classifier.4"][1:] == ("by_channels", piece * 4096, piece * 4096, 0)
    assert linear["classifier.7"][1:] == ("by_inputs", 2 * piece * 1000, 0, 0)
    convolutions = sum(parameter.numel() for parameter in alexnet.features.parameters())
    assert plan.gradient_bytes == 4 * convolutions  # 2 (p-1)/p of them, for two processes
    assert plan.activation_bytes == piece * (2 * 9216 + 2 * 4096 + 2 * 1000)
    assert len(plan.summed) == 10
    assert plan.slices == {
        **dict.fromkeys(["classifier.1.weight", "classifier.1.bias"], 0),
        **dict.fromkeys(["classifier.4.weight", "classifier.4.bias"], 0),
        "classifier.7.weight": 1,
    }


@pytest.mark.parametrize("batch_size", [4, 128, 4096])
def test_auto_takes_the_smaller_of_activations_and_weights(batch_size, alexnet):
    size = count_layers(AlexNet(IMAGENET, 1000), IMAGENET)
    plan = plan_split(alexnet, "auto", 4, batch_size, IMAGENET)
    for layer in size.layers:
        by_images = ways(plan)[layer.name] == "by_images"
        assert by_images == (batch_size * layer.activations >= layer.weights)
    assert 0 < len(plan.summed) < 16


def test_a_step_of_one_process_moves_nothing(alexnet):
    plan = plan_split(alexnet, "all", 1, 8, IMAGENET)
    assert (plan.activation_bytes, plan.gradient_bytes) == (0, 0)


def test_one_conversion_serves_all_layers_that_want_it():
    """The input of a residual block goes into a convolution and into a shortcut of stride 2."""
    plan = plan_split(build("narrow_resnet"), "all", 4, 16, IMAGE)
    moved = {layer.name: layer.forward_bytes for layer in plan.layers}
    assert moved["layer2.0.conv1"] > 0
    assert moved["layer2.0.downsample.0"] == 0


def test_layers_that_follow_move_nothing():
    plan = plan_split(build("mixed"), "all", 4, 16, IMAGE)
    layers = {layer.name: layer for layer in plan.layers}
    assert layers["depthwise"][1:] == layers["groups"][1:] == ("by_channels", 0, 0, 0)
    assert layers["norm"][1:] == ("by_channels", 0, 0, 0)
    assert "scale" not in plan.summed | plan.slices.keys()


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("split", ["all", "fully_connected", "auto"])
def test_slices_are_the_whole(name, split):
    network = build(name)
    plan = plan_split(network, split, 2, 8, IMAGE)
    whole = network.state_dict()
    parts = [slices_of(whole, plan, shard) for shard in range(2)]
    back = gathered(parts, plan)
    assert list(back) == list(whole)
    assert all(torch.equal(back[key], whole[key]) for key in whole)
    assert all(2 * parts[0][key].numel() == whole[key].numel() for key in plan.slices)
    assert (plan.summed == frozenset()) == (split == "all")


def test_a_network_is_planned_without_being_changed():
    network = build("mixed").eval()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    plan_split(network, "auto", 2, 8, IMAGE)
    assert not network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", ["densenet121", "mobilenet_v2", "shufflenet_v2_x0_5", "vit_b_16"])
@pytest.mark.parametrize("split", ["all", "fully_connected", "auto"])
def test_networks_of_torchvision_can_be_divided(name, split):
    with torch.device("meta"):
        network = models.get_model(name, weights=None, num_classes=10)
    plan = plan_split(network, split, 2, 8, IMAGENET)
    assert plan.slices
    assert plan.activation_bytes > 0


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


def sequence(*layers):
    return nn.Sequential(nn.Flatten(), *layers)


@pytest.mark.parametrize(
    ("network", "split", "shards", "line"),
    [
        (nn.Sequential(Choosing(4, 2)), "all", 2, "model.split: torch.fx cannot trace the network"),
        (Tied(), "all", 2, "model.split: other.weight is another layer's, too"),
        (sequence(nn.Linear(4, 4)), "fc", 2, "model.split: 'fc' is none of all, fully_connected"),
        (sequence(nn.Linear(4, 4)), "all", 0, "model.shards: 0 is not a number of processes"),
        (
            sequence(nn.Linear(4, 5)),
            "fully_connected",
            3,
            "model.shards: 1 cannot be divided over 3 processes: it has 4 inputs and 5 outputs",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 6, 1), nn.Conv2d(6, 6, 1, groups=3)),
            "all",
            2,
            "model.shards: 1 cannot be divided over 2 processes: it has 3 groups",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 4, 1)),
            "fully_connected",
            4,
            "batch_size: 6 images cannot be divided over 4 processes, as 0 asks",
        ),
        (sequence(nn.Linear(5, 4)), "all", 2, "model: it cannot take 1x2x2 images"),
    ],
)
def test_what_cannot_be_divided_is_refused_by_name(network, split, shards, line):
    with pytest.raises(SettingError) as caught:
        plan_split(network, split, shards, 6, (1, 2, 2))
    assert str(caught.value).startswith(line)
