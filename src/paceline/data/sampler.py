"""Samplers of a DataLoader for which the project's own order of data can stand in."""

from typing import Any

from torch.utils.data import RandomSampler, SequentialSampler

from paceline.errors import SettingError


def check_sampler(loader: Any) -> None:
    """Raise SettingError("data") for a sampler that chooses samples, or how often one is drawn.

    All samples in any order, once each, are what the order of data gives anyway.
    """
    sampler = loader.sampler
    every = len(loader.dataset)
    if type(sampler) is SequentialSampler:
        return
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == every:
        return
    message = f"{type(sampler).__name__} chooses samples, and all are drawn in the order of the run"
    raise SettingError("data", message + ": torch.utils.data.Subset is needed instead")
