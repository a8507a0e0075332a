"""The processes that one worker's network is divided over, and the bytes between them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.timing.split_step import all_reduced


class ShardGroup:
    """The `shards` processes of one worker, seen by process `shard` of them.

    `group`: their process group; None: all processes. `seconds`: spent in exchange. `num_bytes`: of
    activations and their gradients that this process has sent, and received: everything that is
    exchanged is as long in all processes. gloo was seen to move these; its all-reduce is a ring.
    """

    def __init__(self, group: dist.ProcessGroup | None, shard: int, shards: int) -> None:
        self.group = group
        self.shard = shard
        self.shards = shards
        self.seconds = 0.0
        self.num_bytes = 0

    def gather(self, own: Tensor) -> Tensor:
        """Return the tensors `own` [...] of all processes [shards, ...]."""
        pieces = own.new_empty(self.shards, *own.shape)
        with self._timed():
            dist.all_gather_into_tensor(pieces.view(-1), own.reshape(-1), group=self.group)
        self.num_bytes += (self.shards - 1) * own.nbytes
        return pieces

    def swap(self, pieces: Tensor) -> Tensor:
        """Send piece i of [shards, ...] to process i; return the pieces that all have sent here."""
        pieces = pieces.contiguous()
        received = torch.empty_like(pieces)
        with self._timed():
            dist.all_to_all_single(received, pieces, group=self.group)
        self.num_bytes += (self.shards - 1) * pieces[0].nbytes
        return received

    def sum(self, own: Tensor) -> Tensor:
        """Return the sum of the activations `own` over all processes."""
        total = own.clone(memory_format=torch.contiguous_format)
        with self._timed():
            dist.all_reduce(total, group=self.group)
        self.num_bytes += all_reduced(own.nbytes, self.shards).num_bytes
        return total

    def collect(self, own: Tensor) -> list[Tensor] | None:
        """Return the tensors of all processes in shard 0, None elsewhere; they are not counted."""
        pieces = [torch.empty_like(own) for _ in range(self.shards)] if self.shard == 0 else None
        dist.gather(own, pieces, group=self.group, group_dst=0)
        return pieces

    def share_random_state(self, device: torch.device) -> None:
        """Give all processes the state of shard 0's random generators, of the CPU and `device`.

        As all then draw the same numbers, they agree on what dropout keeps.
        """
        torch.set_rng_state(self._of_first(torch.get_rng_state()))
        if device.type == "cuda":
            torch.cuda.set_rng_state(self._of_first(torch.cuda.get_rng_state(device)), device)

    def _of_first(self, state: Tensor) -> Tensor:
        dist.broadcast(state, group=self.group, group_src=0)
        return state

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
