"""What cannot be evaluated is refused before it is trained."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.run.open_data import open_data
from paceline.run.rehearsal import rehearse_scores
from tests.run.own import OWN_TRAINING, Drawn, OwnData, OwnModule
from tests.run.test_data_module import READING
from tests.tiny import run_tiny, tiny_point


class Told(Dataset):
    """Items of which `tell` makes others."""

    def __init__(self, tell):
        self._drawn, self._tell = Drawn(), tell

    def __len__(self):
        return len(self._drawn)

    def __getitem__(self, index):
        return self._tell(*self._drawn[index])


def told(tell):
    return DataLoader(Told(tell), batch_size=16)


class UntoldData(OwnData):
    """Trains, and has something else than pairs of points and labels to validate or to test."""

    def __init__(self, folder, val=None, test=None):
        super().__init__(folder)
        self._val, self._test = val, test

    def val_dataloader(self):
        return LOADERS[self._val]() if self._val else super().val_dataloader()

    def test_dataloader(self):
        return LOADERS[self._test]() if self._test else super().test_dataloader()


def missing():
    raise NotImplementedError("there is none")


LOADERS = {
    "missing": missing,
    "several": lambda: [DataLoader(Drawn()), DataLoader(Drawn())],
    "dictionaries": lambda: told(lambda point, label: {"point": point, "label": label}),
    "triples": lambda: told(lambda point, label: (point, label, label)),
    "regression": lambda: told(lambda point, label: (point, point)),
    "empty": lambda: [],
}


class Tuple(OwnModule):
    def forward(self, points):
        return self.line(points), points

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return nn.functional.cross_entropy(self(points)[0], labels)


class Flat(Tuple):
    def forward(self, points):
        return self.line(points).flatten()

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return nn.functional.cross_entropy(self(points).view(-1, 3), labels)


class Narrow(Tuple):
    """Has two logits for three classes."""

    def forward(self, points):
        return self.line(points)[:, :2]

    def training_step(self, batch, batch_idx):
        points, _ = batch
        return self(points).square().mean()


class Moving(OwnModule):
    """Changes the batches of a Trainer, and none that are scored."""

    def on_before_batch_transfer(self, batch, dataloader_idx):
        points, labels = batch
        return -points, labels


def point(folder, model="own.OwnModule", **data):
    return tiny_point(
        "async_parameter_server",
        2,
        4,
        data={"_target_": "tests.run.test_rehearsal.UntoldData", "folder": str(folder), **data},
        model={"_target_": f"tests.run.{model}", "lr": 0.5, "shards": 1, "split": "auto"},
        training__epochs=1,
        **OWN_TRAINING,
    )


def assert_nothing_is_trained(config, folder, message):
    data = folder / "drawn"
    data.mkdir()
    config["data"]["folder"] = str(data)
    with pytest.raises(SettingError, match=message):
        run_tiny(config, folder / "log")
    drawn = "".join(path.read_text() for path in data.iterdir()).split()
    assert len(drawn) <= 8  # a first batch of each may be on its way


PAIRS = r"^data: pairs \(images, labels \[N\]\) of the {} set are needed: "


def test_a_part_that_cannot_be_scored_is_named(tmp_path):
    for part, name in (("val", "validation"), ("test", "test")):
        for loader in LOADERS:
            data = UntoldData(tmp_path, **{part: loader})
            with pytest.raises(SettingError, match=PAIRS.format(name)):
                rehearse_scores(OwnModule(lr=0), open_data(data, READING))


def test_a_part_that_cannot_be_scored_is_named_before_training(tmp_path):
    assert_nothing_is_trained(point(tmp_path, test="several"), tmp_path, PAIRS.format("test"))


def test_a_module_without_logits_is_named(tmp_path):
    message = r"^model: forward must map images \[N, ...\] to logits \[N, classes\]: "
    for model, said in (
        (Tuple, "it maps 16 images to tuple"),
        (Flat, r"it maps 16 images to \[48\]"),
        (Narrow, "there is a label 2, and 2 logits"),
    ):
        with pytest.raises(SettingError, match=message + said):
            rehearse_scores(model(lr=0), open_data(OwnData(None), READING))
    assert_nothing_is_trained(point(tmp_path, "test_rehearsal.Tuple"), tmp_path, message)


def test_a_module_that_changes_batches_by_a_hook_is_named(tmp_path):
    config = point(tmp_path, "test_rehearsal.Moving")
    message = r"^model: Moving\.on_before_batch_transfer would not be called for every batch; "
    assert_nothing_is_trained(config, tmp_path, message)


def test_nothing_is_drawn_for_it(tmp_path):
    """Random numbers of training are those that they would be without."""
    data, module = open_data(OwnData(tmp_path), READING), OwnModule(lr=0)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    rehearse_scores(module, data)
    assert torch.equal(torch.rand(3), expected)


class OncePreparedData(OwnData):
    """Fails where two processes prepare it."""

    def prepare_data(self):
        with open(f"{self._folder}/prepared", "x"):  # noqa: PTH123
            pass


def test_one_process_prepares_the_data(tmp_path):
    config = point(tmp_path)
    config["data"] = {
        "_target_": "tests.run.test_rehearsal.OncePreparedData",
        "folder": str(tmp_path),
    }
    run_tiny(config, tmp_path)
    with pytest.raises(ProcessFailure, match="FileExistsError"):
        run_tiny(config, tmp_path)
