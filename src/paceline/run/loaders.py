"""DataLoaders of a user's LightningDataModule: what they say is honoured, or refused by name."""

import hashlib
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
)

from paceline.data.order import check_sampler, is_map_style
from paceline.errors import SettingError
from paceline.exchange.process_group import draw_number, run_store, worker_index

_OF_LOADER_WORKERS = (
    "multiprocessing_context",
    "persistent_workers",
    "prefetch_factor",
    "timeout",
    "worker_init_fn",
)
_REHEARSED = 64  # samples
_DEPTH, _MOST = 8, 100_000  # of objects within a data set, and elements of each that are compared


def check_training_loader(loader: Any, *, in_process: bool) -> None:
    """Raise SettingError("data") for a training loader that says what a run does not do.

    `in_process`: batches are drawn in the training process, without processes of the loader.
    """
    if not is_map_style(loader):
        raise SettingError("data", "a DataLoader over a map-style training set is needed")
    _check_iteration(loader)
    if loader.batch_sampler is None:
        raise SettingError("data", "the training loader has batch_size=None; samples are needed")
    check_sampler(loader)
    sampler = loader.batch_sampler.sampler  # type: ignore[attr-defined]
    if type(sampler) is SequentialSampler:
        message = "the training loader has shuffle=False, and samples are always drawn in an order"
        raise SettingError(
            "data", f"{message} that is shuffled by the seed: shuffle=True is needed"
        )
    if loader.generator is not None or sampler.generator is not None:
        message = "the generator of the training loader would not be used: samples are drawn by"
        raise SettingError("data", f"{message} the setting `seed`; leave it out")
    if in_process and loader.num_workers and loader.worker_init_fn is not None:
        message = "worker_init_fn would not be called, since batches are drawn without processes of"
        raise SettingError("data", f"{message} the loader on this cluster and placement")


def like(loader: DataLoader, dataset: Any, **options: Any) -> DataLoader:
    """Return a loader of other samples which has the other options of `loader`."""
    same: Any = {"collate_fn": loader.collate_fn, "num_workers": loader.num_workers}
    if loader.num_workers:
        same |= {name: getattr(loader, name) for name in _OF_LOADER_WORKERS}
    if torch.cuda.is_available():
        same["pin_memory"] = loader.pin_memory
    return DataLoader(dataset, **same, **options)


def evaluation_loader(loader: Any) -> DataLoader:
    """Return a loader of all samples of a validation or test loader, once each and in order.

    Raises SettingError("data") for a sampler that chooses samples, and for other kinds of loaders.
    """
    if not isinstance(loader, DataLoader):
        raise SettingError("data", f"a torch.utils.data.DataLoader, not {type(loader).__name__}")
    _check_iteration(loader)
    if isinstance(loader.dataset, IterableDataset):  # each process of the loader would repeat it
        size = {"batch_size": loader.batch_size, "collate_fn": loader.collate_fn}
        return DataLoader(loader.dataset, **size)  # type: ignore[arg-type]
    batches: Any = loader.batch_sampler
    if type(getattr(batches, "sampler", loader.sampler)) is not DistributedSampler:
        check_sampler(loader)
    return like(loader, loader.dataset, batch_size=batches.batch_size if batches else None)


def rehearsed(num_samples: int, batch_size: int) -> list[list[int]]:
    """Return the samples of a few batches that stand for all: some evenly spaced ones from the
    first to the last, and the last batch.
    """
    if num_samples == 0:
        return []
    spaced = np.unique(np.linspace(0, num_samples - 1, _REHEARSED).round().astype(int)).tolist()
    last = range((num_samples - 1) // batch_size * batch_size, num_samples)
    parts = [spaced[n : n + batch_size] for n in range(0, len(spaced), batch_size)]
    return [*parts, list(last)]


def rehearsed_loader(loader: DataLoader) -> DataLoader:
    """Return a loader of a few batches, see `rehearsed`; `loader` itself if it cannot choose."""
    if not is_map_style(loader) or loader.batch_size is None:
        return loader
    batches = rehearsed(len(loader.dataset), loader.batch_size)  # type: ignore[arg-type]
    return DataLoader(loader.dataset, collate_fn=loader.collate_fn, batch_sampler=batches)


def _check_iteration(loader: DataLoader) -> None:
    for name in ("__iter__", "_get_iterator"):
        if getattr(type(loader), name) is not getattr(DataLoader, name):
            message = f"{type(loader).__name__} iterates in a way of its own"
            raise SettingError("data", f"{message}; torch.utils.data.DataLoader is needed")


def check_same_data(data_sets: Mapping[str, Any]) -> None:
    """Raise SettingError("data") in a worker whose data sets differ from those of worker 0.

    `data_sets`: by the name of the part. All training processes of a run must call this.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    store = run_store()
    number = draw_number(f"data: opened by process {dist.get_rank()}")
    for part, data_set in data_sets.items():
        found, name = _digest(data_set), f"data: {part} set {number}"
        if dist.get_rank() == 0:
            store.set(name, found)
        elif store.get(name).decode() != found:
            message = f"the {part} set of worker {worker_index()} is not that of worker 0: what is"
            message += " drawn at random must depend on the global generators or on a fixed seed"
            raise SettingError("data", message + ", and lists of files must be sorted")


def _digest(data_set: Any) -> str:
    digest = hashlib.sha256()
    _add(data_set, digest, 0)
    return digest.hexdigest()


def _add(thing: Any, digest: Any, depth: int) -> None:
    """Add what determines the samples of a data set: numbers, names and order of files, indices.

    Left out are folders, which may be local to a node, times, and states of generators.
    """
    digest.update(type(thing).__name__.encode())
    if depth > _DEPTH or thing is None or isinstance(thing, float | random.Random):
        return
    if isinstance(thing, str | Path):
        digest.update(Path(thing).name.encode())
    elif isinstance(thing, bool | int):
        digest.update(str(thing).encode())
    elif isinstance(thing, np.ndarray | torch.Tensor):
        values = np.asarray(thing.detach().cpu() if isinstance(thing, torch.Tensor) else thing)
        digest.update(str(values.shape).encode())
        some = values.reshape(-1)[:: values.size // _MOST + 1]
        if values.dtype.kind in "OU":  # texts, such as names of files
            _add(some.tolist(), digest, depth + 1)
        else:
            digest.update(np.ascontiguousarray(some).tobytes())
    elif callable(to_numpy := getattr(thing, "to_numpy", None)):  # of pandas
        _add(to_numpy(), digest, depth + 1)
    elif isinstance(thing, Mapping):
        for key in sorted(thing, key=str):
            digest.update(str(key).encode())
            _add(thing[key], digest, depth + 1)
    elif isinstance(thing, list | tuple | range):
        digest.update(str(len(thing)).encode())
        for each in thing[:: len(thing) // _MOST + 1]:
            _add(each, digest, depth + 1)
    elif hasattr(thing, "__dict__") and not callable(thing):
        own = vars(thing)  # without texts, which name folders, kinds and parts
        kept = {name: v for name, v in own.items() if not isinstance(v, str | Path)}
        kept = {name: v for name, v in kept.items() if type(v) is not int or v != os.getpid()}
        _add(kept, digest, depth + 1)
