"""Point-to-point messages of a collective, with the bytes that were sent and received."""

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.exchange.collectives import AbstractCollective, Move, Native, Round


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
        """Return the tensor into which each move is received: a buffer if its elements are added,
        else a part of the vector.
        """
        sizes = [(m.last - m.first) * vector.element_size() for m in received if m.adds]
        beside = iter(torch.split(self._memory(sum(sizes), vector.device), sizes))
        return [
            next(beside).view(vector.dtype) if m.adds else vector[m.first : m.last]
            for m in received
        ]

    def _memory(self, num_bytes: int, device: torch.device) -> Tensor:
        """Reuse memory on a CPU, where new memory is expensive; on CUDA calls may overlap."""
        if device.type != "cpu":
            return torch.empty(num_bytes, dtype=torch.uint8, device=device)
        if self._kept.numel() < num_bytes:
            self._kept = torch.empty(num_bytes, dtype=torch.uint8)
        return self._kept[:num_bytes]

    def _send(self, part: Tensor, receiver: int) -> dist.P2POp:
        self.bytes_sent += part.nbytes
        return dist.P2POp(dist.isend, _bytes(part), group=self.group, group_peer=receiver)

    def _receive(self, part: Tensor, sender: int) -> dist.P2POp:
        self.bytes_received += part.nbytes
        return dist.P2POp(dist.irecv, _bytes(part), group=self.group, group_peer=sender)


def _bytes(part: Tensor) -> Tensor:
    """View numbers as bytes, which every backend carries."""
    return part.view(torch.uint8)
