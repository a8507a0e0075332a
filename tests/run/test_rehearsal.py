"""What cannot be evaluated is refused before it is trained."""

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from paceline.errors import SettingError
from paceline.run.open_data import open_data
from paceline.run.rehearsal import rehearse_scores
from tests.run.own import Drawn, OwnData, OwnModule, Told, own_point
from tests.run.test_data_module import READING
from tests.tiny import run_tiny


def told(tell):
    return DataLoader(Told(tell), batch_size=16)


def missing():
    raise NotImplementedError("there is none")


LOADERS = {
    "missing": missing,
    "several": lambda: [DataLoader(Drawn()), DataLoader(Drawn())],
    "dictionaries": lambda: told(lambda point, label: {"point": point, "label": label}),
    "triples": lambda: told(lambda point, label: (point, label, label)),
    "regression": lambda: told(lambda point, label: (point, point)),
    "numbers that are no classes": lambda: told(lambda point, label: (point, label.float())),
    "empty": lambda: DataLoader(Subset(Drawn(), [])),
}


class UntoldData(OwnData):
    """Trains, and has something else than pairs of points and labels to validate or to test.

    Notes in `folder` which process prepares it.
    """

    def __init__(self, folder, val=None, test=None):
        super().__init__(folder)
        self._val, self._test = val, test

    def prepare_data(self):
        with (self._folder / "prepared").open("a") as file:
            file.write("prepared\n")

    def val_dataloader(self):
        return LOADERS[self._val]() if self._val else super().val_dataloader()

    def test_dataloader(self):
        return LOADERS[self._test]() if self._test else super().test_dataloader()


def test_a_part_that_cannot_be_scored_is_named(tmp_path):
    for part, name in (("val", "validation"), ("test", "test")):
        for loader in LOADERS:
            data = UntoldData(tmp_path, **{part: loader})
            said = rf"^data: pairs \(images, labels \[N\]\) of the {name} set are needed: "
            with pytest.raises(SettingError, match=said):
                rehearse_scores(OwnModule(lr=0), open_data(data, READING))


def point(folder, **data):
    data |= {"_target_": "tests.run.test_rehearsal.UntoldData", "folder": folder}
    return own_point("async_parameter_server", data=data, training__epochs=1)


def test_nothing_is_trained_before(tmp_path):
    (tmp_path / "drawn").mkdir()
    with pytest.raises(SettingError, match=r"^data: .* of the test set are needed: "):
        run_tiny(point(tmp_path / "drawn", test="several"), tmp_path / "log")
    drawn = "".join(path.read_text() for path in tmp_path.glob("drawn/drawn.*")).split()
    assert len(drawn) <= 8  # a first batch of each may be on its way


def test_one_process_prepares_the_data(tmp_path):
    run_tiny(point(tmp_path), tmp_path)
    assert (tmp_path / "prepared").read_text() == "prepared\n"


class Answering(OwnModule):
    """Answers by a function of its logits."""

    def __init__(self, answer):
        super().__init__(lr=0)
        self._answer = answer

    def forward(self, points):
        return self._answer(self.line(points))


class LastOfOne(OwnData):
    """Has one image in the last batch of its test set."""

    def test_dataloader(self):
        return DataLoader(Subset(Drawn(), range(17)), batch_size=16)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda logits: (logits, logits), "it maps 16 images to tuple"),
        (lambda logits: logits.flatten(), r"it maps 16 images to \[48\]"),
        (lambda logits: logits[:, :2], "there is a label 2, and 2 logits"),
        (lambda logits: logits[:, :1], "one logit cannot tell two classes apart"),
        (lambda logits: logits.softmax(1), "its rows add up to 1 like those of softmax"),
        (lambda logits: logits.squeeze(), r"it maps 1 images to \[3\]"),  # in the last batch
    ],
)
def test_a_module_without_logits_is_named(answer, said):
    needed = r"^model: forward must map images \[N, ...\] to logits \[N, classes\]: "
    with pytest.raises(SettingError, match=needed + said):
        rehearse_scores(Answering(answer), open_data(LastOfOne(None), READING))


def test_nothing_is_drawn_for_it():
    """Random numbers of training are those that they would be without."""
    data, module = open_data(LastOfOne(None), READING), OwnModule(lr=0)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    rehearse_scores(module, data)
    assert torch.equal(torch.rand(3), expected)
