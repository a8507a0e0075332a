"""What placed data cannot be is refused in one line."""

import pytest
import torch

from paceline.errors import SettingError
from paceline.run.open_data import open_data
from tests.run.own import Drawn, OwnData
from tests.run.test_data_module import READING, replace_store
from tests.tiny import CLOCKS, point_of, run_tiny, tiny_point

PARTITIONED = {"placement": "partitioned"}


def placed(scheme="sync_allreduce", batch_size=4, clock="wall", **data):
    config = tiny_point(scheme, 4, batch_size, **CLOCKS[clock])
    return {**config, "data": {**config["data"], **data}}


def test_who_does_not_meet_is_refused_in_a_line():
    def shuffled(scheme, every, changed):
        config = placed(scheme, **PARTITIONED, shuffle_every=every)
        return point_of({**config, "scheme": {**config["scheme"], **changed}})

    message = r"^data\.shuffle_every: it needs a time at which all workers meet; "
    never = ("async_parameter_server", "gossip", "independent", "elastic_averaging")
    for scheme, changed in (
        *((scheme, {}) for scheme in (*never, "stale_synchronous")),
        ("sync_parameter_server", {"backup_workers": 1}),
    ):
        with pytest.raises(SettingError, match=message):
            shuffled(scheme, 1, changed)
        shuffled(scheme, None, changed)
    shuffled("sync_parameter_server", 1, {})
    shuffled("post_local_sgd", 1, {})
    shuffled("mixed", 1, {"group_size": 4})


class AtRandom(Drawn):
    def __getitem__(self, index):
        point, label = super().__getitem__(index)
        return point + torch.rand(3), label


class Words(Drawn):
    def __getitem__(self, index):
        return "a word", self.labels[index]


def module_with(items):
    module = OwnData(None)
    loader = module.train_dataloader()
    loader.__dict__["dataset"] = items
    module.train_dataloader = lambda: loader
    return module


@pytest.mark.parametrize(
    ("items", "they"), [(AtRandom(), "are drawn at random"), (Words(), "are not tensors")]
)
def test_items_that_cannot_be_held_are_refused_in_a_line(items, they):
    refused = rf"^data\.store: items that {they} cannot be kept in memory[^\n]*$"
    with pytest.raises(SettingError, match=refused):
        open_data(module_with(items), replace_store(READING, "memory"))


def test_a_share_smaller_than_a_batch_is_refused_in_a_line(tmp_path):
    config = placed(batch_size=13, clock="virtual", **PARTITIONED)
    message = r"^batch_size: 13 is more than a worker's share of 12 images"
    with pytest.raises(SettingError, match=message):
        run_tiny(config, tmp_path)
