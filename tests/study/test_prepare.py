"""What a study's data are, in a file that changes when they do."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from paceline.command.sweep_command import prepare
from paceline.record.target import Target


class MadeData:
    """Stands for a data set of the project; counts how often it was prepared."""

    prepared = 0
    last_label = 1

    def prepare(self):
        MadeData.prepared += 1

    def load(self):
        images = torch.zeros(2, 1, 2, 2, dtype=torch.uint8)
        part = Part(images, torch.tensor([0, self.last_label]))
        return SimpleNamespace(train=part, validation=part, test=part)


class Part(SimpleNamespace):
    def __init__(self, images, labels):
        super().__init__(images=images, labels=labels)

    def __len__(self):
        return len(self.labels)


@pytest.fixture
def made(monkeypatch):
    module = ModuleType("paceline.made")
    module.Data = MadeData
    monkeypatch.setitem(sys.modules, "paceline.made", module)
    monkeypatch.setattr(Target, "build", lambda _: MadeData())
    monkeypatch.setattr(MadeData, "prepared", 0)
    return ["data._target_=paceline.made.Data"]


def test_data_of_many_points_are_prepared_once(root, made):
    (described,) = json.loads(prepare("made", root, made).read_text())
    assert MadeData.prepared == 1
    assert (described["name"], described["train"]["images"]) == ("made", 2)
    assert described["settings"]["num_classes"] == 10
    assert "root" not in described["settings"]


def test_the_file_follows_the_images_and_not_their_place(root, made, monkeypatch):
    before = prepare("made", root, made).read_text()
    assert prepare("made", root, [*made, "data.root=/elsewhere"]).read_text() == before
    monkeypatch.setattr(MadeData, "last_label", 0)
    assert prepare("made", root, made).read_text() != before


def test_anybodys_data_prepare_themselves(root):
    (described,) = json.loads(prepare("made", root).read_text())
    assert described.keys() == {"name", "settings"}
