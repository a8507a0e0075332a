"""The processes that one worker's network is divided over, and the bytes between them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Traffic(NamedTuple):
    """Bytes that one process has sent and received."""

    sent: int
    received: int


def ring_bytes(num_bytes: int, shards: int) -> int:
    """Return the bytes that one of `shards` processes sends in an all-reduce of `num_bytes`."""
    return 2 * (shards - 1) * num_bytes // shards


class ShardGroup:
    """The `shards` processes of one worker, seen by process `shard` of them.

    `group`: their process group; None: all processes. `seconds`: spent in exchange. Everything that
    is exchanged is as long in all processes, so that each receives as many bytes as it sends. These
    are the bytes that gloo was seen to move: an all-reduce is a ring.
    """

    def __init__(self, group: dist.ProcessGroup | None, shard: int, shards: int) -> None:
        self.group = group
        self.shard = shard
        self.shards = shards
        self.seconds = 0.0
        self._activations = 0
        self._gradients = 0

    @property
    def bytes_of_activations(self) -> Traffic:
        """Bytes of activations and of their gradients."""
        return Traffic(self._activations, self._activations)

    @property
    def bytes_of_gradients(self) -> Traffic:
        """Bytes of the gradients of weights."""
        return Traffic(self._gradients, self._gradients)

    def gather(self, own: Tensor) -> Tensor:
        """Return the tensors `own` [...] of all processes [shards, ...]."""
        pieces = own.new_empty(self.shards, *own.shape)
        with self._timed():
            dist.all_gather_into_tensor(pieces.view(-1), own.reshape(-1), group=self.group)
        self._activations += (self.shards - 1) * own.nbytes
        return pieces

    def swap(self, pieces: Tensor) -> Tensor:
        """Send piece i of [shards, ...] to process i; return the pieces that all have sent here."""
        pieces = pieces.contiguous()
        received = torch.empty_like(pieces)
        with self._timed():
            dist.all_to_all_single(received, pieces, group=self.group)
        self._activations += (self.shards - 1) * pieces[0].nbytes
        return received

    def sum(self, own: Tensor) -> Tensor:
        """Return the sum of the activations `own` over all processes."""
        self._activations += ring_bytes(own.nbytes, self.shards)
        return self._summed(own)

    def sum_gradient(self, own: Tensor) -> Tensor:
        """Return the sum of the weights' gradients `own` over all processes."""
        self._gradients += ring_bytes(own.nbytes, self.shards)
        return self._summed(own)

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

    def _summed(self, own: Tensor) -> Tensor:
        total = own.clone(memory_format=torch.contiguous_format)
        with self._timed():
            dist.all_reduce(total, group=self.group)
        return total

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
