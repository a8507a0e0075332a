"""Products of matrices give what grouped convolutions give, and the same gradients."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close

from paceline.clock.virtual import stacked_convolution
from paceline.clock.virtual.stacked_convolution import ByMatrices

WORKERS, IMAGES = 3, 5
LAYERS = {
    "stride": (nn.Conv2d(3, 5, 3, 2, 1), (3, 9, 8)),
    "one pixel": (nn.Conv2d(3, 5, 1, 2, bias=False), (3, 9, 8)),
    "oblong": (nn.Conv2d(4, 6, (3, 2), (1, 2), (1, 0)), (4, 7, 8)),
    "large": (nn.Conv2d(3, 5, 7, 2, 3), (3, 14, 14)),
    "groups": (nn.Conv2d(4, 4, 3, groups=2), (4, 7, 7)),
    "dilated": (nn.Conv2d(4, 4, 3, dilation=2), (4, 7, 7)),
    "same": (nn.Conv2d(4, 4, 3, padding="same"), (4, 7, 7)),
    "reflected": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), (4, 7, 7)),
}


def gradients(layer, weights, images):
    def loss(weights, images):
        return (functional_call(layer, weights, (images,)) ** 3).sum()

    return vmap(grad(loss, argnums=(0, 1)))(weights, images)


@pytest.mark.parametrize(("layer", "shape"), LAYERS.values(), ids=LAYERS)
def test_gradients_are_those_of_grouped_convolutions(layer, shape, monkeypatch):
    monkeypatch.setattr(stacked_convolution, "is_faster", lambda *_: True)
    stream = torch.Generator().manual_seed(1)

    def drawn(*shape):
        return torch.randn(WORKERS, *shape, dtype=torch.float64, generator=stream)

    weights = {name: drawn(*each.shape) for name, each in layer.named_parameters()}
    images = drawn(IMAGES, *shape)
    expected = gradients(layer, weights, images)
    with ByMatrices():
        assert_close(gradients(layer, weights, images), expected, rtol=1e-12, atol=1e-11)


def test_a_convolution_of_half_precision_is_as_under_autocast():
    layer, images = nn.Conv2d(16, 64, 3, 2), torch.randn(WORKERS, IMAGES, 16, 6, 6)
    weights = {name: torch.stack([each] * WORKERS) for name, each in layer.named_parameters()}
    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(layer, weights, images)
        with ByMatrices():
            found = gradients(layer, weights, images)
    assert found[0]["weight"].dtype == torch.float32
    most = float(expected[1].detach().abs().max())
    assert_close(found, expected, rtol=0.1, atol=0.1 * most)


def test_the_result_never_looks_as_if_channels_were_last():
    """BatchNorm under vmap refuses such images on a GPU."""
    seen = []

    def convolved(weights, images):
        with ByMatrices():
            found = torch.conv2d(images, weights, None, 1, 1)
        seen.append(found.stride())
        return found

    for pixels in (1, 2):
        images = torch.randn(WORKERS, IMAGES, 16, pixels, pixels)
        vmap(convolved)(torch.randn(WORKERS, 8, 16, 3, 3), images)
    assert seen == [(8, 1, 1, 1), (32, 4, 2, 1)]
