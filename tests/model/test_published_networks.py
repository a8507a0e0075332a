"""Networks of the papers: their weights, and GoogLeNet's loss."""

from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from paceline.model.alexnet import AlexNet
from paceline.model.googlenet import GoogLeNet, GoogLeNetClassifier
from paceline.model.nin import NiN

IMAGE = (3, 224, 224)


@pytest.mark.parametrize(
    ("kind", "weights"), [(NiN, 7_595_176), (AlexNet, 62_378_344), (GoogLeNet, 13_378_280)]
)
def test_networks_have_as_many_weights_as_those_of_caffe(kind, weights):
    """Those of Caffe's model zoo for 1000 classes: AlexNet without groups of channels, GoogLeNet
    with its two auxiliary heads.
    """
    with torch.device("meta"):
        network = kind(IMAGE, 1000)
    assert sum(weight.numel() for weight in network.parameters()) == weights


@pytest.mark.parametrize("kind", [NiN, AlexNet])
def test_every_weight_gets_a_gradient(kind):
    with torch.device("meta"):
        network, images = kind(IMAGE, 7), torch.empty(2, *IMAGE)
    network(images).sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())


def test_auxiliary_heads_count_for_three_tenths_of_the_loss_each():
    torch.manual_seed(0)
    module = GoogLeNetClassifier(GoogLeNet(IMAGE, 7), partial(torch.optim.SGD, lr=0.1))
    batch = torch.randn(1, *IMAGE), torch.tensor([3])
    torch.manual_seed(1)  # dropout
    loss = module.training_step(batch, 0)
    torch.manual_seed(1)
    logits, first, second = module.network(batch[0])
    assert first.shape == second.shape == logits.shape == (1, 7)
    parts = [cross_entropy(each, batch[1]) for each in (logits, first, second)]
    assert loss.item() == pytest.approx((parts[0] + 0.3 * (parts[1] + parts[2])).item())
    loss.backward()
    assert all(weight.grad is not None for weight in module.parameters())
