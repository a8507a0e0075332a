"""Batches in the order of virtual time, drawn by worker and number, never in advance."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from torch.utils.data import DataLoader, IterableDataset

from paceline.clock.run_spec import RunSpec
from paceline.clock.training_strategy import DrawOne
from paceline.data.order import SampleStream, check_sampler
from paceline.errors import SettingError


def draw_from(loader: Any, run: RunSpec) -> tuple[DrawOne, int]:
    """Make a function that draws worker k's n-th batch; also return the batches in one pass.

    The order is the project's: batch n * num_workers + k of a seeded stream; the loader's own
    sampler is not used. Raises SettingError("data") for loaders other than a map-style DataLoader,
    because they read in advance, before it is known which worker computes next; and for samplers
    that choose.
    """
    if not _is_map_style(loader):
        name = type(loader).__name__
        message = f"the virtual clock draws from a DataLoader over map-style data, not from {name}"
        raise SettingError("data", message)
    dataset, size = loader.dataset, loader.batch_size
    if size is None:
        raise SettingError("batch_size", "the virtual clock needs a DataLoader with a batch_size")
    check_sampler(loader)
    stream = SampleStream(len(dataset), run.seed)

    def draw(worker: int, n: int) -> Any:
        indices = stream.indices((n * run.num_workers + worker) * size, size)
        return loader.collate_fn([dataset[index] for index in indices.numpy().tolist()])

    return draw, max(1, stream.num_samples // size)


def _is_map_style(loader: object) -> bool:
    return isinstance(loader, DataLoader) and not isinstance(
        cast("Any", loader).dataset, IterableDataset
    )


class VirtualBatches:
    """Iterates over the batches of the workers that compute next, one at a time.

    `next_batch()` raises StopIteration when no worker may take another step.
    """

    def __init__(self, next_batch: Callable[[], Any], length: int) -> None:
        self._next_batch, self._length = next_batch, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return self.beginning_at(0)

    def beginning_at(self, first: int) -> Iterator[Any]:
        """Iterate over the batches after so many, which the clock has taken already."""
        for _ in range(first, self._length):
            try:
                yield self._next_batch()
            except StopIteration:
                return
