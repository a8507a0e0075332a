"""Collectives of real workers: all-reduces, DDP's hook that averages gradients by them, and
exchanges of samples.

DDP hands over a bucket as soon as backward has filled it, in the same order on all workers. Buckets
are averaged in that order while backward continues: on a CPU in a thread, on CUDA on other streams.
"""

import datetime
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_wrapper,
    fp16_compress_wrapper,
)
from torch.futures import Future

from paceline.data.shuffle import Part
from paceline.exchange.collectives import AbstractCollective, Move, Native, Round
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import has_nccl, joined


class GroupWire:
    """One worker's end of the messages among the workers of `group` (None: all processes).

    All workers take part in each call. gloo carries CPU tensors, NCCL CUDA tensors; NCCL needs a
    collective of the whole group before the first message, as in DDP's constructor. `bytes_sent`
    and `bytes_received` count from the beginning.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.worker = dist.get_rank(group)
        self.workers = dist.get_world_size(group)
        self.bytes_sent = 0
        self.bytes_received = 0
        self._kept = torch.empty(0, dtype=torch.uint8)

    def all_reduce(self, vector: Tensor, by: AbstractCollective) -> None:
        """Replace a contiguous `vector` [length] by its sum. Bytes of `native` are not counted."""
        if isinstance(by, Native):
            dist.all_reduce(vector, group=self.group)
            return
        for moves in by.schedule(self.workers, vector.numel()):
            self._exchange(moves, vector)

    def _exchange(self, moves: Round, vector: Tensor) -> None:
        sent = [move for move in moves if move.sender == self.worker]
        sent.sort(key=lambda move: (move.receiver - self.worker) % self.workers)  # not all to one
        received = [move for move in moves if move.receiver == self.worker]
        landed = self._landing_places(received, vector)
        # Receives come first: gloo sends once the receiver says that it is ready. Behind other data
        # this word would wait, and a link would carry only one direction at a time.
        messages = [
            self._receive(place, m.sender) for place, m in zip(landed, received, strict=True)
        ]
        messages += [self._send(vector[m.first : m.last], m.receiver) for m in sent]
        if messages:  # in one batch: NCCL carries them out at once, whatever their order
            for work in dist.batch_isend_irecv(messages):
                work.wait()
        for place, move in zip(landed, received, strict=True):
            if move.adds:
                vector[move.first : move.last].add_(place)

    def _landing_places(self, received: list[Move], vector: Tensor) -> list[Tensor]:
        """Return where each move is received: a buffer if it is added, else in the vector."""
        sizes = [(m.last - m.first) * vector.element_size() for m in received if m.adds]
        kept, size = self._kept, sum(sizes)
        if kept.numel() < size or vector.is_cuda:  # where calls may overlap
            kept = torch.empty(size, dtype=torch.uint8, device=vector.device)
        if not vector.is_cuda:  # new memory is expensive
            self._kept = kept
        beside = iter(torch.split(kept[:size], sizes))
        return [
            next(beside).view(vector.dtype) if m.adds else vector[m.first : m.last]
            for m in received
        ]

    def _send(self, part: Tensor, receiver: int) -> dist.P2POp:
        """Send numbers as bytes, which every backend carries."""
        self.bytes_sent += part.nbytes
        return dist.P2POp(dist.isend, part.view(torch.uint8), group=self.group, group_peer=receiver)

    def _receive(self, part: Tensor, sender: int) -> dist.P2POp:
        self.bytes_received += part.nbytes
        return dist.P2POp(dist.irecv, part.view(torch.uint8), group=self.group, group_peer=sender)


Bucket = dist.GradBucket  # type: ignore[reportPrivateImportUsage]
Hook = Callable[[Any, Bucket], Future[Tensor]]

_HALVES: dict[str, Callable[[Hook], Hook]] = {
    "fp16": fp16_compress_wrapper,
    "bf16": bf16_compress_wrapper,
}


def bucket_hook(by: AbstractCollective, compression: str, wire: GroupWire) -> Hook:
    """Return a hook for `register_comm_hook(wire.group, ...)`, which returns the mean of a bucket
    over all workers as a future. `compression`: "none", or "fp16" or "bf16", which halve the bytes.
    The wire counts the bytes, except those of `native`.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bucket mean")

    def mean(bucket: Bucket) -> Tensor:
        """Return the mean of a bucket, divided before the sum so that fp16 cannot overflow."""
        vector = bucket.buffer().div_(wire.workers)
        # Workers that share a GPU have no NCCL, and gloo carries no messages between GPUs.
        carried = vector.cpu() if vector.is_cuda and not has_nccl() else vector
        wire.all_reduce(carried, by)
        return vector if carried is vector else vector.copy_(carried)

    def one_by_one(state: Any, bucket: Bucket) -> Future[Tensor]:
        vector = bucket.buffer()
        filled: Future[Tensor] = Future(devices=[vector.device] if vector.is_cuda else None)
        done = filled.then(lambda _: mean(bucket))  # an error in it is raised by backward
        if vector.is_cuda:
            filled.set_result(vector)
        else:
            thread.submit(filled.set_result, vector)
        return done

    hook: Hook = allreduce_hook if isinstance(by, Native) else one_by_one
    return hook if compression == "none" else _HALVES[compression](hook)


class SampleExchange:
    """All-to-all of samples over gloo among the workers, the first `num_workers` processes; only
    they construct it.
    """

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
