"""Defines GoogLeNet as published in 2014: without BatchNorm, and with two auxiliary heads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paceline.model.classifier import Classifier

AUXILIARY_WEIGHT = 0.3  # of the loss of each auxiliary head (Szegedy 2014)

# Outputs of an inception module's branches: 1x1; 1x1 and 3x3; 1x1 and 5x5; 1x1 after the pool.
_INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


class GoogLeNet(nn.Module):
    """Network of Szegedy 2014 (arXiv:1409.4842), for images of 224 pixels a side.

    It has 13.4 M parameters for 1,000 classes, 6.4 M of them in the auxiliary heads, which are used
    in training only.
    """

    def __init__(self, image_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _convolution(image_shape[0], 64, 7, stride=2, padding=3),
            _pool(),
            nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
            _convolution(64, 64, 1),
            _convolution(64, 192, 3, padding=1),
            nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
            _pool(),
        )
        channels, modules = 192, dict[str, nn.Module]()
        for name, widths in _INCEPTIONS.items():
            modules[name] = Inception(channels, widths)
            channels = widths[0] + widths[2] + widths[4] + widths[5]
        self.inceptions = nn.ModuleDict(modules)
        self.heads = nn.ModuleDict({"4a": _head(512, num_classes), "4d": _head(528, num_classes)})
        self.pools = nn.ModuleDict({"3b": _pool(), "4e": _pool()})
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(channels, num_classes)
        )

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Map images [N, C, H, W] to logits [N, classes].

        In training the result is a tuple: the logits of the network, then of each auxiliary head.
        """
        values, auxiliary = self.stem(images), []
        for name, inception in self.inceptions.items():
            values = inception(values)
            if self.training and name in self.heads:
                auxiliary.append(self.heads[name](values))
            if name in self.pools:
                values = self.pools[name](values)
        logits = self.classifier(values)
        return (logits, *auxiliary) if self.training else logits


class GoogLeNetClassifier(Classifier):
    """Classifier whose loss includes the losses of GoogLeNet's auxiliary heads, each times 0.3."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the mean loss, a scalar, of a batch of images [N, C, H, W] and labels [N]."""
        images, labels = batch
        logits, *auxiliary = self.network(images)
        heads = sum(cross_entropy(each, labels) for each in auxiliary)
        return cross_entropy(logits, labels) + AUXILIARY_WEIGHT * heads


class Inception(nn.Module):
    """Four branches with the same input, whose outputs are concatenated along the channels."""

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        one, before_three, three, before_five, five, behind_pool = widths
        self.branches = nn.ModuleList(
            (
                _convolution(channels, one, 1),
                nn.Sequential(
                    _convolution(channels, before_three, 1),
                    _convolution(before_three, three, 3, padding=1),
                ),
                nn.Sequential(
                    _convolution(channels, before_five, 1),
                    _convolution(before_five, five, 5, padding=2),
                ),
                nn.Sequential(
                    nn.MaxPool2d(3, stride=1, padding=1), _convolution(channels, behind_pool, 1)
                ),
            )
        )

    def forward(self, values: Tensor) -> Tensor:
        return torch.cat([branch(values) for branch in self.branches], dim=1)


def _convolution(
    channels: int, outputs: int, kernel: int, *, stride: int = 1, padding: int = 0
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, outputs, kernel, stride, padding), nn.ReLU(inplace=True)
    )


def _pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


def _head(channels: int, num_classes: int) -> nn.Sequential:
    """Build an auxiliary classifier for values [N, channels, 14, 14]."""
    return nn.Sequential(
        nn.AvgPool2d(5, stride=3),
        _convolution(channels, 128, 1),
        nn.Flatten(),
        nn.Linear(128 * 4 * 4, 1024),
        nn.ReLU(inplace=True),
        nn.Dropout(0.7),
        nn.Linear(1024, num_classes),
    )
