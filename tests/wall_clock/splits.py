"""Small networks whose layers can be split over two and four processes."""

from torch import nn


def small_network() -> nn.Sequential:
    """A convolution and two linear layers, for images [1, 4, 4] in three classes."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.Tanh(),
        nn.Linear(16, 4),
    )
