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
from paceline.exchange import node_feed
from paceline.exchange.process_group import join
from paceline.exchange.socket_bytes import socket_bytes
from paceline.run.open_data import open_data
from paceline.run.point_data import Reading
from paceline.run.training_process import TrainingProcess
from tests.tiny import point_of

SHAPE, NUM_TRAIN = (3, 48, 48), 18_432  # 127 MB


class LargeImages(AbstractPreparedImageData):
    """Random images, labelled by their numbers."""

    name = "large"

    def fingerprint(self) -> str:
        return "large"

    def read(self) -> Source:
        images = np.random.default_rng(0).integers(0, 256, (NUM_TRAIN, *SHAPE), dtype=np.uint8)
        labels = np.arange(NUM_TRAIN)
        few = slice(0, 8)
        test, validation = whole(images[few], labels[few]), whole(images[few], labels[few])
        return Source(whole(images, labels), test, NUM_TRAIN, SHAPE, validation)


def large_images(root: Path) -> LargeImages:
    return LargeImages(str(root), NUM_TRAIN, SHAPE, 8, 0, None)


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
    """The reports of all points, of which the last is run on two nodes, and large shuffles."""
    torch.set_num_threads(1)
    join(60, "cpu")
    reports = []
    for number, config in enumerate(configs):
        own = folder / str(number)
        own.mkdir(exist_ok=True)
        if number == len(configs) - 1:
            node_feed.this_node = lambda: f"node {dist.get_rank() // 2}"
        reports.append(TrainingProcess(point_of(config), own).run())
    return reports, shuffled(root)


def shuffled(root: Path) -> Shuffled:
    """Read a share of the large set and shuffle it twice; of each period keep a batch."""
    worker, workers = dist.get_rank(), dist.get_world_size()
    placement = Placement("partitioned", "random", 1, copies=1, feed="own", store=None)
    size = 4
    reading = Reading(workers, size, 0, size, placement, worker=worker)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
    data = open_data(large_images(root), reading)
    per_period = NUM_TRAIN // (workers * size)
    begun: list[int] = []
    batches = data.train(worker, 2 * per_period + 1, lambda: begun.append(1))
    dist.barrier()
    sent_before = socket_bytes()[0]
    drawn = itertools.islice(batches, 0, None, per_period)
    labels = [label for _, labels in drawn for label in labels.tolist()]
    sent = socket_bytes()[0] - sent_before
    row = int(np.prod(SHAPE)) + 8
    memory = Memory(before, _resident("VmHWM"), row * NUM_TRAIN // workers, BUFFER_BYTES)
    return Shuffled(memory, data.traffic.moved.shuffle_bytes, sent, labels, len(begun))


def _resident(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])
