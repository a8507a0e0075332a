"""Point-to-point messages of a collective, with the bytes that were sent and received."""

import os
import socket
import struct
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.exchange.schedule import Move, Round, Schedule

# Offsets of 64-bit counters in Linux's struct tcp_info; retransmitted bytes are counted as sent.
_RECEIVED, _SENT, _SENT_AGAIN = 128, 200, 208


class GroupWire:
    """One worker's end of the messages among the workers of `group` (None: all processes).

    All workers take part in each call. gloo carries CPU tensors, NCCL CUDA tensors; NCCL needs a
    collective of the whole group before the first message, as in DDP's constructor. `bytes_sent`
    and `bytes_received` count from the beginning. `rounds`: bytes (sent, received) in each round of
    the last all-reduce.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.worker = dist.get_rank(group)
        self.workers = dist.get_world_size(group)
        self.bytes_sent = 0
        self.bytes_received = 0
        self.rounds: list[tuple[int, int]] = []
        self._kept = torch.empty(0, dtype=torch.uint8)

    def sum_natively(self, vector: Tensor) -> None:
        """Let the backend sum `vector` in place; its bytes are not counted."""
        dist.all_reduce(vector, group=self.group)

    def carry_out(self, schedule: Schedule, vector: Tensor) -> None:
        """Make this worker's moves, which change the contiguous `vector` [length] in place."""
        self.rounds = []
        for moves in schedule:
            before = self.bytes_sent, self.bytes_received
            self._exchange(moves, vector)
            self.rounds.append((self.bytes_sent - before[0], self.bytes_received - before[1]))

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


def socket_bytes() -> tuple[int, int]:
    """Count the bytes (sent, received) of all open TCP connections of this process since each was
    made (Linux). Retransmitted data counts once.
    """
    opened = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_socket()]
    counts = [_counted(int(entry.name)) for entry in opened]
    return sum(sent for sent, _ in counts), sum(received for _, received in counts)


def _counted(descriptor: int) -> tuple[int, int]:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:  # not TCP
            return 0, 0
    received, sent, again = (
        struct.unpack_from("Q", info, offset)[0] for offset in (_RECEIVED, _SENT, _SENT_AGAIN)
    )
    return sent - again, received
