"""Every file of conf/data builds."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from paceline.data.augmentation import CropAndFlip
from paceline.data.image_set import AbstractImageData

FOLDER = Path(__file__).parents[2] / "conf/data"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_configuration_builds_a_data_set(path):
    config = OmegaConf.load(path)
    data = instantiate(config)
    assert isinstance(data, AbstractImageData)
    assert data.image_shape == tuple(config.image_shape)
    assert isinstance(data.augmentation, CropAndFlip) == path.stem.startswith("cifar")
