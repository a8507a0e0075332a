"""Settings of data: what cannot be combined, that a store changes no image, files of conf/data."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from paceline.data.augmentation import CropAndFlip
from paceline.data.image_folder import ImageFolder
from paceline.data.order import SampleStream, StreamOrder
from paceline.data.placement import Placement
from paceline.data.synthetic import Synthetic
from paceline.errors import SettingError
from tests.data.made_data import settings, write_image_folder
from tests.tiny import CONF

DEFAULT = OmegaConf.to_container(OmegaConf.load(CONF / "paceline.yaml"))["data"]
PARTITIONED = {"placement": "partitioned"}


@pytest.mark.parametrize("path", sorted((CONF / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_of_conf_builds_a_data_set(path):
    config = OmegaConf.load(path)
    data = instantiate(config)
    assert data.image_shape == tuple(config.image_shape)
    assert isinstance(data.augmentation, CropAndFlip) == path.stem.startswith("cifar")


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("partition", {"partition": "by_class"}),
        ("shuffle_every", {"shuffle_every": 1}),
        ("store", {**PARTITIONED, "store": "mapped"}),
        ("store", {**PARTITIONED, "store": "decoded_each_time"}),
    ],
)
def test_what_cannot_be_combined_is_named_in_a_line(setting, changed):
    Placement(**DEFAULT)
    with pytest.raises(SettingError, match=rf"^data\.{setting}: [^\n]+$") as refused:
        Placement(**{**DEFAULT, **changed})
    assert refused.value.setting == f"data.{setting}"


def test_a_store_that_a_data_set_does_not_have(tmp_path):
    made = Synthetic(num_train=8, num_test=4, seed=0, **settings(tmp_path))
    for store in ("mapped", "decoded_each_time"):
        with pytest.raises(SettingError, match=rf"^data\.store: {store}, but Synthetic has no "):
            made.check_unread(store)
    made.check_unread("memory")
    write_image_folder(tmp_path)
    folder = ImageFolder(**settings(tmp_path))
    for store in (None, "mapped", "decoded_each_time"):
        folder.check_unread(store)


def test_an_image_is_the_same_decoded_each_time(tmp_path):
    write_image_folder(tmp_path)
    folder = ImageFolder(**settings(tmp_path))
    mapped, decoded = folder.load().train, folder.encoded()
    samples = StreamOrder(SampleStream(len(mapped), 0), 1, len(mapped)).indices(0, 0)
    for first, second in zip(mapped.take(samples), decoded.take(samples), strict=True):
        assert first.equal(second)
    assert mapped.opened_again().images.equal(mapped.images)
    assert mapped.take(torch.tensor([0]))[1].dtype == torch.int64
