"""Samplers for which the order of the run stands in, and those that choose."""

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from paceline.data.order import check_sampler
from paceline.errors import SettingError

SIX = TensorDataset(torch.zeros(6))


class Every(SequentialSampler):
    """Somebody's own, which may choose anything."""


@pytest.mark.parametrize("sampler", [None, SequentialSampler(SIX), RandomSampler(SIX)])
def test_all_samples_once_in_any_order_are_the_order_of_the_run(sampler):
    check_sampler(DataLoader(SIX, 2, sampler=sampler))
    check_sampler(DataLoader(SIX, 2, shuffle=sampler is None))


@pytest.mark.parametrize(
    "sampler",
    [
        RandomSampler(SIX, num_samples=5),
        RandomSampler(SIX, num_samples=7),
        RandomSampler(SIX, replacement=True),
        WeightedRandomSampler([1.0] * 6, 6),
        Every(SIX),
    ],
)
def test_a_choice_of_samples_is_refused_by_name(sampler):
    with pytest.raises(SettingError, match=rf"^data: {type(sampler).__name__} chooses samples"):
        check_sampler(DataLoader(SIX, 2, sampler=sampler))
