"""Numbers that a module keeps besides its weights and buffers, and how they changed."""

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric

_DEPTH = 6  # of attributes within attributes
_OF_MODULES = frozenset(vars(nn.Module()))


def numbers_of(module: LightningModule) -> dict[str, Any]:
    """Return numbers and tensors in a module's attributes that are neither parameters nor buffers,
    by path. Metrics, optimizers and growing lists are left out.
    """
    lightning = set(vars(LightningModule()))
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def walk(thing: Any, path: str, depth: int) -> None:
        if isinstance(thing, bool | int | float):
            found[path] = thing
        elif isinstance(thing, nn.Parameter):
            return
        elif isinstance(thing, Tensor):
            found[path] = thing.detach().clone()
        elif depth > _DEPTH or id(thing) in seen or isinstance(thing, Metric | Optimizer | Trainer):
            return
        elif isinstance(thing, Mapping):
            seen.add(id(thing))
            for key, each in list(thing.items()):
                walk(each, f"{path}[{key!r}]", depth + 1)
        elif isinstance(thing, list | tuple):
            seen.add(id(thing))
            for n, each in enumerate(thing):
                walk(each, f"{path}[{n}] of {len(thing)}", depth + 1)
        elif hasattr(thing, "__dict__") and not isinstance(thing, type) and not _is_function(thing):
            seen.add(id(thing))
            own = vars(thing)
            for key, each in own.items():
                if isinstance(thing, nn.Module) and (key in _OF_MODULES or key in lightning):
                    continue
                walk(each, f"{path}.{key}" if path else key, depth + 1)
            parts = own["_modules"] if isinstance(thing, nn.Module) else {}
            for key, each in parts.items():
                walk(each, f"{path}.{key}" if path else key, depth)

    walk(module, "", 0)
    return found


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def same(before: Tensor, now: Tensor) -> bool:
    """Return True for tensors of equal values; NaN, as of a module that diverges, equals itself."""
    if torch.equal(before, now):
        return True
    real = before.shape == now.shape and before.is_floating_point()
    return real and torch.allclose(before, now, rtol=0, atol=0, equal_nan=True)


def differ(before: Any, now: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(now, Tensor):
        return before.shape == now.shape and not same(before, now)
    if isinstance(before, Tensor) or type(before) is not type(now):
        return False
    return before != now and not (before != before and now != now)  # as NaN
