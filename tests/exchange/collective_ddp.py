"""What each process of the tests of DDP's hook does: three steps of a network with five buckets."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.exchange.collectives import collective
from paceline.exchange.group_wire import GroupWire, bucket_hook
from paceline.exchange.process_group import join

STEPS = 3
SHAPES = [(9, 7), (9,), (8, 9), (8,), (5, 8), (5,)]  # of gradients, in the order of parameters


def gradients(ways):
    """Of each (collective, compression): mean gradients of the last step; lengths of buckets;
    bytes sent."""
    join(30, "cpu")
    torch.set_num_threads(1)
    return [_after_steps(*way) for way in ways]


def _after_steps(name, compression):
    model, wire = _network(), GroupWire()
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


def _network():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 5))
    return DistributedDataParallel(
        network.double(), bucket_cap_mb=1e-4, gradient_as_bucket_view=True
    )


def _backward(model, step):
    drawn = torch.Generator().manual_seed(10 * step + dist.get_rank())
    images = torch.randn(6, 7, generator=drawn, dtype=torch.float64)
    model(images).square().sum().backward()
