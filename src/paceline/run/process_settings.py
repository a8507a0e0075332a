"""Settings of a process that belong to the run, and that code of a user must leave as they are."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from paceline.errors import SettingError


class _Setting(NamedTuple):
    """A setting: how it is read and written, and what to do instead of changing it."""

    get: Callable[[], Any]
    put: Callable[[Any], object]
    instead: str


_SETTINGS: Mapping[str, _Setting] = {
    "torch's number of threads": _Setting(
        torch.get_num_threads, torch.set_num_threads, "set cluster.threads_per_worker"
    ),
    "torch's default dtype": _Setting(
        torch.get_default_dtype, torch.set_default_dtype, "set training.precision"
    ),
    "whether torch computes gradients": _Setting(
        torch.is_grad_enabled, torch.set_grad_enabled, "use it in a with statement"
    ),
    "the working directory": _Setting(os.getcwd, os.chdir, "name paths in the settings"),
}


def check_settings(before: Mapping[str, Any], setting: str) -> None:
    """Raise SettingError(`setting`) if a setting of this process is not as it was `before`."""
    for name, was in before.items():
        if (now := _SETTINGS[name].get()) != was:
            message = f"it changes {name} from {was} to {now}: {_SETTINGS[name].instead}"
            raise SettingError(setting, message)


@contextmanager
def settings_kept() -> Generator[Mapping[str, Any]]:
    """Yield the settings of this process, which are restored at the end for the next run."""
    before = {name: each.get() for name, each in _SETTINGS.items()}
    try:
        yield before
    finally:
        for name, was in before.items():
            _SETTINGS[name].put(was)
