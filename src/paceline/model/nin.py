"""Defines Network in Network for ImageNet, as FireCaffe trained it."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

# Output channels, kernel, stride and padding of the spatial convolution of each block, and the
# outputs of the two 1x1 convolutions behind it; None: as many outputs as there are classes.
_BLOCKS = (
    (96, 11, 4, 0, (96, 96)),
    (256, 5, 1, 2, (256, 256)),
    (384, 3, 1, 1, (384, 384)),
    (1024, 3, 1, 1, (1024, None)),
)


class NiN(nn.Module):
    """Network in Network (Lin 2013, arXiv:1312.4400), with the sizes of Caffe's model zoo.

    It has 7.6 M parameters for 1,000 classes, and takes images from 67 pixels a side upwards; the
    published size is 224.
    """

    def __init__(self, image_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_layers(image_shape[0], num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.layers(images)


def _layers(channels: int, num_classes: int) -> Iterator[nn.Module]:
    for block, (width, kernel, stride, padding, mixed) in enumerate(_BLOCKS):
        if block:
            yield nn.MaxPool2d(3, stride=2, ceil_mode=True)
        if block == len(_BLOCKS) - 1:
            yield nn.Dropout(0.5)
        yield nn.Conv2d(channels, width, kernel, stride, padding)
        yield nn.ReLU(inplace=True)
        channels = width
        for outputs in mixed:
            yield nn.Conv2d(channels, outputs or num_classes, 1)
            yield nn.ReLU(inplace=True)
            channels = outputs or num_classes
    yield nn.AdaptiveAvgPool2d(1)
    yield nn.Flatten()
