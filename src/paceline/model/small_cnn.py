"""Defines a CNN so small that exchanging its weights takes longer than its arithmetic."""

from collections.abc import Sequence

from torch import Tensor, nn

from paceline.errors import SettingError
from paceline.model.network import normalization_layer


class SmallCNN(nn.Module):
    """Network of three convolutions with `width` channels, two of them with stride 2, and a linear
    layer.

    It has 7,674 parameters for width 16 and 24,554 for width 32 (28x28 grey images, 10 classes).
    `normalization`: "batch" or "group" for a normalization after each convolution, or "none"; with
    "none", convolutions have biases. Raises SettingError for images with a side under 3 pixels, and
    for another normalization.
    """

    def __init__(
        self, image_shape: Sequence[int], num_classes: int, width: int, normalization: str
    ) -> None:
        super().__init__()
        channels, rows, columns = image_shape
        if min(rows, columns) < 3:
            raise SettingError("data.image_shape", "the small CNN needs at least 3 pixels each way")
        bias = normalization == "none"
        self.layers = nn.Sequential(
            # no stride 1 on the whole image: it would take half of the time
            nn.Conv2d(channels, width, 5, stride=2, padding=2, bias=bias),
            normalization_layer(normalization, width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=bias),
            normalization_layer(normalization, width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, stride=2, padding=1, bias=bias),
            normalization_layer(normalization, width),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(width * _output_side(rows) * _output_side(columns), num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.layers(images)


def _output_side(pixels: int) -> int:
    """Return the side of the last convolution's output [pixels].

    For 28 pixels it is 4: 14 after the first convolution, 7 after the pool, 4 after the last.
    """
    return ((pixels + 1) // 2 // 2 + 1) // 2
