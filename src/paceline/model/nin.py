"""Defines Network in Network for ImageNet, as FireCaffe trained it."""

import copy
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

# Output channels, kernel, stride and padding of the spatial convolution that each block begins
# with. Two 1x1 convolutions follow; that at the end of the last block has an output per class.
Blocks = Sequence[tuple[int, int, int, int]]
_BLOCKS = ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (1024, 3, 1, 1))


class NiN(nn.Module):
    """Network in Network (Lin 2013, arXiv:1312.4400), with the sizes of Caffe's model zoo.

    It has 7.6 M parameters for 1,000 classes. Images need at least 67 pixels a side; the published
    size is 224.
    """

    def __init__(self, image_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        blocks = nin_layers(image_shape[0], num_classes, _BLOCKS, pool, 0.5)
        self.layers = nn.Sequential(
            *blocks, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.layers(images)


def nin_layers(
    channels: int, num_classes: int, blocks: Blocks, pool: nn.Module, dropout: float
) -> Iterator[nn.Module]:
    """Yield the layers of all blocks up to the last convolution, with a copy of `pool` between
    blocks.

    `dropout`: share of the last block's inputs that is set to zero in training.
    """
    for number, (width, kernel, stride, padding) in enumerate(blocks, 1):
        if number > 1:
            yield copy.deepcopy(pool)
        if number == len(blocks):
            yield nn.Dropout(dropout)
        yield nn.Conv2d(channels, width, kernel, stride, padding)
        yield nn.ReLU(inplace=True)
        yield nn.Conv2d(width, width, 1)
        yield nn.ReLU(inplace=True)
        yield nn.Conv2d(width, num_classes if number == len(blocks) else width, 1)
        if number < len(blocks):
            yield nn.ReLU(inplace=True)
        channels = width
