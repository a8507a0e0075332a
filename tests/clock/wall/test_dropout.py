"""Every worker drops units of its own, whatever the scheme."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.clock.references import Rate
from tests.tiny import NUM_TRAIN, batches_of, run_tiny, tiny_point

WORKERS, BATCH = 2, 4


def dropping_network():
    linear = [nn.Linear(16, 8), nn.Linear(8, 3)]
    return nn.Sequential(nn.Flatten(), linear[0], nn.Tanh(), nn.Dropout(0.5), linear[1])


def with_own_masks(config):
    """A bare loop in which each worker's random numbers go on from a state of its own."""
    seed, options = config["seed"], dict(config["model"]["optimizer"])
    torch.manual_seed(seed)
    network = dropping_network().double()
    sgd = torch.optim.SGD(
        network.parameters(), **{name: each for name, each in options.items() if name[0] != "_"}
    )
    states = []
    for worker in range(WORKERS):
        torch.manual_seed(seed * 10_007 + worker)
        states.append(torch.get_rng_state())
    shares = [batches_of(config, worker) for worker in range(WORKERS)]
    size = WORKERS * BATCH
    rate = Rate(config, size)
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // size):
        sgd.zero_grad()
        for worker, share in enumerate(shares):
            torch.set_rng_state(states[worker])
            images, labels = share[turn]
            (nn.functional.cross_entropy(network(images), labels) / WORKERS).backward()
            states[worker] = torch.get_rng_state()
        sgd.param_groups[0]["lr"] = options["lr"] * rate.factor(turn * size)
        sgd.step()
    return network.state_dict()


@pytest.mark.parametrize(
    ("scheme", "shards"),
    [("sync_allreduce", 1), ("sync_allreduce", 2), ("sync_parameter_server", 1)],
)
def test_each_worker_drops_units_of_its_own(scheme, shards, tmp_path):
    """Lightning's DDP sets random numbers back, to the same in all processes."""
    own = {"_target_": "tests.clock.wall.test_dropout.dropping_network"}
    more = {"model__network": own, "model__shards": shards, "model__split": "all"}
    config = tiny_point(scheme, WORKERS, BATCH, **more)
    _, weights = run_tiny(config, tmp_path)
    assert_close(weights, with_own_masks(config), rtol=1e-12, atol=1e-14)
