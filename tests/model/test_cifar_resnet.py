import pytest
import torch

from paceline.model.cifar_resnet import CifarResNet


def by_hand(depth, channels):
    """Weights of convolutions and their BatchNorms, and of the linear layer with its biases."""
    first = 9 * channels * 16 + 2 * 16
    blocks = depth // 6
    same = sum(blocks * 2 * (9 * width**2 + 2 * width) for width in (16, 32, 64))
    narrower = 9 * (32 * 16 + 64 * 32)  # inputs that the first blocks of wider groups lack
    return first + same - narrower + 64 * 10 + 10


@pytest.mark.parametrize(("depth", "number"), [(8, 75_290), (20, 269_722), (56, 853_018)])
def test_number_of_parameters_by_hand_and_as_published(depth, number):
    """He 2016, table 6: 0.27 M for ResNet-20 and 0.85 M for ResNet-56."""
    network = CifarResNet((3, 32, 32), 10, depth, "batch")
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert parameters == by_hand(depth, 3) == number


def test_a_shortcut_keeps_every_second_pixel_and_adds_zeros():
    network = CifarResNet((1, 28, 28), 10, 8, "batch")
    shortcut = network.layers[4].downsample
    images = torch.randn(2, 16, 5, 5)
    made = shortcut(images)
    assert made.shape == (2, 32, 3, 3)
    torch.testing.assert_close(made[:, 8:24], images[:, :, ::2, ::2])
    assert made[:, :8].abs().sum() == made[:, 24:].abs().sum() == 0
