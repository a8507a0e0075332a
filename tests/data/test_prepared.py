"""What is decoded once is decoded by one process, appears whole, and is shared.

What cannot be combined with it is named, and a store changes no image.
"""

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from paceline.data.augmentation import CropAndFlip
from paceline.data.image_folder import ImageFolder
from paceline.data.order import SampleStream, StreamOrder
from paceline.data.placement import Placement
from paceline.data.prepared import AbstractPreparedImageData
from paceline.data.source import Source, whole
from paceline.data.synthetic import Synthetic
from paceline.errors import SettingError
from tests.data.made_data import random_images, settings, write_image_folder
from tests.launching import launch
from tests.tiny import CONF

SIZES = {"image_shape": [1, 32, 32], "num_validation": 100}


class Decoded(AbstractPreparedImageData):
    """1,000 images; notes in `<root>/reads` that it was decoded."""

    name = "decoded"

    def fingerprint(self) -> str:
        return "1"

    def read(self) -> Source:
        with (self.root / "reads").open("a") as file:
            file.write("read\n")
        part = whole(random_images(1000, 1, 32, 32), np.arange(1000) % 2)
        return Source(part, part, 2, (1, 32, 32))


class SlowlyDecoded(Decoded):
    def read(self) -> Source:
        time.sleep(0.3)
        return super().read()


def load_when_both_are_ready(folder: Path) -> int:
    data = SlowlyDecoded(**settings(folder, **SIZES))
    (folder / f"{os.environ['RANK']} is ready").touch()
    while len(list(folder.glob("* is ready"))) < 2:
        time.sleep(0.001)
    return len(data.load().train)


def prepared_folders(root: Path) -> list[Path]:
    return [path for path in (root / "prepared").iterdir() if path.suffix != ".lock"]


def test_each_split_is_decoded_once_into_a_folder_of_its_own(tmp_path):
    for changed in ({}, {}, {"num_validation": 50}, {"split_seed": 1}, {}):
        splits = Decoded(**settings(tmp_path, **{**SIZES, **changed})).load()
        assert len(splits.validation) == changed.get("num_validation", 100)
    assert (tmp_path / "reads").read_text() == "read\n" * 3
    assert len(prepared_folders(tmp_path)) == 3


def test_processes_that_prepare_at_once_decode_once(tmp_path):
    target = "tests.data.test_prepared:load_when_both_are_ready"
    log = tmp_path / "log"
    assert launch(target, (tmp_path,), workers=2, servers=0, log_folder=log) == [900, 900]
    assert (tmp_path / "reads").read_text() == "read\n"


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_mapped_images_cost_a_process_no_memory_of_its_own(tmp_path):
    splits = Decoded(**settings(tmp_path, **SIZES)).load()
    assert splits.train.images.sum() > 0  # touches every page
    smaps = Path("/proc/self/smaps").read_text()
    mapping = smaps[smaps.index("train_images.npy") :]
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", mapping, re.MULTILINE)[:20])
    assert int(fields["Rss"]) >= 900
    assert fields["Anonymous"] == "0"  # no page was copied


def test_writing_into_mapped_images_leaves_the_file_alone(tmp_path):
    data = Decoded(**settings(tmp_path, **SIZES))
    before = data.load().train.images.clone()
    data.load().train.images.zero_()
    assert data.load().train.images.equal(before)


def test_what_a_killed_process_left_is_made_anew(tmp_path):
    data = Decoded(**settings(tmp_path, **SIZES))
    data.prepare()
    (folder,) = prepared_folders(tmp_path)
    folder.rename(folder.with_suffix(".partial"))
    (folder.with_suffix(".partial") / "train_images.npy").write_bytes(b"half")
    assert len(data.load().train) == 900
    assert prepared_folders(tmp_path) == [folder]


@pytest.mark.parametrize("name", ["train_images.npy", "test_labels.npy", "description.json"])
def test_damaged_files_are_named(tmp_path, name):
    data = Decoded(**settings(tmp_path, **SIZES))
    data.prepare()
    (folder,) = prepared_folders(tmp_path)
    path, whole_file = folder / name, (folder / name).read_bytes()
    for content in (whole_file[: len(whole_file) // 2], b"nonsense", b"", None):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(SettingError, match=rf"data\.root: {folder} is damaged .*delete it"):
            data.load()


def test_root_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match=r"data\.root: cannot make .*file/prepared"):
        Decoded(**settings(tmp_path / "file", **SIZES)).prepare()


def test_full_disk_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("paceline.data.prepared.Part.chunks", full)
    with pytest.raises(SettingError, match=r"data\.root: cannot make .*No space left on device"):
        Decoded(**settings(tmp_path, **SIZES)).prepare()
    assert prepared_folders(tmp_path) == []


def test_images_of_one_value_are_refused(tmp_path, monkeypatch):
    part = whole(np.zeros((1000, 1, 32, 32), np.uint8), np.arange(1000) % 2)
    monkeypatch.setattr(Decoded, "read", lambda _: Source(part, part, 2, (1, 32, 32)))
    with pytest.raises(SettingError, match="channel 0 of all images has one value only"):
        Decoded(**settings(tmp_path, **SIZES)).load()


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
    with pytest.raises(SettingError, match=r"^data\.store: .* Synthetic has no files"):
        made.check_unread("decoded_each_time")
    made.check_unread("memory")
    write_image_folder(tmp_path)
    folder = ImageFolder(**settings(tmp_path))
    for store in (None, "memory", "decoded_each_time"):
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
