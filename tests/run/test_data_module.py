"""Anybody's LightningModule and LightningDataModule train with every scheme."""

from dataclasses import replace

import pytest
import torch
from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader, IterableDataset

from paceline.data.placement import Placement
from paceline.errors import SettingError
from paceline.run.open_data import open_data
from paceline.run.placed_data import Reading
from tests.run.own import OwnData, OwnModule, own_point
from tests.tiny import NUM_TRAIN, run_tiny

AS_IT_COMES = Placement("replicated", "random", None, store=None)
READING = Reading(
    num_workers=1, batch_size=1, seed=0, evaluation_batch_size=1, placement=AS_IT_COMES
)


def replace_store(reading, store):
    return replace(reading, placement=replace(reading.placement, store=store))


def noted(scheme, folder, epochs):
    return own_point(scheme, data={"folder": str(folder)}, training__epochs=epochs)


def drawn(folder):
    """What each process drew, in its order."""
    files = sorted(folder.glob("drawn.*"))
    return [[int(line) for line in file.read_text().splitlines()] for file in files]


def test_synchronous_workers_see_each_sample_once_per_epoch(tmp_path):
    seen, weights = run_tiny(noted("sync_allreduce", tmp_path, 2), tmp_path)
    shares = [share[8:] for share in drawn(tmp_path)]  # after two batches of the rehearsal
    assert [len(share) for share in shares] == [NUM_TRAIN, NUM_TRAIN]
    for epoch in (slice(0, NUM_TRAIN // 2), slice(NUM_TRAIN // 2, NUM_TRAIN)):
        assert sorted(shares[0][epoch] + shares[1][epoch]) == list(range(NUM_TRAIN))
    first, second = (set(share[: NUM_TRAIN // 2]) for share in shares)
    told = {frozenset(each.images_seen.nonzero()[0].tolist()) for each in seen.training}
    assert told == {frozenset(share) for share in shares}
    assert not first & second
    OwnModule(lr=0).load_state_dict(weights)


def test_asynchronous_workers_train_it_too(tmp_path):
    seen, weights = run_tiny(noted("async_parameter_server", tmp_path, 20), tmp_path)
    assert sum(worker.steps for worker in seen.workers) == 20 * NUM_TRAIN // 4
    scores = [score for each in seen.training for score in each.scores]
    assert max(scores, key=lambda score: score.samples).top1 > 0.9
    OwnModule(lr=0).load_state_dict(weights)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([torch.zeros(1)])


class Streamed(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Endless())


def test_data_that_cannot_be_indexed_are_refused():
    with pytest.raises(SettingError, match=r"^data: .* map-style training set is needed$"):
        open_data(Streamed(), READING)
    with pytest.raises(SettingError, match=r"^data\._target_: dict is no LightningDataModule$"):
        open_data({}, READING)


class Masked(OwnData):
    """Hides its images from who does not call the hook."""

    def on_after_batch_transfer(self, batch, dataloader_idx):
        images, labels = batch
        return 0 * images, labels


class Stateful(OwnData):
    """Has a state, as modules of templates have: {} by default."""

    def __init__(self, folder, state):
        super().__init__(folder)
        self._state = state

    def state_dict(self):
        return self._state

    def load_state_dict(self, state_dict):
        raise AssertionError


def test_hooks_that_nobody_would_call_are_refused(tmp_path):
    message = r"^data: Masked\.on_after_batch_transfer would not be called for every batch; "
    with pytest.raises(SettingError, match=message):
        open_data(Masked(tmp_path), READING)
    open_data(Stateful(tmp_path, {}), READING)
    with pytest.raises(SettingError, match=r"^data: Stateful\.state_dict has a state"):
        open_data(Stateful(tmp_path, {"seen": 3}), READING)


class Failing(OwnData):
    def setup(self, stage):
        self.trainer.world_size  # noqa: B018


def test_an_error_of_a_data_module_names_its_method(tmp_path):
    with pytest.raises(SettingError, match=r"^data: Failing\.setup: AttributeError: 'NoneType'"):
        open_data(Failing(tmp_path), READING)
