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
from paceline.data.shuffle import BUFFER_BYTES
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


class Shuffled(NamedTuple):
    """Of two shuffles of the large set, in a process: memory that was added at most, and that of a
    share and a buffer; bytes sent as we and as the kernel count; labels of three batches; and how
    often a step was told to begin anew.
    """

    added: int
    share: int
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
    shuffled(root, NUM_FEW)  # so that code and what a process needs once are in memory already
    return reports, shuffled(root, NUM_TRAIN)


def shuffled(root: Path, num_train: int) -> Shuffled:
    """Read a share of a set and shuffle it twice; of each period keep a batch.

    All have received before one counts, and all have counted before one closes its connections.
    """
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
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
    share = (int(np.prod(SHAPE)) + 8) * num_train // workers + BUFFER_BYTES
    added = _resident("VmHWM") - before
    return Shuffled(added, share, data.traffic.moved.shuffle_bytes, sent, labels, len(begun))


def _resident(name: str) -> int:
    (kilobytes,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(kilobytes)
