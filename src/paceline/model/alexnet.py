"""Defines AlexNet for one accelerator: unlike in the original, convolutions have no groups."""

from collections.abc import Sequence

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Network of Krizhevsky 2012 (Advances in Neural Information Processing Systems 25), ungrouped.

    The original divided three of its convolutions between two GPUs; here every convolution has all
    channels as inputs, as in FireCaffe's Table 1. The network has 62.4 M parameters for 1,000
    classes, and takes images of 224 pixels a side.
    """

    def __init__(self, image_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(image_shape[0], 96, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(96, 256, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(256, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.classifier(self.features(images))
