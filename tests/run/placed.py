"""What each of four processes of the tests of placed data does; all of it in one launch."""

import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from paceline.data.placement import Placement
from paceline.data.prepared import AbstractPreparedImageData
from paceline.data.shuffle import BUFFER_BYTES, DataTraffic
from paceline.data.source import Source, whole
from paceline.exchange.process_group import join
from paceline.run.open_data import open_data
from paceline.run.placed_data import Reading
from paceline.run.training_process import TrainingProcess
from tests.exchange.socket_bytes import socket_bytes
from tests.tiny import point_of

SHAPE, NUM_FEW, NUM_TRAIN = (3, 48, 48), 64, 18_432  # 0.4 and 127 MB


class NumberedImages(AbstractPreparedImageData):
    """Random images, each of a class of its own."""

    name = "numbered"

    def fingerprint(self) -> int:
        return self.num_classes

    def read(self) -> Source:
        labels = np.arange(self.num_classes)
        sizes = (self.num_classes, *self.image_shape)
        images = np.random.default_rng(0).integers(0, 256, sizes, dtype=np.uint8)
        few = slice(0, 8)
        test, validation = whole(images[few], labels[few]), whole(images[few], labels[few])
        return Source(whole(images, labels), test, self.num_classes, self.image_shape, validation)


def numbered_images(root: Path, num_train: int) -> NumberedImages:
    return NumberedImages(str(root), num_train, SHAPE, 8, 0, None)


class Memory(NamedTuple):
    """Bytes: resident before, most afterwards; and what a share and a buffer have."""

    before: int
    most: int
    share: int
    buffer: int


class Shuffled(NamedTuple):
    """Of shuffles of the large set: memory, bytes as we and as the kernel count, labels drawn.

    `begun`: how often a step was told to begin anew.
    """

    memory: Memory
    sent: int
    sent_by_kernel: int
    labels: list[int]
    begun: int


def everything(configs: list[dict[str, Any]], root: Path, folder: Path) -> tuple[list[Any], Any]:
    """The reports of all points, and large shuffles."""
    torch.set_num_threads(1)
    join(60, "cpu")
    reports = []
    for number, config in enumerate(configs):
        own = folder / str(number)
        own.mkdir(exist_ok=True)
        reports.append(TrainingProcess(point_of(config), own, {}).run())
    return reports, shuffled(root)


def shuffled(root: Path) -> Shuffled:
    """Read a share of the large set and shuffle it twice; of each period keep a batch.

    A small set goes before, so that code and what a process needs once are in memory already.
    """
    shuffled_twice(root, NUM_FEW)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
    traffic, sent, labels, begun = shuffled_twice(root, NUM_TRAIN)
    share = (int(np.prod(SHAPE)) + 8) * NUM_TRAIN // dist.get_world_size()
    memory = Memory(before, _resident("VmHWM"), share, BUFFER_BYTES)
    return Shuffled(memory, traffic.moved.shuffle_bytes, sent, labels, begun)


def shuffled_twice(root: Path, num_train: int) -> tuple[DataTraffic, int, list[int], int]:
    """Return what moved, by our count and the kernel's; labels of three batches, and meetings.

    All have received before one counts, and all have counted before one closes its connections.
    """
    worker, workers, size = dist.get_rank(), dist.get_world_size(), 4
    placement = Placement("partitioned", "random", 1, store=None)
    reading = Reading(workers, size, 0, size, placement, worker=worker)
    data = open_data(numbered_images(root, num_train), reading)
    per_period = num_train // (workers * size)
    begun: list[int] = []
    batches = data.train(worker, 2 * per_period + 1, lambda: begun.append(1))
    dist.barrier()
    sent_before = socket_bytes()[0]
    drawn = itertools.islice(batches, 0, None, per_period)
    labels = [label for _, labels in drawn for label in labels.tolist()]
    dist.barrier()
    sent = socket_bytes()[0] - sent_before
    dist.barrier()
    return data.traffic, sent, labels, len(begun)


def _resident(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])
