"""Opens the data of a point: one of Paceline's data sets, or a user's LightningDataModule.

The order in which samples are drawn is always Paceline's, also for a LightningDataModule.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, Sampler, Subset

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.batches import (
    AbstractBatches,
    DecodedImages,
    Normalisation,
    Samples,
    WorkerBatches,
    evaluation_batches,
    image_rows,
)
from paceline.data.image_set import AbstractImageData, ImageSet, Splits
from paceline.data.order import AbstractOrder, check_sampler
from paceline.data.shuffle import RowFormat, Share
from paceline.data.source import curve_images
from paceline.errors import SettingError
from paceline.exchange.node import this_node
from paceline.exchange.process_group import draw_number, run_store
from paceline.run.checked_module import check_batch_hooks
from paceline.run.placed_data import AbstractTrainingSet, Pass, PlacedData, Reading

_DRAWN_TWICE = 8  # items, to find out if they are random
_POLL_SECONDS = 0.1
_PLACED_SHARE = 0.2  # of a GPU's free memory, for a copy of the training images


def open_data(data: Any, reading: Reading) -> PlacedData:
    """Open one of Paceline's data sets or any LightningDataModule.

    Raises SettingError("batch_size") if the batch size exceeds a worker's share of the images, and
    SettingError("data.store") for a kind of store that is not possible with these data.
    """
    opened = _open_images if isinstance(data, AbstractImageData) else _open_module
    return PlacedData(*opened(data, reading))


def _open_images(
    data: AbstractImageData, reading: Reading
) -> tuple["TrainingImages", Reading, list[Pass]]:
    """Return the training images, and the passes over validation, curve and test images.

    Only the returned object refers to the training images, so that they are freed when it copies a
    share of them into memory (see `hold`).
    """
    splits = data.load()
    decoded = reading.placement.store == "decoded_each_time"
    samples = DecodedImages(data.encoded()) if decoded else splits.train
    training = TrainingImages(splits, samples, data.augmentation, reading.dtype)
    mean, std, validation = splits.mean, splits.std, splits.validation

    def evaluation(images: ImageSet, chosen: np.ndarray | None = None) -> Pass:
        size, dtype = reading.evaluation_batch_size, reading.dtype
        rows = None if chosen is None else torch.from_numpy(chosen)
        return lambda: evaluation_batches(images, size, mean, std, dtype, rows)

    drawn = curve_images(validation.labels.numpy(), reading.curve_images)
    passes = [evaluation(validation), evaluation(validation, drawn), evaluation(splits.test)]
    return training, reading, passes


class TrainingImages(AbstractTrainingSet):
    """Training images of one of Paceline's data sets. Batches are read from `samples`."""

    def __init__(
        self,
        splits: Splits,
        samples: Samples,
        augmentation: AbstractAugmentation | None,
        dtype: torch.dtype,
    ) -> None:
        self._images: ImageSet | None = splits.train
        self._len, self._format = len(splits.train), image_rows(splits.train)
        self._samples, self._statistics = samples, (splits.mean, splits.std)
        self._augmentation, self._dtype = augmentation, dtype
        self._placed: tuple[ImageSet, Normalisation] | None = None  # where batches are trained on

    def __len__(self) -> int:
        return self._len

    def labels(self) -> np.ndarray:
        assert self._images is not None
        return self._images.labels.numpy()

    @property
    def row_format(self) -> RowFormat:
        return self._format

    def read(self, samples: np.ndarray) -> torch.Tensor:
        assert self._images is not None
        return self._format.pack(*self._images.opened_again().take(torch.from_numpy(samples)))

    def hold(self, samples: np.ndarray, spare: int) -> None:
        super().hold(samples, spare)
        assert self.share is not None
        self._samples, self._images, self._placed = self.share, None, None  # frees other images

    def together(
        self, order: AbstractOrder, numbers: Sequence[tuple[int, int]], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        if self._placed is None:
            self._placed = self._place(device)
        if self._placed is None:
            return None
        samples, normalise = self._placed
        rows = torch.cat([order.indices(worker, n) for worker, n in numbers])
        images, labels = samples.take(rows.to(device))
        shape = (len(numbers), order.batch_size)
        return normalise(images).unflatten(0, shape), labels.unflatten(0, shape)

    def _place(self, device: torch.device) -> tuple[ImageSet, Normalisation] | None:
        """Copy the images to a GPU, if they stay as they are and take little of its memory."""
        samples = self._samples
        if device.type != "cuda" or self._augmentation or not isinstance(samples, ImageSet):
            return None
        free, _ = torch.cuda.mem_get_info(device)
        if samples.images.nbytes >= free * _PLACED_SHARE:
            return None
        placed = ImageSet(samples.images.to(device), samples.labels.to(device))
        return placed, Normalisation(*self._statistics, self._dtype).to(device)

    def batches(self, order: AbstractOrder, worker: int, num_batches: int) -> WorkerBatches:
        mean, std = self._statistics
        return WorkerBatches(
            self._samples,
            order,
            worker=worker,
            num_batches=num_batches,
            mean=mean,
            std=std,
            augmentation=self._augmentation,
            dtype=self._dtype,
        )


def _open_module(module: Any, reading: Reading) -> tuple["ModuleItems", Reading, list[Pass]]:
    """Open a DataModule by the data set, `collate_fn` and `num_workers` of its training loader.

    Batches are (images, labels). Raises SettingError("data") for a module without a map-style
    training set, or with hooks that change batches. Raises SettingError("data.store") for the store
    `mapped`, since a module has no prepared file.
    """
    if not hasattr(module, "train_dataloader"):
        raise SettingError("data._target_", f"{type(module).__name__} is no LightningDataModule")
    check_batch_hooks(module, "data")
    if reading.placement.store == "mapped":
        message = f"mapped, but {type(module).__name__} has no prepared file: null or memory"
        raise SettingError("data.store", message)
    _prepare(module)
    module.setup("fit")
    module.setup("test")
    loader = module.train_dataloader()
    if not _is_map_style(loader):
        raise SettingError("data", "a DataLoader over a map-style training set is needed")
    check_sampler(loader)

    def evaluation(batches: Iterable[Any]) -> Iterator[Any]:
        double = reading.dtype == torch.float64
        for images, labels in batches:
            yield images.to(torch.float64) if double else images, labels

    chosen = _curve_loader(module, reading.curve_images)
    passes: list[Pass] = [
        lambda: evaluation(module.val_dataloader()),
        lambda: evaluation(chosen or module.val_dataloader()),
        lambda: evaluation(module.test_dataloader()),
    ]
    return ModuleItems(loader), reading, passes


def _is_map_style(loader: Any) -> bool:
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def _prepare(module: Any) -> None:
    """Let one process of each node prepare the data, as Lightning does; the others wait."""
    if not dist.is_initialized():
        return module.prepare_data()
    node = this_node()
    prepared = f"data: prepared on {node}"
    if draw_number(f"data: comers on {node}") == 0:
        module.prepare_data()
        run_store().set(prepared, "")
    while not run_store().check([prepared]):
        time.sleep(_POLL_SECONDS)


def _curve_loader(module: Any, number: int | None) -> DataLoader | None:
    """Return a loader of `number` of the module's validation images; None if `number` is None."""
    if number is None:
        return None
    loader = module.val_dataloader()
    if not _is_map_style(loader):
        message = f"{number} images can only be drawn from a map-style data set; null is needed"
        raise SettingError("measurement.curve_images", message)
    chosen = curve_images(ModuleItems(loader).labels(), number)
    assert chosen is not None
    return _like(loader, Subset(loader.dataset, chosen.tolist()), batch_size=loader.batch_size)


def _like(loader: DataLoader, dataset: Any, **options: Any) -> DataLoader:
    same: Any = {"collate_fn": loader.collate_fn, "num_workers": loader.num_workers}
    return DataLoader(dataset, **same, **options)


class ModuleItems(AbstractTrainingSet):
    """Items of a module's training set; batches are made by its loader's `collate_fn`.

    Items that are held (copied into memory, see `hold`) stay as they were when they were read.
    Raises SettingError("data.store") for items that cannot be held: items that are not tensors of
    one shape, and items that a random transform changes each time, because held ones would be the
    same in every epoch.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader, self._items = loader, loader.dataset

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def labels(self) -> np.ndarray:
        return np.array([int(self._items[index][1]) for index in range(len(self))])

    @cached_property
    def row_format(self) -> RowFormat:
        return RowFormat([(part.dtype, tuple(part.shape)) for part in self._tensors(0)])

    def read(self, samples: np.ndarray) -> torch.Tensor:
        items = zip(*(self._tensors(index) for index in samples.tolist()), strict=True)
        try:
            return self.row_format.pack(*map(torch.stack, items))
        except RuntimeError as error:
            raise _cannot_hold("items of several shapes") from error

    def hold(self, samples: np.ndarray, spare: int) -> None:
        for index in samples[:_DRAWN_TWICE].tolist():
            pairs = zip(self._tensors(index), self._tensors(index), strict=True)
            if not all(first.equal(second) for first, second in pairs):
                raise _cannot_hold("items that are drawn at random")
        super().hold(samples, spare)

    def batches(self, order: AbstractOrder, worker: int, num_batches: int) -> "ModuleBatches":
        return ModuleBatches(self._loader, self.share, order, worker, num_batches)

    def _tensors(self, index: int) -> list[torch.Tensor]:
        item = self._items[index]
        try:
            return [torch.as_tensor(part) for part in item]
        except (TypeError, ValueError, RuntimeError) as error:
            raise _cannot_hold("items that are not tensors") from error


def _cannot_hold(items: str) -> SettingError:
    needed = "null is needed, and data.placement=replicated"
    return SettingError("data.store", f"{items} cannot be kept in memory: {needed}")


class ModuleBatches(AbstractBatches):
    """Batches of a worker, from its share in memory or from the module's data set."""

    def __init__(
        self, loader: DataLoader, share: Share | None, order: AbstractOrder, worker: int, count: int
    ) -> None:
        super().__init__(count)
        self._loader, self._share, self._order, self._worker = loader, share, order, worker

    def __getitem__(self, n: int) -> Any:
        samples = self._order.indices(self._worker, n)
        if self._share is not None:
            return self._loader.collate_fn([*zip(*self._share.take(samples), strict=True)])
        return self._loader.collate_fn([self._loader.dataset[i] for i in samples.tolist()])

    def beginning_at(self, first: int) -> Iterator[Any]:
        batches = range(first, len(self))
        if self._share is not None:
            return (self[n] for n in batches)
        numbers = _Numbers(self._order, self._worker, batches)
        return iter(_like(self._loader, self._loader.dataset, batch_sampler=numbers))


class _Numbers(Sampler):
    """Numbers of the samples in each batch of one worker."""

    def __init__(self, order: AbstractOrder, worker: int, batches: range) -> None:
        self._order, self._worker, self._batches = order, worker, batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        for n in self._batches:
            yield self._order.indices(self._worker, n).tolist()
