import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.flat_optimizer import flat_optimizer, group_segments, unit_of
from paceline.clock.flat_weights import held_weights
from paceline.clock.schedules import LiveOptions
from paceline.errors import SettingError
from paceline.model.layerwise import LARS
from paceline.scheme.independent import Independent
from paceline.scheme.sync_parameter_server import SyncParameterServer

SIZES = (3, 4, 5)
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


@pytest.mark.parametrize("num_groups", [1, 2, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_torchs_own_also_after_a_fork(name, num_groups):
    """The rate changes; a fork goes on with the state and leaves the other."""
    sizes, options = SIZES[:num_groups], OPTIONS[name][:num_groups]
    generator = torch.Generator().manual_seed(0)
    weights, *gradients = torch.randn(7, sum(sizes), generator=generator, dtype=torch.float64)
    parts = [nn.Parameter(part.clone()) for part in weights.split(sizes)]
    groups = [{"params": [p], **each} for p, each in zip(parts, options, strict=True)]
    reference = getattr(torch.optim, name)(groups)
    segments = group_segments(reference)
    assert unit_of(reference) == "weight"
    rates = [float(group["lr"]) for group in reference.param_groups]
    ours = weights.clone()
    optimizer = flat_optimizer(ours, segments)
    for turn, gradient in enumerate(gradients):
        if turn == 3:
            left, ours = ours, ours.clone()
            kept, optimizer = left.clone(), optimizer.fork(ours)
        factor = 1 / (turn + 1)
        pieces = gradient.split(sizes)
        for group, piece, rate in zip(reference.param_groups, pieces, rates, strict=True):
            group["params"][0].grad = piece.clone()
            group["lr"] = rate * factor
        reference.step()
        optimizer.step(gradient, factor)
        assert_close(ours, torch.cat([*parts]).detach(), rtol=1e-13, atol=0)
    assert torch.equal(left, kept)


class CountsInGroup(LARS):
    """Keeps the number of its steps with the options of a group, as LAMB of timm does."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", torch.zeros(())) + 1
            group["lr"] = group["lr"] * float(group["steps"])
        return super().step(closure)


class OfTensorsIfDecayed(torch.optim.SGD):
    """Divides gradients by the norm of their tensor in groups with weight decay alone, as LARS of
    timm does.
    """

    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"] if group["weight_decay"] else ():
                weight.grad /= weight.grad.norm()
        return super().step(closure)


class OneNorm(torch.optim.SGD):
    """Divides all gradients by their common norm."""

    def step(self, closure=None):
        gradients = [weight.grad for group in self.param_groups for weight in group["params"]]
        norm = torch.cat([each.flatten() for each in gradients]).norm()
        for each in gradients:
            each /= norm
        return super().step(closure)


class Projecting(torch.optim.SGD):
    """Takes the part along a matrix out of gradients that are almost orthogonal to it, as AdamP
    does.
    """

    @torch.no_grad()
    def step(self, closure=None):
        for weight in (each for group in self.param_groups for each in group["params"]):
            along = (weight * weight.grad).sum() / weight.norm()
            if weight.ndim > 1 and along.abs() < 0.04 * weight.grad.norm():
                weight.grad -= along * weight / weight.norm()
        return super().step(closure)


def test_what_an_optimizer_computes_with_is_found_out():
    weights = [nn.Parameter(torch.zeros(2, 2))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [
            (torch.optim.AdamW(weights), "weight"),
            (torch.optim.Adafactor(weights), "tensor"),
            (LARS(weights, 0.1), "tensor"),
            (LARS(weights, 0.0), "tensor"),  # before a warm-up
            (Projecting(weights), "tensor"),
            (OneNorm(weights, 0.1), "network"),
            (torch.optim.Muon(weights), "none"),  # takes no vectors, such as biases
            (torch.optim.LBFGS(weights), "none"),
        ]
        made.append((OfTensorsIfDecayed([{"params": weights[:1]}]), "weight"))
        more = {"params": [nn.Parameter(torch.zeros(3))], "weight_decay": 0.1}
        made.append((OfTensorsIfDecayed([{"params": weights[:1]}, more]), "tensor"))
    assert [unit_of(each) for each, _ in made] == [unit for _, unit in made]


@pytest.mark.parametrize(
    "kind",
    [LARS, CountsInGroup, OneNorm, torch.optim.Adafactor],
)
def test_whole_tensors_in_one_vector_are_the_optimizers_own_also_after_a_fork(kind):
    """In two groups, of whose second no tensor is next to another."""
    shapes = [(2, 3), (4,), (3, 1, 2)]
    generator = torch.Generator().manual_seed(0)
    first = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    theirs, ours = ([nn.Parameter(each.clone()) for each in first] for _ in range(2))
    groups = [[{"params": side[:1]}, {"params": side[1:], "lr": 0.3}] for side in (theirs, ours)]
    reference = kind(groups[0], lr=0.1)
    rates = [group["lr"] for group in reference.param_groups]
    own = kind(groups[1], lr=0.1)
    _, vectors = held_weights(own, Independent(), [], LiveOptions(own))
    held = torch.cat([each.detach().flatten() for each in ours])
    optimizer = flat_optimizer(held, vectors.segments)
    for turn in range(4):
        if turn == 2:
            left, held = held, held.clone()
            kept, optimizer = left.clone(), optimizer.fork(held)
        gradient = torch.randn(len(held), generator=generator, dtype=torch.float64)
        sizes = [weight.numel() for weight in theirs]
        for weight, part in zip(theirs, gradient.split(sizes), strict=True):
            weight.grad = part.view_as(weight).clone()
        for group, rate in zip(reference.param_groups, rates, strict=True):
            group["lr"] = rate / (turn + 1)
        reference.step()
        optimizer.step(gradient.clone(), 1 / (turn + 1))
        assert_close(held, torch.cat([each.detach().flatten() for each in theirs]))
    assert torch.equal(left, kept)


def test_servers_that_would_hold_less_than_an_optimizer_needs_are_refused():
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    lars, one_norm = LARS(network.parameters(), 0.1), OneNorm(network.parameters(), 0.1)
    for optimizer, sharding, setting in [
        (lars, "bytes", "scheme.sharding"),
        (one_norm, "bytes", "scheme.servers"),
        (one_norm, "round_robin", "scheme.servers"),
    ]:
        for servers in (1, 2):
            scheme = SyncParameterServer(servers=servers, sharding=sharding)
            arguments = (optimizer, scheme, [], LiveOptions(optimizer))
            if servers == 1:
                held_weights(*arguments)
                continue
            with pytest.raises(SettingError) as refused:
                held_weights(*arguments)
            assert refused.value.setting == setting
    in_turn = SyncParameterServer(servers=2, sharding="round_robin")
    _, vectors = held_weights(lars, in_turn, [], LiveOptions(lars))
    parts = [vectors.of_server(server, 2, plain=False).segments for server in range(2)]
    assert [[each["shape"] for each in part] for part in parts] == [[[2, 3], [2, 2]], [[2], [2]]]


def test_weights_that_are_not_trained_are_left_out():
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3), requires_grad=False)]
    (segment,) = group_segments(torch.optim.AdamW(weights))
    assert segment["num_weights"] == 2
