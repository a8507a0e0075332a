"""Dropout's random numbers depend on worker and step alone."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from paceline.clock.virtual.dropout_streams import DropoutStreams, given
from paceline.errors import SettingError

IMAGES = torch.ones(3, 4, 5, 6)
LAYERS = {nn.Dropout: (3, 4, 5, 6), nn.Dropout2d: (3, 4, 1, 1), nn.Dropout3d: (3, 1, 1, 1)}


def streams(network, seed=1):
    return DropoutStreams(network, seed, torch.device("cpu"))


@pytest.mark.parametrize(("kind", "shape"), LAYERS.items())
def test_a_step_draws_the_same_at_any_time_and_in_a_wave(kind, shape):
    network = nn.Sequential(kind(0.4), nn.Identity(), kind(0.2))
    drawing = streams(network)

    def by_itself(worker, step):
        with drawing.drawing(worker, step):
            return network(IMAGES)

    steps = [(0, 0), (0, 1), (1, 0)]
    expected = [by_itself(*step) for step in steps]
    assert_close([by_itself(*step) for step in reversed(steps)], expected[::-1], rtol=0, atol=0)
    first, second = drawing.drawn(steps)
    assert first.shape == second.shape == (3, *shape)
    for row, each in enumerate(expected):
        with given([first[row], second[row]]):
            assert_close(network(IMAGES), each, rtol=0, atol=0)
        dropped = each.expand_as(IMAGES) == 0
        assert torch.equal(dropped, ((first[row] < 0.4) | (second[row] < 0.2)).expand_as(IMAGES))
        assert_close(each[~dropped], torch.full_like(each[~dropped], 1 / 0.6 / 0.8))
    assert not torch.equal(expected[0], expected[1])
    assert not torch.equal(expected[0], expected[2])
    with streams(network, seed=2).drawing(0, 0):
        assert not torch.equal(network(IMAGES), expected[0])


def test_no_number_is_drawn_where_nothing_is_dropped():
    network = nn.Sequential(nn.Dropout(0.0), nn.Linear(6, 2))
    before = torch.get_rng_state()
    with streams(network).drawing(0, 0):
        network(IMAGES)
    assert streams(network).drawn([(0, 0)]) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_drops_nothing():
    network = nn.Sequential(nn.Dropout(0.4)).eval()
    with streams(network).drawing(0, 0):
        assert torch.equal(network(IMAGES), IMAGES)


@pytest.mark.parametrize(
    ("kind", "shape", "drawn"),
    [
        (nn.Dropout1d, (4, 5), (4, 1)),
        (nn.Dropout1d, (3, 4, 5), (3, 4, 1)),
        (nn.Dropout2d, (3, 4), (3, 4)),
        (nn.Dropout2d, (3, 4, 5), (3, 4, 1)),
        (nn.Dropout3d, (4, 5, 6, 7), (4, 1, 1, 1)),
        (nn.Dropout3d, (3, 4, 5, 6, 7), (3, 4, 1, 1, 1)),
    ],
)
@pytest.mark.filterwarnings("ignore:dropout2d")
def test_what_is_dropped_together_is_as_in_torch(kind, shape, drawn):
    layer, images = kind(0.5), torch.ones(shape)
    drawing = streams(nn.Sequential(layer))
    with drawing.drawing(0, 0):
        layer(images)
    (noise,) = drawing.drawn([(0, 0)])
    assert noise.shape[1:] == drawn
    found = layer(images)  # of torch itself: equal where it draws once
    once = tuple(slice(0, size) for size in drawn)
    assert torch.equal(found[once].expand(shape), found)


def test_dropout_that_a_checkpoint_would_repeat_is_refused():
    network = nn.Sequential(nn.Dropout(0.4))
    images = torch.ones(3, 4, requires_grad=True)
    with streams(network).drawing(0, 0), pytest.raises(SettingError, match=r"utils\.checkpoint"):
        checkpoint(network, images, use_reentrant=False)
