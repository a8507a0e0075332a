"""Watches what code of a user does with its process: it must leave the settings of the process,
which belong to the run, as they are, and must not call torch.distributed.
"""

import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed.distributed_c10d as c10d

from paceline.errors import SettingError
from paceline.record.point import Point


def forms_group(point: Point) -> bool:
    """Return True if the workers of a point form a process group by themselves and take the same
    steps, so that their modules may call torch.distributed.
    """
    if point.workers == 1:
        return True
    scheme = point.scheme
    return point.kind != "virtual" and not scheme.servers and scheme.equal_steps


@contextmanager
def refuse_strangers(meets: bool) -> Generator[None]:
    """Raise SettingError("model") where a module calls torch.distributed, unless it may."""
    if meets:
        yield
        return
    names = ("_get_default_group", "_group_or_default_group", "_rank_not_in_group")
    kept = {name: getattr(c10d, name) for name in names if hasattr(c10d, name)}

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **options: Any) -> Any:
            if (name := _asked_by_user()) is not None:
                message = f"it calls torch.distributed.{name}: with this scheme and cluster the "
                message += "process group is not that of the workers alone, or they do not take "
                message += "the same steps; scheme=sync_allreduce on real workers has such a group"
                raise SettingError("model", message)
            return call(*arguments, **options)

        return asked

    for name, call in kept.items():
        setattr(c10d, name, watched(call))
    try:
        yield
    finally:
        for name, call in kept.items():
            setattr(c10d, name, call)


def _asked_by_user() -> str | None:
    """Return the function of torch.distributed that code of a user has called; else None."""
    frame, name = sys._getframe(2), "?"  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        room = module.partition(".")[0]
        if module.startswith(("torch._dynamo", "torch.utils.data")):
            return None  # to name files of the compiler, and for seeds of a loader's processes
        if room not in ("torch", "contextlib"):
            return None if room in ("pytorch_lightning", "lightning_fabric", "paceline") else name
        distributed = module.startswith("torch.distributed")
        if distributed and frame.f_code.co_name == "wrapper":
            name = getattr(frame.f_locals.get("func"), "__name__", name)
        elif distributed and not frame.f_code.co_name.startswith("_"):
            name = frame.f_code.co_name
        frame = frame.f_back
    return None


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
