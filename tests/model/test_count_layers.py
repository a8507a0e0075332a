"""Counts of layers: by hand, by torchvision's own numbers, and against FireCaffe's Table 1."""

import csv
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

from paceline.errors import SettingError
from paceline.model.alexnet import AlexNet
from paceline.model.count_layers import count_kept, count_layers, without_weights
from paceline.model.googlenet import GoogLeNet
from paceline.model.network import published_image_shape, torchvision_network
from paceline.model.network_size import Layer, NetworkSize
from paceline.model.nin import NiN

ROOT = Path(__file__).parents[2]
IMAGENET = (3, 224, 224)
NETWORKS = [
    *("vit_b_16", "convnext_tiny", "efficientnet_b0", "swin_t", "swin_v2_t"),
    *("resnet50", "resnext50_32x4d", "regnet_y_16gf", "inception_v3", "mobilenet_v3_small"),
    "shufflenet_v2_x1_0",
]


def published(network):
    """Columns of Table 1 for a batch of 1,024, by name."""
    with (ROOT / "papers/published.csv").open() as file:
        return {
            row["metric"]: float(row["value"])
            for row in csv.DictReader(file)
            if row["experiment"] == "table1_volumes" and row["model"] == network
        }


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("NiN", lambda: NiN(IMAGENET, 1000)),
        ("AlexNet", lambda: AlexNet(IMAGENET, 1000)),
        ("GoogLeNet", lambda: GoogLeNet(IMAGENET, 1000)),
        ("VGG-19", lambda: models.vgg19(init_weights=False)),
    ],
)
def test_firecaffes_table_1(name, build):
    """Its ratios of AlexNet and VGG-19 contradict its own columns, and are no targets."""
    table = published(name)
    with torch.device("meta"):
        size = count_layers(build(), IMAGENET)
    assert size.weight_bytes / 1e6 == pytest.approx(table["weight_size"], rel=0.02)
    volume = size.activation_bytes(1024) / 1e6
    assert volume == pytest.approx(table["data_size_per_batch"], rel=0.02)
    assert size.flops(1024) / 1e12 == pytest.approx(table["fwd_bwd_flop_per_batch"], rel=0.02)


class Branches(nn.Module):
    """A convolution in groups, two branches in a container, BatchNorm, a head unused in eval."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(
            (nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.Sequential(nn.Conv2d(4, 6, 3)))
        )
        self.head = nn.Linear(5, 2)
        self.last = nn.Sequential(nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6 * 4, 3))

    def forward(self, images):
        return self.last(self.branches[0](images) + self.branches[1](images))


def test_layers_by_hand():
    size = count_layers(Branches(), (4, 4, 4))
    assert size.layers == [
        Layer("branches.0", 6 * 2 * 9, 6 * 4 * 2 * 9, 64),
        Layer("branches.1.0", 6 * 4 * 9 + 6, 6 * 4 * 4 * 9, 64),
        Layer("last.0", 12, 0, 24),
        Layer("last.2", 24 * 3 + 3, 72, 24),
        Layer("head", 5 * 2 + 2, 0, 0),
    ]
    assert size.weight_bytes == 4 * (108 + 222 + 12 + 75 + 12)
    assert size.activation_bytes(10) == 4 * 10 * (64 + 64 + 24)  # of layers that multiply
    assert size.flops(10) == 6 * 10 * (432 + 864 + 72)


def test_arithmetic_of_attention_is_counted_once():
    """Three projections and one behind, and two products of 5 x 5 x 8."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)

        def forward(self, images):
            values = images.flatten(1).view(-1, 5, 8)
            return self.attention(values, values, values, need_weights=False)[0]

    size = count_layers(Attention(), (1, 5, 8))
    assert size.multiply_adds == 4 * 5 * 8 * 8 + 2 * 5 * 5 * 8
    assert sum(layer.weights for layer in size.layers) == 4 * 8 * 8


def test_gradients_are_ready_from_the_last_layer_on():
    size = NetworkSize([Layer("a", 1, 10, 1), Layer("b", 1, 0, 1), Layer("c", 1, 30, 1)])
    assert size.shares_of_backward() == [1.0, 0.75, 0.75]


def test_a_network_that_cannot_take_the_images_is_named():
    with pytest.raises(SettingError, match="cannot take 3x8x8 images") as error:
        count_layers(AlexNet(IMAGENET, 10), (3, 8, 8))
    assert error.value.setting == "model"


def built(name):
    shape = published_image_shape(name)
    return without_weights(lambda: torchvision_network(name, shape, 1000, "batch")), shape


def test_multiply_adds_and_weights_are_those_that_torchvision_publishes():
    for name in NETWORKS:
        size = count_layers(*built(name))
        meta = next(iter(models.get_model_weights(name))).meta
        assert size.multiply_adds / 1e9 == pytest.approx(meta["_ops"], abs=6e-4), name
        if name != "inception_v3":  # published with its auxiliary head
            assert sum(size.tensors) == meta["num_params"], name


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vit_b_16", (3, 224, 224)),
        ("inception_v3", (3, 299, 299)),
        ("vit_h_14", (3, 518, 518)),
        ("small_cnn", None),
    ],
)
def test_a_name_has_the_images_for_which_it_is_published(name, shape):
    assert published_image_shape(name) == shape


def test_a_network_without_weights_has_none_and_others_are_not_touched():
    network, _ = built("resnet18")
    assert all(each.is_meta for each in network.parameters())
    assert not nn.Linear(2, 3).weight.is_meta
    computing = without_weights(lambda: [nn.Linear(2, 3), nn.Linear(2, 3).weight.tolist()][0])
    assert not computing.weight.is_meta


def test_backward_keeps_the_inputs_of_linear_layers_and_what_relu_returned():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    count_layers(network, (3, 2, 2))
    assert count_kept(network, (3, 2, 2)) == 12 + 5
