"""Small networks for the laws of divided networks: images [N, 3, 16, 16], 10 classes, float64."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torchvision.models.resnet import BasicBlock, ResNet

from paceline.model.network import torchvision_network

IMAGE = (3, 16, 16)
CLASSES = 10


def alexnet_like():
    """Convolutions with response normalization, two large linear layers, dropout."""
    first = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.LocalResponseNorm(5)]
    second = [nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(True), nn.Flatten()]
    linear = [nn.Linear(1024, 32), nn.ReLU(True), nn.Dropout(0.5), nn.Linear(32, 64)]
    last = [nn.ReLU(True), nn.Dropout(0.5), nn.Linear(64, CLASSES)]
    return nn.Sequential(*first, *second, *linear, *last)


def nin_like():
    """Convolutions alone, the last with as many outputs as there are classes."""
    first = [nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 8, 1), nn.ReLU()]
    second = [nn.MaxPool2d(2), nn.Dropout(0.5), nn.Conv2d(8, 128, 3, padding=1, bias=False)]
    last = [nn.ReLU(), nn.Conv2d(128, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*first, *second, *last, nn.Flatten())


class NarrowResNet(ResNet):
    """torchvision's ResNet-18 with an eighth of its channels behind the first convolution."""

    def __init__(self):
        super().__init__(BasicBlock, [2, 2, 2, 2])
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.maxpool = nn.Identity()  # each part has images enough for BatchNorm to be stable
        self.fc = nn.Linear(64, CLASSES)

    def _make_layer(self, block, planes, *arguments, **settings):
        return super()._make_layer(block, planes // 8, *arguments, **settings)


class Mixed(nn.Module):
    """Depthwise convolution, concatenation, gate, residual in place, shared layer, GroupNorm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.groups = nn.GroupNorm(4, 16)
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.gate = nn.Conv2d(16, 16, 1)
        self.scale = nn.Parameter(torch.full((16, 1, 1), 0.5))
        self.drop = nn.Dropout2d(0.25)
        self.hidden = nn.Linear(32, 24)
        self.last = nn.Linear(24, CLASSES)

    def forward(self, images):
        first = self.relu(self.norm(self.first(images)))
        second = self.groups(self.depthwise(functional.max_pool2d(first, 2)))
        second = self.relu(second)
        gate = torch.sigmoid(self.gate(second.mean([2, 3], keepdim=True)))
        third = self.pointwise(second) * gate
        third += second
        joined = torch.cat([self.drop(third), third * self.scale], 1)
        pooled = functional.adaptive_avg_pool2d(joined, 1)
        return self.last(self.relu(self.hidden(pooled.view(pooled.size(0), -1))))


NETWORKS = {
    "alexnet_like": alexnet_like,
    "nin_like": nin_like,
    "narrow_resnet": NarrowResNet,
    "resnet18": partial(torchvision_network, "resnet18", IMAGE, CLASSES, "batch"),
    "mixed": Mixed,
}


def build(name):
    torch.manual_seed(1)
    return NETWORKS[name]().double().train()


class NormOfParts(nn.BatchNorm2d):
    """BatchNorm of data parallelism: each of `parts` is normalized by itself; the first is kept."""

    def forward(self, input):
        first, *others = input.chunk(self.parts)
        done = [super().forward(first)]
        for part in others:
            done.append(
                functional.batch_norm(part, None, None, self.weight, self.bias, True, eps=self.eps)
            )
        return torch.cat(done)


def as_data_parallel(network, names, parts):
    """Let BatchNorm layers of these names see parts of the images."""
    for name in names:
        layer = network.get_submodule(name)
        if isinstance(layer, nn.BatchNorm2d):
            layer.__class__ = NormOfParts
            layer.parts = parts
    return network
