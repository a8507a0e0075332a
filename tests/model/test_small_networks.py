"""The networks for small images."""

import pytest
import torch
from torch import nn

from paceline.errors import SettingError
from paceline.model.count_layers import count_layers
from paceline.model.small_alexnet import SmallAlexNet
from paceline.model.small_cnn import SmallCNN
from paceline.model.small_nin import SmallNiN

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


BUILT = {
    SmallAlexNet: (0.5,),
    SmallNiN: (0.5,),
    SmallCNN: (4, "batch"),
}


@pytest.mark.parametrize("kind", BUILT)
@pytest.mark.parametrize("image_shape", [(1, 28, 28), (3, 32, 32), (2, 7, 9), (1, 29, 31)])
def test_images_of_any_shape_become_logits_and_every_weight_gets_a_gradient(kind, image_shape):
    network = kind(image_shape, 7, *BUILT[kind])
    logits = network(torch.randn(2, *image_shape))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    batch_norm = any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert batch_norm == (kind is SmallCNN)


def test_small_alexnet_has_nine_tenths_of_its_weights_in_linear_layers():
    convolutions = 24 * 26 + 48 * (24 * 9 + 1) + 48 * (48 * 9 + 1)
    linear = 384 * (48 * 3 * 3 + 1) + 384 * 385 + 10 * 385
    network = SmallAlexNet((1, 28, 28), 10, 0.5)
    assert num_weights(network) == convolutions + linear == 349_786
    assert linear / (convolutions + linear) == pytest.approx(0.909, abs=0.001)
    assert num_weights(SmallAlexNet((3, 32, 32), 10, 0.5)) == 480_010


def test_small_nin_has_nine_convolutions_and_no_linear_layer():
    network = SmallNiN((1, 28, 28), 10, 0.5)
    size = count_layers(network, (1, 28, 28))
    assert len(size.layers) == 9
    assert num_weights(network) == 71_498


@pytest.mark.parametrize("kind", [SmallAlexNet, SmallNiN])
def test_forward_is_a_chain_of_known_modules(kind):
    graph = torch.fx.symbolic_trace(kind((1, 28, 28), 10, 0.5)).graph
    assert {node.op for node in graph.nodes} == {"placeholder", "call_module", "output"}
    modules = kind((1, 28, 28), 10, 0.5).modules()
    assert all(isinstance(each, (*TRACED, kind)) for each in modules)


@pytest.mark.parametrize("kind", [SmallAlexNet, SmallNiN])
def test_dropout_zero_trains_as_it_evaluates(kind):
    network, images = kind((1, 28, 28), 10, 0.0), torch.randn(2, 1, 28, 28)
    assert torch.equal(network(images), network.eval()(images))


@pytest.mark.parametrize(
    ("build", "setting"),
    [
        (lambda: SmallAlexNet((1, 6, 28), 10, 0.5), "data.image_shape"),
        (lambda: SmallNiN((1, 6, 28), 10, 0.5), "data.image_shape"),
        (lambda: SmallAlexNet((1, 28, 28), 10, 1.0), "model.network.dropout"),
        (lambda: SmallNiN((1, 28, 28), 10, -0.1), "model.network.dropout"),
        (lambda: SmallCNN((1, 2, 28), 10, 4, "batch"), "data.image_shape"),
        (lambda: SmallCNN((1, 28, 28), 10, 4, "layer"), "model.network.normalization"),
    ],
)
def test_a_wrong_setting_is_named(build, setting):
    with pytest.raises(SettingError) as error:
        build()
    assert error.value.setting == setting


def num_weights(network):
    return sum(weight.numel() for weight in network.parameters())
