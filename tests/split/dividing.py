"""What each process of the laws of divided networks does; rank 0 compares with one process."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from paceline.exchange.process_group import join
from paceline.exchange.socket_bytes import socket_bytes
from paceline.split.shard_group import ShardGroup
from paceline.split.split_network import split_network
from paceline.split.split_plan import plan_split
from paceline.split.whole_weights import gather_state, load_state, sum_gradients
from tests.split.networks import CLASSES, IMAGE, as_data_parallel, build

BATCH = 8
STEPS = 10


def batches():
    drawn = torch.Generator().manual_seed(2)
    images = torch.randn(STEPS, BATCH, *IMAGE, generator=drawn, dtype=torch.float64)
    return images, torch.randint(0, CLASSES, (STEPS, BATCH), generator=drawn)


def train(network, after_backward):
    """Return the logits of all steps of SGD with momentum and weight decay."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
    logits = []
    for images, labels in zip(*batches(), strict=True):
        optimizer.zero_grad()
        logits.append(network(images))
        cross_entropy(logits[-1], labels).backward()
        after_backward()
        optimizer.step()
    return torch.stack(logits).detach()


def on_one_process(name, plan):
    images = [layer.name for layer in plan.layers if layer.way == "by_images"]
    network = as_data_parallel(build(name), images, plan.shards)
    torch.manual_seed(3)
    logits = train(network, lambda: None)
    return logits, network.state_dict()


def divided(name, plan, group):
    network = split_network(build(name), plan, group)
    torch.manual_seed(3 + group.shard)  # one generator in the group must be enough
    group.share_random_state(torch.device("cpu"))
    logits = train(network, lambda: sum_gradients(network, plan, group))
    whole = gather_state(network, plan, group)
    return logits, whole, network


def largest(one, other):
    """Return the largest difference of two states; all of one's names are the other's."""
    assert list(one) == list(other)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def law(name, split, group):
    """Return differences to one process, and bytes; differences of weights in shard 0 alone."""
    plan = plan_split(build(name), split, group.shards, BATCH, IMAGE)
    logits, whole, network = divided(name, plan, group)
    seen = {
        "activations": group.bytes_of_activations,
        "gradients": group.bytes_of_gradients,
        "planned": (STEPS * plan.activation_bytes, STEPS * plan.gradient_bytes),
        "digest": [float(logits.sum()), float(logits.square().sum())],
    }
    if whole is not None:
        expected, state = on_one_process(name, plan)
        seen["moved"] = largest(state, build(name).state_dict())
        seen["logits"] = float((logits - expected).abs().max())
        seen["weights"] = largest(whole, state)
    seen["loaded"] = loads(network, name, plan, group)
    return seen


def loads(network, name, plan, group):
    """Put the initial weights back: are the slices those of a network that was never trained?"""
    load_state(network, build(name).state_dict(), plan, group)
    fresh = split_network(build(name), plan, group).state_dict()
    return largest(network.state_dict(), fresh) == 0


def laws(cases):
    join(60, "cpu")
    pair = dist.new_group([0, 1])
    rank = dist.get_rank()
    seen = {}
    for name, split, shards in cases:
        if rank < shards:
            group = ShardGroup(None if shards == 4 else pair, rank, shards)
            seen[f"{name} {split} {shards}"] = law(name, split, group)
    dist.barrier()
    return seen
