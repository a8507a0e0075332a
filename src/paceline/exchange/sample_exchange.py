"""Exchange of samples among workers over gloo: shuffles, and batches that one process draws."""

import datetime
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.data.shuffle import Part
from paceline.exchange.liveness import rest
from paceline.exchange.node import gather_nodes
from paceline.exchange.process_group import broadcast_json, joined


def group_of(workers: Sequence[int]) -> dist.ProcessGroup:
    """Return a new gloo group for some workers; only they call this."""
    group = dist.new_group(
        list(workers),
        timeout=datetime.timedelta(seconds=joined().timeout_seconds),
        backend="gloo",  # the data are in the memory of the processes
        use_local_synchronization=True,
    )
    assert isinstance(group, dist.ProcessGroup)
    return group


class SampleExchange:
    """All-to-all among the `workers` that share a copy of the data, including this one."""

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


class NodeFeed:
    """Scatter of batches inside a node, where the first worker draws for all of its workers.

    Torch's data-parallel table fed several GPUs like this, the baseline of Kumar 2017
    (arXiv:1711.00705). `workers`: the workers of this node. `is_first`: True in the process that
    draws. All `num_workers` workers must construct it.
    """

    def __init__(self, worker: int, num_workers: int) -> None:
        names = gather_nodes(num_workers, group_of(range(num_workers)))
        self.workers = [each for each, name in enumerate(names) if name == names[worker]]
        self.is_first = worker == self.workers[0]
        self._group = group_of(self.workers)
        self._formats: list[tuple[torch.dtype, torch.Size]] | None = None

    def scatter(self, drawn: Sequence[Sequence[Tensor]]) -> tuple[list[Tensor], int]:
        """Return this worker's batch, and the bytes that it has sent. `drawn`: one batch for each
        of `workers`, with the same types and shapes in every step; empty in processes that do not
        draw.
        """
        rest()
        own = [torch.empty(shape, dtype=dtype) for dtype, shape in self._known(drawn)]
        for place, part in enumerate(own):
            parts = [batch[place].contiguous() for batch in drawn] or None
            dist.scatter(part, parts, src=self.workers[0], group=self._group)
        return own, sum(part.nbytes for batch in drawn[1:] for part in batch)

    def _known(self, drawn: Sequence[Sequence[Tensor]]) -> list[tuple[torch.dtype, torch.Size]]:
        if self._formats is None:
            told = [[str(part.dtype), *part.shape] for part in drawn[0]] if drawn else None
            formats = broadcast_json(told, self.workers[0], self._group)
            self._formats = [(_dtype(name), torch.Size(shape)) for name, *shape in formats]
        return self._formats


def _dtype(name: str) -> torch.dtype:
    """Return the type of numbers of this name, such as torch.float32."""
    return getattr(torch, name.removeprefix("torch."))
