"""Defines a small Network in Network: convolutions only, and no linear layer at all."""

from collections.abc import Sequence

from torch import Tensor, nn

from paceline.errors import SettingError
from paceline.model.nin import nin_layers
from paceline.model.small_alexnet import check_dropout

_BLOCKS = ((32, 5, 2, 2), (64, 3, 1, 1), (64, 3, 1, 1))  # as in nin.py


class SmallNiN(nn.Module):
    """Network in Network (Lin 2013, arXiv:1312.4400) in small: three blocks of three convolutions.

    It has 71,498 parameters for grey images and 10 classes. A logit is the mean over all pixels of
    an output channel of the last convolution; no ReLU follows that convolution. Weights are
    initialised for ReLUs (He 2015, arXiv:1502.01852), since the network has no normalization.
    `dropout`: share of the last block's inputs that is set to zero in training. Raises SettingError
    for images with a side under 7 pixels, and for a share outside of [0, 1).
    """

    def __init__(self, image_shape: Sequence[int], num_classes: int, dropout: float) -> None:
        super().__init__()
        channels, rows, columns = image_shape
        if min(rows, columns) < 7:
            raise SettingError("data.image_shape", "the small NiN needs at least 7 pixels each way")
        check_dropout(dropout)
        blocks = nin_layers(channels, num_classes, _BLOCKS, nn.MaxPool2d(2), dropout)
        self.layers = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.layers(images)
