"""What each process of the tests of DDP's hook does: three steps of a network with five buckets."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.exchange.ddp_hook import BucketMean
from paceline.exchange.process_group import join

STEPS = 3
SHAPES = [(9, 7), (9,), (8, 9), (8,), (5, 8), (5,)]  # of gradients, in the order of parameters


def gradients(ways):
    """Of each (collective, compression): mean gradients of the last step; lengths of buckets;
    bytes sent."""
    join(30, "cpu")
    torch.set_num_threads(1)
    return [_after_steps(*way) for way in ways]


def _after_steps(collective, compression):
    model = _network()
    mean, lengths = BucketMean(collective, compression), []
    model.register_comm_hook((mean, lengths), _counted_mean)
    for step in range(STEPS):
        model.zero_grad()
        _backward(model, step)
    kept = [parameter.grad.tolist() for parameter in model.parameters()]
    assert mean.num_buckets == len(lengths)
    return kept, lengths, mean.bytes_exchanged[0]


def failing():
    """Worker 1 fails between two buckets, of which worker 0 waits for the second."""
    join(30, "cpu")
    model = _network()
    model.register_comm_hook(BucketMean("ring", "none"), _mean)
    if dist.get_rank() == 1:
        model.module[0].weight.register_hook(_fail)
    _backward(model, 0)


def _mean(mean, bucket):
    return mean(bucket)


def _counted_mean(state, bucket):
    mean, lengths = state
    lengths.append(bucket.buffer().numel())
    return mean(bucket)


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
