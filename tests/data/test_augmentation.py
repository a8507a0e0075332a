import pytest
import torch
from torch.nn.functional import pad

from paceline.data.augmentation import CropAndFlip
from paceline.data.random_resized_crop import RandomResizedCrop
from paceline.errors import SettingError

IMAGES = torch.arange(1, 241).to(torch.uint8).reshape(4, 3, 5, 4)
MANY = IMAGES[:1].expand(4000, -1, -1, -1)


def windows_of(image: torch.Tensor, padding: int) -> list[torch.Tensor]:
    _, height, width = image.shape
    padded = pad(image, [padding] * 4)
    offsets = range(2 * padding + 1)
    return [padded[:, y : y + height, x : x + width] for y in offsets for x in offsets]


def test_without_padding_and_flip_nothing_changes():
    augmented = CropAndFlip(padding=0, flip=False)(IMAGES, torch.arange(4), 0)
    assert augmented.equal(IMAGES)


def test_every_window_and_its_mirror_image_appears_equally_often():
    expected = [w for window in windows_of(IMAGES[0], 1) for w in (window, window.flip(-1))]
    augmented = CropAndFlip(padding=1, flip=True)(MANY, torch.arange(len(MANY)), 0)
    counts = [int((augmented == window).flatten(1).all(1).sum()) for window in expected]
    assert sum(counts) == len(MANY)
    assert min(counts) > 160  # 222 expected
    assert max(counts) < 290


@pytest.mark.parametrize(
    "augment",
    [
        CropAndFlip(padding=2, flip=True),
        RandomResizedCrop(scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), flip=True),
    ],
)
def test_an_image_depends_on_its_position_and_the_seed_alone(augment):
    images = torch.arange(6 * 3 * 20 * 17).mul(7).to(torch.uint8).reshape(6, 3, 20, 17)
    positions, before = torch.tensor([70_000, 3, 12, 9, 10, 11]), images.clone()
    together = augment(images, positions, 5)
    alone = [augment(images[i : i + 1], positions[i : i + 1], 5) for i in range(6)]
    assert together.equal(torch.cat(alone))
    assert not together.equal(augment(images, positions, 6))
    assert not together.equal(augment(images, positions + 1, 5))
    assert images.equal(before)


def test_negative_padding_is_refused_by_name():
    with pytest.raises(SettingError, match=r"data\.augmentation\.padding"):
        CropAndFlip(padding=-1, flip=True)
