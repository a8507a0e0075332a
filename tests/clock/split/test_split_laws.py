"""A network divided over processes trains as the whole network on one process, in float64."""

import pytest
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
from tests.launching import launch

pytestmark = pytest.mark.slow
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


def law(name, split, steps, group):
    """Compare with one process; return bytes, and in shard 0 the least step of any weights."""
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
        begun = build(name).named_parameters()
        seen["moved"] = min(float((state[each] - weight).abs().max()) for each, weight in begun)
        torch.testing.assert_close((logits, whole), (expected, state), rtol=0, atol=1e-12)
    # the initial weights go back into slices that are those of a network that was never trained
    network.load_state_dict(plan.slices_of(build(name).state_dict(), group.shard))
    fresh = split_network(build(name), plan, group).state_dict()
    torch.testing.assert_close(network.state_dict(), fresh, rtol=0, atol=0)
    return seen


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


CASES = [
    *(
        (name, split, shards, 10)
        for name in ("alexnet_like", "nin_like", "mixed", "narrow_resnet")
        for split in ("all", "fully_connected", "auto")
        for shards in (4, 2)
        if shards == 4 or name != "narrow_resnet" or split == "auto"
    ),
    ("resnet18", "auto", 4, 2),
]
LENGTH = 2**18


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of four processes has seen; in cases of two shards the others wait."""
    folder = tmp_path_factory.mktemp("divided")
    target = f"{__name__}:laws"
    return launch(target, (CASES, LENGTH), workers=4, servers=0, log_folder=folder)


@pytest.mark.parametrize("kind", ["gather", "swap", "sum"])
def test_the_kernel_counts_the_bytes_that_the_group_counts(kind, processes):
    for process in processes:
        counted, sent, received = process["wire"][kind]
        assert (sent, received) == pytest.approx((counted, counted), rel=0.01)


def test_the_first_process_exchanges_with_each_other_and_these_with_no_other(processes):
    """As SplitWorker counts gradients that are gathered, and weights that are handed out."""
    num_bytes = 8 * LENGTH
    for shard, process in enumerate(processes):
        gathered, handed_out = process["with_first"]
        more, less = (3 * num_bytes, 0) if shard == 0 else (0, num_bytes)
        close = {"rel": 0.01, "abs": 0.01 * num_bytes}
        assert gathered == pytest.approx((less, more), **close)
        assert handed_out == pytest.approx((more, less), **close)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case[:3])))
def test_a_divided_network_trains_as_one_process_does(case, processes):
    """With the bytes of its plan, and the same logits in all processes."""
    name, split, shards, _ = case
    seen = [process[f"{name} {split} {shards}"] for process in processes[:shards]]
    assert seen[0]["moved"] > 1e-6  # each of the weights
    for shard in seen:
        assert shard["digest"] == seen[0]["digest"]
        assert shard["bytes"] == shard["planned"]
