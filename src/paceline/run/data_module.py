"""Reading of any LightningDataModule in the project's order of data."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from paceline.data.stream import SampleStream
from paceline.errors import SettingError
from paceline.run.point_data import PointData, Reading


class WorkerBatchSampler(Sampler):
    """Indices of one worker's batches.

    Batch n of a worker is batch n * workers + worker of the stream.
    """

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
        """Return the indices of the worker's n-th batch."""
        first = (n * self._workers + self._worker) * self._batch_size
        return self._stream.indices(first, self._batch_size).tolist()


def open_data_module(module: Any, reading: Reading) -> PointData:
    """Read through the data set, `collate_fn` and `num_workers` of the module's training loader.

    Batches are (images, labels). Raises SettingError("data") for a module without a map-style
    training set.
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
    stream = SampleStream(num_train, reading.seed)

    def sampler(worker: int, num_batches: int) -> WorkerBatchSampler:
        return WorkerBatchSampler(
            stream, worker, reading.num_workers, reading.batch_size, num_batches
        )

    def train(worker: int, num_batches: int) -> DataLoader:
        return DataLoader(
            loader.dataset,
            batch_sampler=sampler(worker, num_batches),
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
        )

    def batch(worker: int, n: int) -> Any:
        indices = sampler(worker, n + 1).indices(n)
        return loader.collate_fn([loader.dataset[index] for index in indices])

    def evaluation(batches: Iterable[Any]) -> Iterator[Any]:
        double = reading.dtype == torch.float64
        for images, labels in batches:
            yield images.to(torch.float64) if double else images, labels

    return PointData(
        num_train,
        stream,
        train,
        batch,
        lambda: evaluation(module.val_dataloader()),
        lambda: evaluation(module.test_dataloader()),
    )
