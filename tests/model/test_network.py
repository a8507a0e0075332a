import pytest
import torch
from torch import nn

from paceline.errors import SettingError
from paceline.model.network import (
    num_groups,
    replace_batch_norm,
    timm_network,
    torchvision_network,
)

FAMILIES = [
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_x_400mf",
    "resnet18",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "swin_t",
    "vgg11",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "image_shape"),
    [
        *((name, (1, 32, 32)) for name in FAMILIES),
        ("inception_v3", (3, 64, 64)),
        ("vit_b_16", (3, 32, 32)),
    ],
)
def test_one_of_each_family_trains_on_small_images(name, image_shape):
    network = torchvision_network(name, image_shape, 7, "batch")
    logits = network(torch.randn(2, *image_shape))
    logits.square().sum().backward()
    assert logits.shape == (2, 7)
    assert network.training
    assert all(parameter.grad is not None for parameter in network.parameters())


def first_convolution(network):
    return next(module for module in network.modules() if isinstance(module, nn.Conv2d))


@pytest.mark.parametrize(
    ("name", "image_shape", "weights", "stride"),
    [
        ("resnet18", (1, 28, 28), (64, 1, 3, 3), (1, 1)),  # small images keep their pixels
        ("resnet18", (3, 96, 96), (64, 3, 7, 7), (2, 2)),  # as published
        ("resnet18", (5, 96, 96), (64, 5, 7, 7), (2, 2)),
        ("swin_t", (1, 28, 28), (96, 1, 4, 4), (4, 4)),  # patches keep their size
    ],
)
def test_the_first_convolution_takes_the_images(name, image_shape, weights, stride):
    convolution = first_convolution(torchvision_network(name, image_shape, 10, "batch"))
    assert (convolution.weight.shape, convolution.stride) == (weights, stride)


def test_a_small_image_changes_no_other_layer_and_no_variance_of_outputs():
    torch.manual_seed(0)
    network = torchvision_network("resnet18", (3, 32, 32), 10, "batch")
    published = 11_689_512  # 1000 classes, first convolution 7x7
    expected = published - 64 * 3 * (49 - 9) - 990 * 513
    assert sum(parameter.numel() for parameter in network.parameters()) == expected
    weight = first_convolution(network).weight
    assert 27 * weight.var().item() == pytest.approx(147 * 2 / (64 * 49), rel=0.1)  # Kaiming


def test_group_normalization_leaves_no_batch_norm_however_deep():
    network = torchvision_network("resnet18", (1, 28, 28), 10, "group")
    kinds = [type(module) for module in network.modules()]
    assert (kinds.count(nn.BatchNorm2d), kinds.count(nn.GroupNorm)) == (0, 20)
    assert replace_batch_norm(network) == 0


@pytest.mark.parametrize(
    ("channels", "groups"), [(3, 1), (8, 2), (16, 4), (58, 1), (64, 16), (96, 8), (512, 32)]
)
def test_groups_are_equal_of_four_channels_or_more_and_at_most_32(channels, groups):
    assert num_groups(channels) == groups


@pytest.mark.parametrize(
    ("name", "image_shape", "normalization", "setting", "message"),
    [
        ("resnet81", (3, 32, 32), "batch", "model.network.name", "did you mean resnet"),
        ("raft_small", (3, 32, 32), "batch", "model.network.name", "torchvision has no"),
        ("vgg11", (1, 28, 28), "batch", "model.network.name", "cannot take 1x28x28 images"),
        ("inception_v3", (3, 32, 32), "batch", "model.network.name", "cannot take 3x32x32 images"),
        ("vit_b_16", (1, 28, 28), "batch", "model.network.name", "indivisible by patch size"),
        ("resnet18", (3, 32, 32), "layer", "model.network.normalization", "batch, group"),
        ("resnet18", (3, 32, 32), "none", "model.network.normalization", "batch, group"),
        ("squeezenet1_1", (3, 32, 32), "group", "model.network.normalization", "no BatchNorm"),
    ],
)
def test_a_wrong_setting_is_named(name, image_shape, normalization, setting, message):
    with pytest.raises(SettingError, match=message) as error:
        torchvision_network(name, image_shape, 10, normalization)
    assert error.value.setting == setting


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_a_network_of_timm_takes_the_images_of_a_data_set(name):
    assert timm_network(name, (1, 32, 32), 7)(torch.randn(2, 1, 32, 32)).shape == (2, 7)


def test_an_unknown_network_of_timm_is_named_with_a_known_one():
    with pytest.raises(SettingError, match=r"^model\.network\.name: timm has no 'resnet10u'"):
        timm_network("resnet10u", (1, 32, 32), 7)
