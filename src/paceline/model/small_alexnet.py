"""Defines a small network like AlexNet: nearly all of its weights are in linear layers."""

from collections.abc import Sequence

from torch import Tensor, nn

from paceline.errors import SettingError

_HIDDEN = 384  # outputs of each of the two large linear layers


class SmallAlexNet(nn.Module):
    """Network of three convolutions and three linear layers, after Krizhevsky 2012 (AlexNet).

    It has 349,786 parameters for 28x28 grey images and 10 classes, 91 % of them in linear layers
    (AlexNet: 94 %), and 480,010 for 32x32 colour images. `dropout`: share of the inputs of each of
    the two large linear layers that is set to zero in training. Raises SettingError for images with
    a side under 7 pixels, and for a share outside of [0, 1).
    """

    def __init__(self, image_shape: Sequence[int], num_classes: int, dropout: float) -> None:
        super().__init__()
        channels, rows, columns = image_shape
        if min(rows, columns) < 7:
            message = "the small AlexNet needs at least 7 pixels each way"
            raise SettingError("data.image_shape", message)
        check_dropout(dropout)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 24, 5, stride=2, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(48, 48, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(48 * _output_side(rows) * _output_side(columns), _HIDDEN),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(_HIDDEN, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.classifier(self.features(images))


def check_dropout(share: float) -> None:
    """Raise SettingError("model.network.dropout") unless 0 <= share < 1."""
    if not 0 <= share < 1:
        message = f"a share at least 0 and below 1 is needed, not {share!r}"
        raise SettingError("model.network.dropout", message)


def _output_side(pixels: int) -> int:
    """Return the side of the last pool's output [pixels]: for 28 pixels 3, for 32 pixels 4."""
    return (pixels + 1) // 2 // 2 // 2
