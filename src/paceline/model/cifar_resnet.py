"""Defines the residual networks for small images, from ResNet-8 on."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import pad
from torchvision.models.resnet import BasicBlock

from paceline.errors import SettingError
from paceline.model.network import normalization_layer

_WIDTHS = (16, 32, 64)


class CifarResNet(nn.Module):
    """Residual network for images of about 32 pixels (He 2016, arXiv:1512.03385, section 4.2).

    It has `depth` = 6n + 2 layers: a convolution, three groups of n blocks of two convolutions,
    with 16, 32 and 64 channels, and a linear layer. The second and the third group begin with
    stride 2. Shortcuts have no parameters: where channels are added, they are zero. With colour
    images and 10 classes, ResNet-8 has 75,290 parameters, and ResNet-20 269,722.
    `normalization`: "batch" or "group". Raises SettingError for another depth or normalization.
    """

    def __init__(
        self, image_shape: Sequence[int], num_classes: int, depth: int, normalization: str
    ) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise SettingError("model.network.depth", f"8, 14, 20, ... is needed, not {depth}")
        if normalization == "none":
            message = "none is not possible: residual networks of this kind need batch or group"
            raise SettingError("model.network.normalization", message)
        norm = partial(normalization_layer, normalization)
        first = _WIDTHS[0]
        convolution = nn.Conv2d(image_shape[0], first, 3, padding=1, bias=False)
        layers: list[nn.Module] = [convolution, norm(first), nn.ReLU(inplace=True)]
        before = first
        for width in _WIDTHS:
            for _ in range((depth - 2) // 6):
                stride, shortcut = (1, None) if width == before else (2, _Shortcut(width - before))
                layers.append(BasicBlock(before, width, stride, shortcut, norm_layer=norm))
                before = width
        head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes)
        self.layers = nn.Sequential(*layers, *head)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, C, H, W] to logits [N, classes]."""
        return self.layers(images)


class _Shortcut(nn.Module):
    """Takes every second pixel of [N, C, H, W], and adds `channels` channels of zeros."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._ends = channels // 2, channels - channels // 2

    def forward(self, images: Tensor) -> Tensor:
        return pad(images[:, :, ::2, ::2], (0, 0, 0, 0, *self._ends))
