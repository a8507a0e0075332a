"""Networks: the project's own, of torchvision and of timm, and the images that they take."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paceline.errors import SettingError
from paceline.model.alexnet import AlexNet
from paceline.model.cifar_resnet import CifarResNet
from paceline.model.googlenet import GoogLeNet, GoogLeNetClassifier
from paceline.model.network import (
    num_groups,
    replace_batch_norm,
    timm_network,
    torchvision_network,
)
from paceline.model.nin import NiN
from paceline.model.small_alexnet import SmallAlexNet
from paceline.model.small_cnn import SmallCNN
from paceline.model.small_nin import SmallNiN

LARGE, GREY = (3, 224, 224), (1, 28, 28)
TRACED = (
    nn.Conv2d,
    nn.Linear,
    nn.ReLU,
    nn.MaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Dropout,
    nn.Flatten,
    nn.Sequential,
)
SMALL = {
    SmallAlexNet: (0.5,),
    SmallNiN: (0.5,),
    SmallCNN: (4, "batch"),
    CifarResNet: (8, "batch"),
}


@pytest.mark.parametrize(
    ("build", "weights"),
    [
        # of Caffe's model zoo: AlexNet without groups of channels, GoogLeNet with auxiliary heads
        (lambda: NiN(LARGE, 1000), 7_595_176),
        (lambda: AlexNet(LARGE, 1000), 62_378_344),
        (lambda: GoogLeNet(LARGE, 1000), 13_378_280),
        (lambda: SmallNiN(GREY, 10, 0.5), 71_498),
        (lambda: SmallAlexNet(GREY, 10, 0.5), 349_786),
        (lambda: SmallAlexNet((3, 32, 32), 10, 0.5), 480_010),
        # convolutions, normalization or biases, and a linear layer of 4 x 4 values a channel
        (lambda: SmallCNN(GREY, 10, 16, "batch"), 25 * 16 + 18 * 16**2 + 6 * 16 + 160 * 16 + 10),
        (lambda: SmallCNN(GREY, 10, 16, "group"), 7674),
        (lambda: SmallCNN(GREY, 10, 16, "none"), 7674 - 3 * 16),
        (lambda: SmallCNN(GREY, 10, 32, "batch"), 24_554),
        # He 2016, table 6: 0.27 M for ResNet-20 and 0.85 M for ResNet-56
        (lambda: CifarResNet((3, 32, 32), 10, 8, "batch"), 75_290),
        (lambda: CifarResNet((3, 32, 32), 10, 20, "batch"), 269_722),
        (lambda: CifarResNet((3, 32, 32), 10, 56, "batch"), 853_018),
    ],
)
def test_networks_have_as_many_weights_as_is_said(build, weights):
    with torch.device("meta"):
        network = build()
    assert sum(weight.numel() for weight in network.parameters()) == weights


@pytest.mark.parametrize("kind", [NiN, AlexNet])
def test_every_weight_gets_a_gradient(kind):
    with torch.device("meta"):
        network, images = kind(LARGE, 7), torch.empty(2, *LARGE)
    network(images).sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("image_shape", [GREY, (3, 32, 32), (2, 7, 9), (1, 29, 31)])
def test_images_of_any_shape_become_logits_and_every_weight_gets_a_gradient(kind, image_shape):
    network = kind(image_shape, 7, *SMALL[kind])
    logits = network(torch.randn(2, *image_shape))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("kind", [SmallAlexNet, SmallNiN])
def test_a_small_network_is_a_chain_of_known_modules_which_can_be_split(kind):
    network = kind(GREY, 10, 0.5)
    graph = torch.fx.symbolic_trace(network).graph
    assert {node.op for node in graph.nodes} == {"placeholder", "call_module", "output"}
    assert all(isinstance(each, (*TRACED, kind)) for each in network.modules())
    network, images = kind(GREY, 10, 0.0), torch.randn(2, *GREY)
    assert torch.equal(network(images), network.eval()(images))  # without dropout


@pytest.mark.parametrize("normalization", ["group", "none"])
def test_an_image_scores_the_same_in_any_company_without_batch_norm(normalization):
    network = SmallCNN(GREY, 10, 16, normalization).double()
    images = torch.randn(3, *GREY, dtype=torch.float64)
    torch.testing.assert_close(network(images)[:1], network(images[:1]))


def test_auxiliary_heads_count_for_three_tenths_of_the_loss_each():
    torch.manual_seed(0)
    module = GoogLeNetClassifier(GoogLeNet(LARGE, 7), partial(torch.optim.SGD, lr=0.1))
    batch = torch.randn(1, *LARGE), torch.tensor([3])
    torch.manual_seed(1)  # dropout
    loss = module.training_step(batch, 0)
    torch.manual_seed(1)
    logits, first, second = module.network(batch[0])
    assert first.shape == second.shape == logits.shape == (1, 7)
    parts = [cross_entropy(each, batch[1]) for each in (logits, first, second)]
    assert loss.item() == pytest.approx((parts[0] + 0.3 * (parts[1] + parts[2])).item())
    loss.backward()
    assert all(weight.grad is not None for weight in module.parameters())


def test_a_shortcut_of_a_cifar_resnet_keeps_every_second_pixel_and_adds_zeros():
    shortcut = CifarResNet(GREY, 10, 8, "batch").layers[4].downsample
    images = torch.randn(2, 16, 5, 5)
    made = shortcut(images)
    assert made.shape == (2, 32, 3, 3)
    torch.testing.assert_close(made[:, 8:24], images[:, :, ::2, ::2])
    assert made[:, :8].abs().sum() == made[:, 24:].abs().sum() == 0


FAMILIES = [
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5"),
    *("mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "resnet18", "shufflenet_v2_x0_5"),
    *("squeezenet1_1", "swin_t", "vgg11"),
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


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_a_network_of_timm_takes_the_images_of_a_data_set(name):
    assert timm_network(name, (1, 32, 32), 7)(torch.randn(2, 1, 32, 32)).shape == (2, 7)


SQUARE, NAME, NORMALIZATION = (3, 32, 32), "model.network.name", "model.network.normalization"
SHAPE, DROPOUT = "data.image_shape", "model.network.dropout"


@pytest.mark.parametrize(
    ("build", "arguments", "setting", "message"),
    [
        (SmallAlexNet, ((1, 6, 28), 10, 0.5), SHAPE, ""),
        (SmallNiN, ((1, 6, 28), 10, 0.5), SHAPE, ""),
        (SmallAlexNet, (GREY, 10, 1.0), DROPOUT, ""),
        (SmallNiN, (GREY, 10, -0.1), DROPOUT, ""),
        (SmallCNN, ((1, 2, 28), 10, 4, "batch"), SHAPE, ""),
        (SmallCNN, (GREY, 10, 4, "layer"), NORMALIZATION, ""),
        *(
            (torchvision_network, (name, shape, 10, normalization), setting, message)
            for name, shape, normalization, setting, message in (
                ("resnet81", SQUARE, "batch", NAME, "did you mean resnet"),
                ("raft_small", SQUARE, "batch", NAME, "torchvision has no"),
                ("vgg11", GREY, "batch", NAME, "cannot take 1x28x28 images"),
                ("inception_v3", SQUARE, "batch", NAME, "cannot take 3x32x32 images"),
                ("vit_b_16", GREY, "batch", NAME, "indivisible by patch size"),
                ("resnet18", SQUARE, "layer", NORMALIZATION, "batch, group"),
                ("resnet18", SQUARE, "none", NORMALIZATION, "batch, group"),
                ("squeezenet1_1", SQUARE, "group", NORMALIZATION, "no BatchNorm"),
            )
        ),
        (timm_network, ("resnet10u", (1, 32, 32), 7), NAME, "timm has no 'resnet10u'"),
    ],
)
def test_a_wrong_setting_is_named(build, arguments, setting, message):
    with pytest.raises(SettingError) as error:
        build(*arguments)
    assert error.value.setting == setting
    assert message in error.value.message
