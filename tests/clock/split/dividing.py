"""What each process of the laws of divided networks does; rank 0 compares with one process."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from paceline.clock.snapshot import fill
from paceline.clock.split.network_plan import plan_network
from paceline.clock.split.split_network import ShardGroup, split_network
from paceline.clock.split.split_worker import gather_state
from paceline.exchange.process_group import join
from paceline.timing.split_plan import all_reduced
from tests.clock.split.networks import CLASSES, IMAGE, as_data_parallel, build
from tests.exchange.socket_bytes import socket_bytes

BATCH = 16


def batches(steps):
    drawn = torch.Generator().manual_seed(2)
    images = torch.randn(steps, BATCH, *IMAGE, generator=drawn, dtype=torch.float64)
    return images, torch.randint(0, CLASSES, (steps, BATCH), generator=drawn)


def train(network, steps, after_backward):
    """Return the logits of all steps of SGD with momentum and weight decay."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01)
    logits = []
    for images, labels in zip(*batches(steps), strict=True):
        optimizer.zero_grad()
        logits.append(network(images))
        cross_entropy(logits[-1], labels).backward()
        after_backward()
        optimizer.step()
    return torch.stack(logits).detach()


def on_one_process(name, steps, plan):
    by_images = [name for name, way in plan.ways.items() if way == "by_images"]
    network = as_data_parallel(build(name), by_images, plan.step.shards)
    torch.manual_seed(3)
    logits = train(network, steps, lambda: None)
    return logits, network.state_dict()


def divided(name, steps, plan, group):
    network = split_network(build(name), plan, group)
    torch.manual_seed(3 + group.shard)  # one generator in the group must be enough
    group.share_random_state(torch.device("cpu"))
    summed = []  # bytes in each step
    logits = train(network, steps, lambda: summed.append(sum_gradients(network, plan, group)))
    whole = gather_state(network, plan, group)
    return logits, whole, network, sum(summed)


def sum_gradients(network, plan, group):
    """Sum the gradients of the parameters by images over the group; return the bytes sent."""
    weights = [weight for name, weight in network.named_parameters() if name in plan.summed]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if not gradients:
        return 0
    total = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(total, group=group.group)
    fill(gradients, total)
    return all_reduced(total.nbytes, group.shards).num_bytes


def largest(one, other):
    """Return the largest difference of two states; all of one's names are the other's."""
    assert list(one) == list(other)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def smallest_step(state, initial):
    """Return the largest change of that parameter whose values have changed the least."""
    weights = initial.named_parameters()
    return min(float((state[name] - weight).abs().max()) for name, weight in weights)


def law(name, split, steps, group):
    """Return differences to one process, and bytes; differences of weights in shard 0 alone."""
    plan = plan_network(build(name), split, group.shards, BATCH, IMAGE)
    logits, whole, network, gradient_bytes = divided(name, steps, plan, group)
    planned = sum(each.num_bytes for each in plan.step.activations)
    seen = {
        "bytes": (group.num_bytes, gradient_bytes),
        "planned": (steps * planned, steps * (plan.step.process_bytes - planned)),
        "digest": [float(logits.sum()), float(logits.square().sum())],
    }
    if whole is not None:
        expected, state = on_one_process(name, steps, plan)
        seen["moved"] = smallest_step(state, build(name))
        seen["logits"] = float((logits - expected).abs().max())
        seen["weights"] = largest(whole, state)
    seen["loaded"] = loads(network, name, plan, group)
    return seen


def loads(network, name, plan, group):
    """Put the initial weights back: are the slices those of a network that was never trained?"""
    network.load_state_dict(plan.slices_of(build(name).state_dict(), group.shard))
    fresh = split_network(build(name), plan, group).state_dict()
    return largest(network.state_dict(), fresh) == 0


def laws(cases, length):
    """Return what this process has seen of each case, and of exchanges of `length` numbers."""
    join(60, "cpu")
    pair = dist.new_group([0, 1])
    rank = dist.get_rank()
    seen = {"wire": wire(length), "with_first": with_first(length)}
    for name, split, shards, steps in cases:
        if rank < shards:
            group = ShardGroup(None if shards == 4 else pair, rank, shards)
            seen[f"{name} {split} {shards}"] = law(name, split, steps, group)
    dist.barrier()  # none leaves while others meet
    return seen


def wire(length):
    """Return the bytes (counted, of the kernel) that each kind of exchange sends and receives."""
    group = ShardGroup(None, dist.get_rank(), dist.get_world_size())
    own = torch.ones(group.shards, length // group.shards, dtype=torch.float64)
    kinds = {"gather": group.gather, "swap": group.swap, "sum": group.sum}
    return {kind: _moved(group, exchange, own) for kind, exchange in kinds.items()}


def with_first(length):
    """Return what the kernel counts (sent, received) where all send to the first, and it to all."""
    group = ShardGroup(None, dist.get_rank(), dist.get_world_size())
    own = torch.ones(length, dtype=torch.float64)
    parts = [own] * group.shards if group.shard == 0 else None
    exchanges = (lambda: group.collect(own), lambda: dist.scatter(own.clone(), parts))
    return [_by_kernel(each) for each in exchanges]


def _moved(group, exchange, own):
    counted = group.num_bytes
    sent, received = _by_kernel(lambda: exchange(own))
    return group.num_bytes - counted, sent, received


def _by_kernel(exchange):
    dist.barrier()
    before = socket_bytes()
    exchange()
    dist.barrier()
    counts = tuple(after - now for after, now in zip(socket_bytes(), before, strict=True))
    dist.barrier()  # nobody's connections close before all have counted theirs
    return counts
