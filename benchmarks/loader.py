"""Loading Fashion-MNIST from memory, against torchvision's data set, transforms and DataLoader."""

import gzip
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.row import ratio_row
from paceline.data.batches import Batch, Normalisation, WorkerBatches
from paceline.data.fashion_mnist import CONTENT_MD5S, FashionMnist, find_files
from paceline.data.image_set import Splits
from paceline.data.order import SampleStream, StreamOrder

TURNS, IMAGES, WARMUP_BATCHES = 5, 12_800, 10
ROOT = Path("data")


def rows() -> list[dict[str, Any]]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _rows(Path(folder))
    finally:
        torch.set_num_threads(num_threads)


def _rows(folder: Path) -> list[dict[str, Any]]:
    splits = FashionMnist(
        root=str(ROOT),
        num_classes=10,
        image_shape=(1, 28, 28),
        num_validation=5000,
        split_seed=0,
        augmentation=None,
    ).load()
    dataset = _torchvision_dataset(folder, splits)
    found = []
    for batch_size in (32, 128):
        for processes in (0, 2):
            ours, theirs = _by_turns(splits, dataset, batch_size, processes)
            name = f"loader, batch {batch_size} / DataLoader with num_workers={processes}"
            found.append(ratio_row(name, ours, theirs, "images/s", 10))
    return found


def _by_turns(
    splits: Splits, dataset: Any, batch_size: int, processes: int
) -> tuple[list[float], list[float]]:
    ours, theirs = [], []
    for turn in range(TURNS):
        ours.append(_images_per_second(_our_batches(splits, batch_size, turn), batch_size))
        loader = torch.utils.data.DataLoader(
            dataset, batch_size, shuffle=True, num_workers=processes, drop_last=True
        )
        theirs.append(_images_per_second(iter(loader), batch_size))
    return ours, theirs


def _our_batches(splits: Splits, batch_size: int, seed: int) -> Iterator[Batch]:
    return iter(
        WorkerBatches(
            splits.train,
            StreamOrder(SampleStream(len(splits.train), seed), 1, batch_size),
            Normalisation(splits.mean, splits.std, torch.float32),
            worker=0,
            num_batches=len(splits.train) // batch_size,
        )
    )


def _images_per_second(batches: Iterator[Any], batch_size: int) -> float:
    for _ in islice(batches, WARMUP_BATCHES):  # the start of processes is not counted
        pass
    num_batches = IMAGES // batch_size
    started = time.perf_counter()
    for _ in islice(batches, num_batches):
        pass
    return num_batches * batch_size / (time.perf_counter() - started)


def _torchvision_dataset(folder: Path, splits: Splits) -> Any:
    from torchvision import datasets, transforms

    source = find_files(ROOT)
    if source is None:
        raise SystemExit("Fashion-MNIST is neither in data/ nor installed")
    raw = folder / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    for name in CONTENT_MD5S:
        (raw / name).with_suffix("").write_bytes(gzip.decompress((source / name).read_bytes()))
    steps = [transforms.ToTensor(), transforms.Normalize(splits.mean, splits.std)]
    return datasets.FashionMNIST(folder, transform=transforms.Compose(steps))
