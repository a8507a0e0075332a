"""What each process of the collectives' tests does. Only what is short goes back to the parent.

No process leaves the group: the launcher keeps all of them until each has returned, and one whose
sockets close before it has read everything resets its peers' connections.
"""

import functools
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.exchange.collectives import COLLECTIVES, collective
from paceline.exchange.group_wire import GroupWire, bucket_hook
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


def meet(summed, counted, length, hooked, ways):
    """What this process finds in each group that it is a member of, one group after the other:
    of `summed`, by members, the sums of its cases; of `counted` the bytes of a vector; and of
    `hooked` the gradients of a network.
    """
    join(60, "cpu")
    torch.set_num_threads(1)
    of_groups = [
        {members: _among(members, sums, cases) for members, cases in summed.items()},
        {members: _among(members, traffic, length) for members in counted},
        {hooked: _among(hooked, gradients, ways)},
    ]
    return [{key: each for key, each in found.items() if each} for found in of_groups]


def _among(members, function, *arguments):
    """Call a function with the group and its members, in their processes alone."""
    group = _group(members)
    found = function(group, members, *arguments) if dist.get_rank() in members else None
    dist.barrier()  # nobody's next group meets this one
    return found


_group = functools.cache(dist.new_group)


def sums(group, members, cases):
    """Of each case and collective: is the sum right, and a digest of its bits."""
    wire = GroupWire(group)
    return [_case(wire, members, length, getattr(torch, dtype)) for length, dtype in cases]


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


def traffic(group, members, length):
    """Of each collective: bytes by the wire, of each round, and by the kernel."""
    found = {}
    for name in COLLECTIVES:
        wire = RoundsWire(group)
        vector = torch.zeros(length)
        dist.barrier(group)
        before = socket_bytes()
        wire.all_reduce(vector, collective(name))
        dist.barrier(group)  # until then the last bytes may be in a buffer
        after = socket_bytes()
        dist.barrier(group)  # nobody's next bytes are sent before all have counted theirs
        found[name] = {
            "wire": (wire.bytes_sent, wire.bytes_received),
            "kernel": (after[0] - before[0], after[1] - before[1]),
            "rounds": wire.rounds,
        }
    return found


STEPS = 3  # of a network with five buckets
SHAPES = [(9, 7), (9,), (8, 9), (8,), (5, 8), (5,)]  # of gradients, in the order of parameters


def gradients(group, members, ways):
    """Of each (collective, compression): mean gradients of the last step; lengths of buckets;
    bytes sent.
    """
    return [_after_steps(group, *way) for way in ways]


def _after_steps(group, name, compression):
    model, wire = _network(group), GroupWire(group)
    hook, lengths = bucket_hook(collective(name), compression, wire), []
    model.register_comm_hook((hook, wire.group, lengths), _counted)
    for step in range(STEPS):
        model.zero_grad()
        _backward(model, step)
    kept = [parameter.grad.tolist() for parameter in model.parameters()]
    return kept, lengths, wire.bytes_sent


def failing():
    """Worker 1 fails between two buckets, of which worker 0 waits for the second."""
    join(30, "cpu")
    model = _network()
    hook = bucket_hook(collective("ring"), "none", GroupWire())
    model.register_comm_hook((hook, None, []), _counted)
    if dist.get_rank() == 1:
        model.module[0].weight.register_hook(_fail)
    _backward(model, 0)


def _counted(state, bucket):
    hook, group, lengths = state
    lengths.append(bucket.buffer().numel())
    return hook(group, bucket)


def _fail(gradient):
    raise ValueError("a bad gradient")


def _network(group=None):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 5))
    return DistributedDataParallel(
        network.double(), bucket_cap_mb=1e-4, gradient_as_bucket_view=True, process_group=group
    )


def _backward(model, step):
    drawn = torch.Generator().manual_seed(10 * step + dist.get_rank())
    images = torch.randn(6, 7, generator=drawn, dtype=torch.float64)
    model(images).square().sum().backward()
