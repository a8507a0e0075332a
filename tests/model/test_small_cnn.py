import pytest
import torch

from paceline.model.small_cnn import SmallCNN


def num_parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("normalization", ["batch", "group"])
def test_number_of_parameters_by_hand(normalization):
    width, classes = 16, 10
    convolutions = 5 * 5 * width + 2 * 3 * 3 * width * width
    head = 4 * 4 * width * classes + classes
    network = SmallCNN((1, 28, 28), classes, width, normalization)
    assert num_parameters(network) == convolutions + 3 * 2 * width + head == 7674


def test_width_reaches_25_thousand_parameters():
    assert num_parameters(SmallCNN((1, 28, 28), 10, 32, "batch")) == 24554


def test_without_normalization_convolutions_have_biases():
    network = SmallCNN((1, 28, 28), 10, 16, "none")
    assert num_parameters(network) == 7674 - 3 * 2 * 16 + 3 * 16
    assert not any("Norm" in type(module).__name__ for module in network.modules())


@pytest.mark.parametrize("normalization", ["group", "none"])
def test_an_image_scores_the_same_in_any_company_without_batch_norm(normalization):
    network = SmallCNN((1, 28, 28), 10, 16, normalization).double()
    images = torch.randn(3, 1, 28, 28, dtype=torch.float64)
    torch.testing.assert_close(network(images)[:1], network(images[:1]))
