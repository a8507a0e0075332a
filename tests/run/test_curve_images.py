"""Snapshots but the last are scored on some validation images, the last on all of them."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader

from paceline.data.source import curve_images
from paceline.errors import SettingError
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of
from tests.run.own import Drawn, OwnData
from tests.run.test_data_module import Endless
from tests.tiny import CLOCKS, NUM_TRAIN, point_of, run_together, tiny_point


def scores(seen):
    found = sorted((each for t in seen.training for each in t.scores), key=lambda s: s.samples)
    (test,) = [each.test for each in seen.training if each.test]
    return [(each.samples, each.loss, each.top1, each.averaged_top1) for each in found], test.loss


@pytest.mark.parametrize("clock", CLOCKS)
def test_only_the_last_score_is_of_all_images(clock, tmp_path):
    settings = {"training__ema_decay": 0.9, **CLOCKS[clock]}
    numbers = (None, NUM_TRAIN, 7)
    configs = [
        tiny_point("sync_parameter_server", 2, 4, measurement__curve_images=number, **settings)
        for number in numbers
    ]
    runs = [scores(seen) for seen, _ in run_together(configs, tmp_path)]
    everywhere, of_as_many, ((*first, last), test) = runs
    assert of_as_many == everywhere
    assert (last, test) == (everywhere[0][-1], everywhere[1])
    for some, of_all in zip(first, everywhere[0], strict=False):
        assert some[0] == of_all[0]
        assert some[1] != of_all[1]
        assert [7 * share == pytest.approx(round(7 * share)) for share in some[2:]] == [True, True]


def opened(number):
    point = point_of(tiny_point("sync_allreduce", 1, 4, measurement__curve_images=number))
    return open_data(point.data.build(), reading_of(point))


def test_the_curve_draws_its_images_by_class():
    data = opened(12)
    ((all_images, all_labels),) = data.validation()
    ((images, labels),) = data.curve()
    chosen = torch.from_numpy(curve_images(all_labels.numpy(), 12))
    assert torch.equal(images, all_images[chosen])
    assert torch.equal(labels, all_labels[chosen])
    assert labels.bincount().tolist() == [4, 4, 4]


def test_more_images_than_there_are_are_refused():
    with pytest.raises(SettingError, match=r"^measurement\.curve_images: 49, but there are 48"):
        opened(49)


READING = reading_of(point_of(tiny_point("sync_allreduce", 1, 4)))


def test_a_module_of_anybody_draws_them_too():
    data = open_data(OwnData(None), replace(READING, curve_images=12))
    labels = torch.cat([labels for _, labels in data.curve()])
    points = torch.cat([points for points, _ in data.curve()])
    chosen = torch.from_numpy(curve_images(Drawn().labels.numpy(), 12))
    assert torch.equal(labels, Drawn().labels[chosen])
    assert torch.equal(points, Drawn().points[chosen].double())
    assert sum(len(labels) for _, labels in data.validation()) == NUM_TRAIN


class StreamedValidation(OwnData):
    def val_dataloader(self):
        return DataLoader(Endless())


def test_images_of_a_stream_are_not_drawn():
    with pytest.raises(SettingError, match=r"^measurement\.curve_images: .* null is needed$"):
        open_data(StreamedValidation(None), replace(READING, curve_images=12))
