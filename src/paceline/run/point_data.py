"""The data of a point as its processes use it: batches for each worker, and for evaluation."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from paceline.data.batches import WorkerBatches, evaluation_batches
from paceline.data.image_set import AbstractImageData
from paceline.data.stream import SampleStream
from paceline.errors import SettingError


@dataclass(frozen=True)
class Feed:
    """`train(worker, num_batches)`: one worker's share; `batch(worker, n)`: one of its batches; the
    others start a fresh pass each.
    """

    num_train: int
    stream: SampleStream
    train: Callable[[int, int], Any]
    batch: Callable[[int, int], Any]
    validation: Callable[[], Iterable]
    test: Callable[[], Iterable]


def open_feed(config: dict[str, Any], data: Any) -> Feed:
    """`data`: an AbstractImageData, or anybody's LightningDataModule."""
    feed = _from_images(config, data) if isinstance(data, AbstractImageData) else None
    if feed is None:
        from paceline.run.data_module import feed_from_data_module

        feed = feed_from_data_module(config, data)
    share = feed.num_train // config["workers"]
    if config["batch_size"] > share:
        raise SettingError(
            "batch_size",
            f"{config['batch_size']} is more than a worker's share of {share} images "
            f"({feed.num_train} over workers={config['workers']})",
        )
    return feed


def _from_images(config: dict[str, Any], data: AbstractImageData) -> Feed:
    splits = data.load()
    dtype = torch.float64 if config["training"]["precision"] == "64-true" else torch.float32
    size = config["measurement"]["evaluation_batch_size"]
    stream = SampleStream(len(splits.train), config["seed"])

    def train(worker: int, num_batches: int) -> WorkerBatches:
        return WorkerBatches(
            splits.train,
            stream,
            worker=worker,
            num_workers=config["workers"],
            batch_size=config["batch_size"],
            num_batches=num_batches,
            mean=splits.mean,
            std=splits.std,
            augmentation=data.augmentation,
            dtype=dtype,
        )

    def evaluation(images: Any) -> Callable[[], Iterable]:
        return lambda: evaluation_batches(images, size, splits.mean, splits.std, dtype)

    share = cache(lambda worker: train(worker, sys.maxsize))
    return Feed(
        len(splits.train),
        stream,
        train,
        lambda worker, n: share(worker)[n],
        evaluation(splits.validation),
        evaluation(splits.test),
    )
