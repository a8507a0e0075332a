"""Exchange of samples among workers over gloo."""

import datetime
from collections.abc import Iterable

import torch.distributed as dist

from paceline.data.shuffle import Part
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import joined


class SampleExchange:
    """All-to-all among the workers, the first `num_workers` processes; only they construct it."""

    def __init__(self, num_workers: int) -> None:
        group = dist.new_group(
            list(range(num_workers)),
            timeout=datetime.timedelta(seconds=joined().timeout_seconds),
            backend="gloo",  # the data are in the memory of the processes
            use_local_synchronization=True,
        )
        assert isinstance(group, dist.ProcessGroup)
        self._group = group

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
