"""All-to-all among the workers that hold a copy of the data, by point-to-point messages of gloo."""

import datetime
from collections.abc import Iterable, Sequence

import torch.distributed as dist

from paceline.data.shuffle import Part
from paceline.exchange.activity import rest
from paceline.exchange.process_group import joined


def group_of(workers: Sequence[int]) -> dist.ProcessGroup:
    """Return a process group of its own for some workers; they alone must call this."""
    group = dist.new_group(
        list(workers),
        timeout=datetime.timedelta(seconds=joined().timeout_seconds),
        backend="gloo",  # the data are in the memory of the processes
        use_local_synchronization=True,
    )
    assert isinstance(group, dist.ProcessGroup)
    return group


class SampleExchange:
    """Exchange of samples among `workers`, of which this process is one."""

    def __init__(self, workers: Sequence[int]) -> None:
        self._group = group_of(workers)

    def carry_out(self, parts: Iterable[Part]) -> int:
        """Carry out the parts of a shuffle; return the bytes that this worker has sent."""
        rest()
        num_bytes = 0
        for part in parts:
            dist.all_to_all_single(
                part.coming, part.going, part.received, part.sent, group=self._group
            )
            num_bytes += part.going.nbytes
        return num_bytes
