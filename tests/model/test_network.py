import pytest
import torch
from torch import nn

from paceline.errors import SettingError
from paceline.model.network import num_groups, replace_batch_norm, torchvision_network

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


def test_small_images_keep_their_pixels_and_the_pool_stays():
    network = torchvision_network("resnet18", (1, 28, 28), 10, "batch")
    convolution = first_convolution(network)
    assert convolution.weight.shape == (64, 1, 3, 3)
    assert (convolution.stride, convolution.padding) == ((1, 1), (1, 1))
    assert isinstance(network.maxpool, nn.MaxPool2d)


def test_number_of_parameters_by_hand():
    network = torchvision_network("resnet18", (3, 32, 32), 10, "batch")
    published = 11_689_512  # 1000 classes, first convolution 7x7
    expected = published - 64 * 3 * (49 - 9) - 990 * 513
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


@pytest.mark.parametrize(("image_shape", "channels"), [((3, 96, 96), 3), ((5, 96, 96), 5)])
def test_large_images_keep_the_published_convolution(image_shape, channels):
    convolution = first_convolution(torchvision_network("resnet18", image_shape, 10, "batch"))
    assert convolution.weight.shape == (64, channels, 7, 7)
    assert convolution.stride == (2, 2)


def test_a_new_first_convolution_keeps_the_variance_of_outputs():
    torch.manual_seed(0)
    weight = first_convolution(torchvision_network("resnet18", (3, 32, 32), 10, "batch")).weight
    assert 27 * weight.var().item() == pytest.approx(147 * 2 / (64 * 49), rel=0.1)  # Kaiming


def test_patches_keep_their_size():
    convolution = first_convolution(torchvision_network("swin_t", (1, 28, 28), 10, "batch"))
    assert convolution.weight.shape == (96, 1, 4, 4)


def test_group_normalization_leaves_no_batch_norm():
    network = torchvision_network("resnet18", (1, 28, 28), 10, "group")
    kinds = [type(module) for module in network.modules()]
    assert (kinds.count(nn.BatchNorm2d), kinds.count(nn.GroupNorm)) == (0, 20)


@pytest.mark.parametrize(
    ("channels", "groups"), [(3, 1), (8, 2), (16, 4), (58, 1), (64, 16), (96, 8), (512, 32)]
)
def test_groups_are_equal_of_four_channels_or_more_and_at_most_32(channels, groups):
    assert num_groups(channels) == groups


def test_every_batch_norm_is_replaced_however_deep():
    network = nn.Sequential(nn.BatchNorm2d(8), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(16)))
    assert replace_batch_norm(network) == 2
    assert [type(network[0]), type(network[1][1])] == [nn.GroupNorm, nn.GroupNorm]
    assert replace_batch_norm(network) == 0


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
