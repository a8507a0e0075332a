"""Opens the data of a point: one of Paceline's data sets, or a user's LightningDataModule.

The order in which samples are drawn is always Paceline's, also for a LightningDataModule.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

from paceline.data.augmentation import AbstractAugmentation
from paceline.data.batches import (
    AbstractBatches,
    Normalisation,
    Samples,
    WorkerBatches,
    evaluation_batches,
)
from paceline.data.image_set import AbstractImageData, ImageSet
from paceline.data.order import AbstractOrder, is_map_style
from paceline.data.shuffle import RowFormat, Share
from paceline.data.source import curve_images
from paceline.errors import OF_MACHINE, SettingError, first_line, refused
from paceline.exchange.process_group import draw_number, run_store, this_node
from paceline.run.lightning_contract import check_hooks
from paceline.run.loaders import (
    check_same_data,
    check_training_loader,
    evaluation_loader,
    like,
    rehearsed,
    rehearsed_loader,
)
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
    samples = data.encoded() if decoded else splits.train
    normalise, validation = Normalisation(splits.mean, splits.std, reading.dtype), splits.validation
    training = TrainingImages(splits.train, samples, data.augmentation, normalise)

    def evaluation(images: ImageSet, chosen: np.ndarray | None = None) -> Pass:
        size = reading.evaluation_batch_size
        rows = None if chosen is None else torch.from_numpy(chosen)
        return lambda: evaluation_batches(images, size, normalise, rows)

    drawn = curve_images(validation.labels.numpy(), reading.curve_images)
    passes = [evaluation(validation), evaluation(validation, drawn), evaluation(splits.test)]
    passes += [
        evaluation(part, np.concatenate(rehearsed(len(part), reading.evaluation_batch_size)))
        for part in (validation, splits.test)
    ]
    return training, reading, passes


class TrainingImages(AbstractTrainingSet):
    """Training images of one of Paceline's data sets. Batches are read from `samples`."""

    def __init__(
        self,
        images: ImageSet,
        samples: Samples,
        augmentation: AbstractAugmentation | None,
        normalise: Normalisation,
    ) -> None:
        self._images: ImageSet | None = images
        image_shape = tuple(images.images.shape[1:])
        self._format = RowFormat([(torch.uint8, image_shape), (torch.int64, ())])
        self._len = len(images)
        self._samples, self._augmentation, self._normalise = samples, augmentation, normalise
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
        if device.type == "cuda":
            rows = rows.pin_memory()  # so that the GPU is not waited for
        rows = rows.to(device, non_blocking=True)
        images, labels = samples.take(rows)
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
        return placed, self._normalise.to(device)

    def batches(self, order: AbstractOrder, worker: int, num_batches: int) -> WorkerBatches:
        return WorkerBatches(
            self._samples,
            order,
            self._normalise,
            worker=worker,
            num_batches=num_batches,
            augmentation=self._augmentation,
        )


def _open_module(module: Any, reading: Reading) -> tuple["ModuleItems", Reading, list[Pass]]:
    """Open a DataModule by its loaders; see `loaders` for what they may say.

    Batches are (images, labels). Validation and test loaders are read in order, each sample once.
    Raises SettingError("data") for a module without a map-style training set, with hooks that
    change batches, with a state, or with other data than worker 0 has.
    """
    if not hasattr(module, "train_dataloader"):
        raise SettingError("data._target_", f"{type(module).__name__} is no LightningDataModule")
    check_hooks(module, "data")
    _call(module, "prepare_data", lambda: _prepare(module))
    _call(module, "setup", lambda: (module.setup("fit"), module.setup("test")))
    if _call(module, "state_dict", module.state_dict):
        message = f"{type(module).__name__}.state_dict has a state, which no checkpoint keeps"
        raise SettingError("data", message)
    loader = _call(module, "train_dataloader", module.train_dataloader)
    placement = reading.placement
    plain = (placement.placement, placement.store) == ("replicated", None)
    check_training_loader(loader, in_process=reading.worker is None or not plain)
    validation = _evaluated(module, "validation", "val_dataloader")
    test = _evaluated(module, "test", "test_dataloader")
    options = {"batch_size": reading.batch_size, "shuffle": True}
    module.train_dataloader = lambda: like(loader, loader.dataset, **options)  # for who asks later
    sets = {"training": loader, "validation": validation, "test": test}
    check_same_data({part: each.dataset for part, each in sets.items()})

    def evaluation(batches: Iterable[Any]) -> Iterator[Any]:
        double = reading.dtype == torch.float64
        for images, labels in batches:
            whole = isinstance(labels, torch.Tensor) and not labels.is_floating_point()
            yield images.to(torch.float64) if double else images, labels.long() if whole else labels

    chosen = _curve_loader(validation, reading.curve_images)
    few = [rehearsed_loader(each) for each in (validation, test)]
    each_pass = (validation, chosen, test, *few)
    passes: list[Pass] = [lambda each=each: evaluation(each) for each in each_pass]
    return ModuleItems(loader), reading, passes


def _call(module: Any, method: str, call: Callable[[], Any]) -> Any:
    """Call a method of a user's DataModule; errors except the machine's name it."""
    with refused("data", f"{type(module).__name__}.{method}", named=True, passing=OF_MACHINE):
        return call()


def _evaluated(module: Any, part: str, method: str) -> DataLoader:
    """Return the loader of all samples of the validation or test set."""
    try:
        return evaluation_loader(getattr(module, method)())
    except OF_MACHINE:
        raise
    except Exception as error:  # code from outside may raise anything
        said = error.message if isinstance(error, SettingError) else first_line(error)
        message = f"pairs (images, labels [N]) of the {part} set are needed: {said}"
        raise SettingError("data", message) from error


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


def _curve_loader(loader: DataLoader, number: int | None) -> DataLoader:
    """Return a loader of `number` of the validation images, or `loader` if `number` is None."""
    if number is None:
        return loader
    if not is_map_style(loader):
        message = f"{number} images can only be drawn from a map-style data set; null is needed"
        raise SettingError("measurement.curve_images", message)
    chosen = curve_images(ModuleItems(loader).labels(), number)
    assert chosen is not None
    return like(loader, Subset(loader.dataset, chosen.tolist()), batch_size=loader.batch_size)


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
        numbers = (self._order.indices(self._worker, n).tolist() for n in batches)
        return iter(like(self._loader, self._loader.dataset, batch_sampler=numbers))
