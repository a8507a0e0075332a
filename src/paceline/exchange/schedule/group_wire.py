"""Point-to-point messages of a collective, counted where they are sent."""

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.exchange.schedule.moves import Move, Round, Schedule


class GroupWire:
    """The end of one worker for messages to the others of `group` (None: all processes).

    gloo carries CPU tensors, NCCL CUDA tensors; NCCL wants a collective of the whole group before
    the first message (DDP's constructor has some). All workers take part in each call.
    `workers_per_node`: workers fill node after node; None puts all of them on one.
    `bytes_sent` and `bytes_received` count since the wire was made; `rounds` holds (bytes sent,
    bytes received) of each round of the last all-reduce.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, workers_per_node: int | None = None
    ) -> None:
        self.group = group
        self.worker = dist.get_rank(group)
        self.workers = dist.get_world_size(group)
        self.workers_per_node = workers_per_node or self.workers
        self.bytes_sent = 0
        self.bytes_received = 0
        self.rounds: list[tuple[int, int]] = []
        self._kept = torch.empty(0, dtype=torch.uint8)

    def sum_natively(self, vector: Tensor) -> None:
        """Let the backend sum `vector` in place; what that sends is not counted."""
        dist.all_reduce(vector, group=self.group)

    def carry_out(self, schedule: Schedule, vector: Tensor) -> None:
        """Make this worker's moves of a schedule.

        `vector` [num_elements] is contiguous, of any dtype that can be added; it is changed in
        place.
        """
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
        # gloo sends once it is told that the receiver is ready, and what tells it would queue
        # behind what is sent the other way: a link would carry one direction at a time.
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
        """Return where each move lands: beside the vector what is added, else in its place."""
        sizes = [(m.last - m.first) * vector.element_size() for m in received if m.adds]
        beside = iter(torch.split(self._memory(sum(sizes), vector.device), sizes))
        return [
            next(beside).view(vector.dtype) if m.adds else vector[m.first : m.last]
            for m in received
        ]

    def _memory(self, num_bytes: int, device: torch.device) -> Tensor:
        """Reuse memory on a CPU, where new is dear; on CUDA calls may overlap on streams."""
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


def busiest_bytes(rounds: list[list[tuple[int, int]]]) -> int:
    """Add up what the busiest link carries in each round; `rounds` of each worker's wire.

    A link carries both directions at once, and a round lasts as long as its busiest worker. Over
    the bandwidth this is the time that cost formulas speak of, latency apart.
    """
    return sum(max(max(counted) for counted in at_once) for at_once in zip(*rounds, strict=True))


def _bytes(part: Tensor) -> Tensor:
    """View numbers as bytes, which every backend carries, whatever the dtype."""
    return part.view(torch.uint8)
