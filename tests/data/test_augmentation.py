import numpy as np
import pytest
import torch
from torch.nn.functional import pad
from torchvision.transforms.v2.functional import resized_crop

from paceline.data.augmentation import CropAndFlip, RandomResizedCrop
from paceline.errors import SettingError
from paceline.record.target import Target
from paceline.study.compose import composed
from tests.tiny import REPOSITORY

IMAGES = torch.arange(1, 241).to(torch.uint8).reshape(4, 3, 5, 4)
MANY = IMAGES[:1].expand(4000, -1, -1, -1)
IMAGENET = {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
SIX = torch.randint(
    256, (6, 3, 20, 17), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)
POSITIONS = torch.tensor([70_000, 3, 12, 9, 10, 11])


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
        RandomResizedCrop(**IMAGENET, flip=True),
    ],
)
def test_an_image_depends_on_its_position_alone(augment):
    before = SIX.clone()
    together = augment(SIX, POSITIONS, 5)
    alone = [augment(SIX[i : i + 1], POSITIONS[i : i + 1], 5) for i in range(6)]
    assert together.equal(torch.cat(alone))
    assert not together.equal(augment(SIX, POSITIONS + 1, 5))
    assert SIX.equal(before)


def test_it_is_torchvisions_resized_crop_of_the_drawn_parts():
    augment = RandomResizedCrop(**IMAGENET, flip=False)
    parts = augment.windows(20, 17, POSITIONS.numpy(), 5)
    expected = [
        resized_crop(image, *part, [20, 17], antialias=True)
        for image, part in zip(SIX, parts.tolist(), strict=True)
    ]
    assert torch.equal(augment(SIX, POSITIONS, 5), torch.stack(expected))
    assert len(np.unique(parts, axis=0)) == 6


def test_parts_have_the_areas_ratios_and_places_that_are_asked_for():
    augment = RandomResizedCrop(scale=(0.2, 0.5), ratio=(0.5, 2.0), flip=False)
    top, left, rows, columns = augment.windows(200, 200, np.arange(20_000), 0).T
    assert min(top.min(), left.min()) == 0
    assert (top + rows).max() == (left + columns).max() == 200
    shares, logs = rows * columns / 200**2, np.log(columns / rows)
    assert (shares.min(), shares.max()) == (
        pytest.approx(0.2, rel=0.01),
        pytest.approx(0.5, rel=0.01),
    )
    assert np.quantile(shares, [0.25, 0.5, 0.75]) == pytest.approx([0.275, 0.35, 0.425], abs=0.01)
    assert np.quantile(logs, [0.25, 0.5, 0.75]) / np.log(2) == pytest.approx(
        [-0.5, 0, 0.5], abs=0.03
    )
    assert np.mean(top / np.maximum(200 - rows, 1)) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("ratio", "part"),
    [((4, 4), (7, 0, 5, 20)), ((0.2, 0.2), (0, 8, 20, 4)), ((1, 1), (0, 0, 20, 20))],
)
def test_where_no_part_fits_the_middle_is_taken(ratio, part):
    windows = RandomResizedCrop((1.0, 1.0), ratio, flip=False).windows(20, 20, np.arange(3), 0)
    assert windows.tolist() == [list(part)] * 3


def test_the_whole_image_stays_and_half_of_them_are_mirrored():
    many = SIX[:1].expand(2000, -1, -1, -1)
    augment = RandomResizedCrop((1.0, 1.0), (17 / 20, 17 / 20), flip=True)
    augmented = augment(many, torch.arange(2000), 0)
    mirrored = (augmented == many.flip(-1)).flatten(1).all(1)
    assert bool((mirrored | (augmented == many).flatten(1).all(1)).all())
    assert 900 < int(mirrored.sum()) < 1100


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (CropAndFlip, "padding", -1),
        (RandomResizedCrop, "scale", (0, 1)),
        (RandomResizedCrop, "scale", (0.5, 0.4)),
        (RandomResizedCrop, "scale", (0.5, 1.1)),
        (RandomResizedCrop, "ratio", (2, 1)),
    ],
)
def test_a_wrong_setting_is_named(kind, name, value):
    others = {} if kind is CropAndFlip else IMAGENET
    with pytest.raises(SettingError) as error:
        kind(**{**others, name: value}, flip=True)
    assert error.value.setting == f"data.augmentation.{name}"


@pytest.mark.parametrize("name", ["random_resized_crop", "crop_and_flip"])
def test_it_is_chosen_on_the_command_line(name):
    config = composed(("data=image_folder", f"+data/augmentation={name}"), REPOSITORY)
    assert Target("data", config.values["data"]["augmentation"]).build().flip
