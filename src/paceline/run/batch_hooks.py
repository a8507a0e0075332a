"""Refusal of Lightning's hooks that change batches, where they would be passed over."""

from typing import Any

from pytorch_lightning.core.hooks import DataHooks
from pytorch_lightning.utilities.model_helpers import is_overridden

from paceline.errors import SettingError

_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def check_batch_hooks(module: Any, setting: str) -> None:
    """Raise SettingError(`setting`) for a module with a hook of its own that changes batches.

    A Trainer calls none of a data module that it was not given, and none when no Trainer evaluates:
    networks would be trained, or scored, on other batches than its author sees.
    """
    for hook in _HOOKS:
        if is_overridden(hook, module, parent=DataHooks):
            message = f"{type(module).__name__}.{hook} would not be called for every batch"
            raise SettingError(setting, f"{message}: its place is in the data set or collate_fn")
