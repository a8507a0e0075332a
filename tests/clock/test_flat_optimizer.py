import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.flat_optimizer import ELEMENTWISE, flat_optimizer, group_segments
from paceline.clock.flat_weights import held_weights
from paceline.clock.schedules import LiveOptions
from paceline.errors import SettingError
from paceline.model.layerwise import LARS
from paceline.scheme.independent import Independent
from paceline.scheme.sync_parameter_server import SyncParameterServer

OPTIONS = {
    "SGD": [
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01},
        {"lr": 0.2, "momentum": 0.0, "weight_decay": 0.1, "maximize": True},
        {"lr": torch.tensor(0.05), "momentum": 0.8, "nesterov": True},
    ],
    "Adam": [{"lr": 0.1, "betas": (0.8, 0.9)}, {"weight_decay": 0.1}, {"amsgrad": True}],
    "AdamW": [{"lr": 0.1, "weight_decay": 0.1}, {"fused": True}, {"eps": 0.1, "maximize": True}],
    "RMSprop": [{"lr": 0.1}, {"centered": True, "momentum": 0.5}, {"weight_decay": 0.1}],
    "Adagrad": [{"lr": 0.1}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"eps": 0.1}],
    "NAdam": [{}, {"lr": 0.1}, {}],
    "RAdam": [{}, {"lr": 0.1}, {}],
    "Adamax": [{}, {"lr": 0.1}, {}],
    "Adadelta": [{}, {"rho": 0.5}, {}],
    "ASGD": [{}, {"lambd": 0.1}, {}],
    "Rprop": [{}, {"etas": (0.4, 1.1)}, {}],
}


class CountsInGroup(LARS):
    """Keeps the number of its steps with the options of a group, as LAMB of timm does."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", torch.zeros(())) + 1
            group["lr"] = group["lr"] * float(group["steps"])
        return super().step(closure)


class OneNorm(torch.optim.SGD):
    """Divides all gradients by their common norm."""

    def step(self, closure=None):
        gradients = [weight.grad for group in self.param_groups for weight in group["params"]]
        norm = torch.cat([each.flatten() for each in gradients]).norm()
        for each in gradients:
            each /= norm
        return super().step(closure)


def test_servers_hold_whole_tensors_for_all_but_elementwise_optimizers_of_torch():
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    lars, sgd = LARS(network.parameters(), 0.1), torch.optim.SGD(network.parameters(), 0.1)

    def held(optimizer, **scheme):
        return held_weights(optimizer, SyncParameterServer(**scheme), [], LiveOptions(optimizer))[1]

    for optimizer, servers in ((lars, 1), (sgd, 2)):
        held(optimizer, servers=servers)
    with pytest.raises(SettingError, match=r"^scheme\.sharding: LARS .* round_robin or one"):
        held(lars, servers=2)
    vectors = held(lars, servers=2, sharding="round_robin")
    parts = [vectors.of_server(server, 2, plain=False).segments for server in range(2)]
    assert [[each["shape"] for each in part] for part in parts] == [[[2, 3], [2, 2]], [[2], [2]]]


def check(reference, optimizer_of, ours):
    """Steps of both from the weights `ours`, at changing rates; a fork leaves the other alone."""
    weights = [weight for group in reference.param_groups for weight in group["params"]]
    rates = [float(group["lr"]) for group in reference.param_groups]
    optimizer, generator = optimizer_of(ours), torch.Generator().manual_seed(1)
    for turn in range(6):
        if turn == 3:
            left, ours = ours, ours.clone()
            kept, optimizer = left.clone(), optimizer.fork(ours)
        gradient = torch.randn(len(ours), generator=generator, dtype=torch.float64)
        pieces = gradient.split([weight.numel() for weight in weights])
        for weight, piece in zip(weights, pieces, strict=True):
            weight.grad = piece.view_as(weight).clone()
        for group, rate in zip(reference.param_groups, rates, strict=True):
            group["lr"] = rate / (turn + 1)
        reference.step()
        optimizer.step(gradient.clone(), 1 / (turn + 1))
        theirs = torch.cat([weight.detach().flatten() for weight in weights])
        assert_close(ours, theirs, rtol=1e-13, atol=1e-15)
    assert torch.equal(left, kept)


def drawn(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("num_groups", [1, 2, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_torchs_own_also_after_a_fork(name, num_groups):
    """Weights that are not trained are left out."""
    first = drawn(3, 4, 5)[:num_groups]
    options = OPTIONS[name][:num_groups]
    groups = [{"params": [nn.Parameter(w)], **o} for w, o in zip(first, options, strict=True)]
    reference = getattr(torch.optim, name)(groups)
    assert type(reference) in ELEMENTWISE
    segments = group_segments(reference)
    check(reference, lambda ours: flat_optimizer(ours, segments), torch.cat(first))
    kept, left_out = torch.zeros(2), torch.zeros(3)
    more = [nn.Parameter(kept), nn.Parameter(left_out, requires_grad=False)]
    reference.add_param_group({"params": more})
    found = [each["num_weights"] for each in group_segments(reference)]
    assert found == [*(3, 4, 5)[:num_groups], 2]


@pytest.mark.parametrize("kind", [LARS, CountsInGroup, OneNorm, torch.optim.Adafactor])
def test_whole_tensors_in_one_vector_are_the_optimizers_own_also_after_a_fork(kind):
    """In two groups, of whose second no tensor is next to another."""
    first = drawn((2, 3), (4,), (3, 1, 2))
    theirs, ours = ([nn.Parameter(each.clone()) for each in first] for _ in range(2))
    reference, own = (
        kind([{"params": side[:1]}, {"params": side[1:], "lr": 0.3}], lr=0.1)
        for side in (theirs, ours)
    )
    _, vectors = held_weights(own, Independent(), [], LiveOptions(own))
    held = torch.cat([each.flatten() for each in first])
    check(reference, lambda ours: flat_optimizer(ours, vectors.segments), held)
