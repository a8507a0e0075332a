"""What each process of the collectives' tests does. Only what is short goes back to the parent.

No process leaves the group: the launcher keeps all of them until each has returned, and one whose
sockets close before it has read everything resets its peers' connections.
"""

import hashlib

import torch
import torch.distributed as dist

from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.exchange.group_wire import GroupWire
from paceline.exchange.process_group import join
from tests.exchange.socket_bytes import socket_bytes


def brought(worker, length, dtype):
    """Every other element an integer, so small that sums over 8 workers are exact in any order and
    dtype; the others drawn from a normal distribution.
    """
    drawn = torch.Generator().manual_seed(100 * length + worker)
    vector = torch.randn(length, generator=drawn, dtype=torch.float64)
    vector[::2] = torch.randint(-31, 32, vector[::2].shape, generator=drawn).double()
    return vector.to(dtype)


def sums(cases):
    """Of each case and collective: is the sum right, and a digest of its bits."""
    join(60, "cpu")
    wire = GroupWire()
    everybody = range(wire.workers)
    return [_case(wire, everybody, length, getattr(torch, dtype)) for length, dtype in cases]


def sums_in_a_part():
    """Among workers 1 and 3 of four, while the others do nothing."""
    join(60, "cpu")
    members = [1, 3]
    group = dist.new_group(members)
    taking_part = dist.get_rank() in members
    found = _case(GroupWire(group), members, 50, torch.float64) if taking_part else None
    dist.barrier()  # a process that leaves at once would break a meeting that others are still in
    return found


def _case(wire, members, length, dtype):
    vectors = [brought(member, length, dtype) for member in members]
    exact = torch.stack(vectors).double()
    total, magnitude = exact.sum(0), exact.abs().sum(0)
    # each of p-1 additions is off by half an eps of a partial sum at most, whatever the order
    bound = len(members) * torch.finfo(dtype).eps / 2 * magnitude
    bound[::2] = 0
    found = {}
    for name in COLLECTIVES:
        vector = vectors[wire.worker].clone()
        wire.all_reduce(vector, collective(name))
        right = bool(((vector.double() - total).abs() <= bound).all())
        found[name] = (right and vector.dtype == dtype, _digest(vector))
    return found


def _digest(vector):
    return hashlib.sha256(vector.view(torch.uint8).numpy().tobytes()).hexdigest()


class RoundsWire(GroupWire):
    """Counts the bytes (sent, received) of each round."""

    rounds = ()

    def _exchange(self, moves, vector):
        sent, received = self.bytes_sent, self.bytes_received
        super()._exchange(moves, vector)
        self.rounds += ((self.bytes_sent - sent, self.bytes_received - received),)


def traffic(length):
    """Of each collective: bytes by the wire, of each round, and by the kernel."""
    join(60, "cpu")
    found = {}
    for name in COLLECTIVES:
        wire = RoundsWire()
        vector = torch.zeros(length)
        dist.barrier()
        before = socket_bytes()
        wire.all_reduce(vector, collective(name))
        dist.barrier()  # until then the last bytes may be in a buffer
        after = socket_bytes()
        dist.barrier()  # nobody's connections close before all have counted theirs
        found[name] = {
            "wire": (wire.bytes_sent, wire.bytes_received),
            "kernel": (after[0] - before[0], after[1] - before[1]),
            "rounds": wire.rounds,
        }
    return found
