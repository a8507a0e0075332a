"""Anybody's LightningDataModule in the project's order of data."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from paceline.data.stream import SampleStream
from paceline.errors import SettingError
from paceline.run.point_data import Feed


class WorkerBatchSampler(Sampler):
    """Indices of one worker's batches: its n-th is batch n * workers + worker of the stream."""

    def __init__(
        self, stream: SampleStream, worker: int, workers: int, batch_size: int, num_batches: int
    ) -> None:
        self._stream, self._worker, self._workers = stream, worker, workers
        self._batch_size, self._num_batches = batch_size, num_batches

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.indices, range(self._num_batches))

    def indices(self, n: int) -> list[int]:
        """Of the worker's n-th batch."""
        first = (n * self._workers + self._worker) * self._batch_size
        return self._stream.indices(first, self._batch_size).tolist()


def feed_from_data_module(config: dict[str, Any], module: Any) -> Feed:
    """Takes the data set, `collate_fn` and `num_workers` of its training DataLoader; batches are
    (images, labels). Raises SettingError("data") for what has no map-style training set.
    """
    if not hasattr(module, "train_dataloader"):
        raise SettingError("data._target_", f"{type(module).__name__} is no LightningDataModule")
    module.prepare_data()
    module.setup("fit")
    module.setup("test")
    loader = module.train_dataloader()
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        raise SettingError("data", "a DataLoader over a map-style training set is needed")
    num_train = len(loader.dataset)  # type: ignore[arg-type]
    stream = SampleStream(num_train, config["seed"])
    double = config["training"]["precision"] == "64-true"

    def train(worker: int, num_batches: int) -> DataLoader:
        sampler = WorkerBatchSampler(
            stream, worker, config["workers"], config["batch_size"], num_batches
        )
        return DataLoader(
            loader.dataset,
            batch_sampler=sampler,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
        )

    def batch(worker: int, n: int) -> Any:
        sampler = WorkerBatchSampler(stream, worker, config["workers"], config["batch_size"], n + 1)
        return loader.collate_fn([loader.dataset[index] for index in sampler.indices(n)])

    def evaluation(batches: Iterable) -> Iterator:
        for images, labels in batches:
            yield images.to(torch.float64) if double else images, labels

    return Feed(
        num_train,
        stream,
        train,
        batch,
        lambda: evaluation(module.val_dataloader()),
        lambda: evaluation(module.test_dataloader()),
    )
