import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.flat_optimizer import flat_optimizer, group_segments
from paceline.clock.training_strategy import is_elementwise

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
    assert is_elementwise(reference)
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


class SumOfSquares(torch.optim.Optimizer):
    """Divides a tensor's gradient by its norm, as LARS and LAMB do."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                weight -= group["lr"] * weight.grad / weight.grad.norm()


def test_what_mixes_weights_is_found_out():
    weights = [nn.Parameter(torch.zeros(2, 2))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixing = [
            SumOfSquares(weights, 0.1),
            *(getattr(torch.optim, each)(weights) for each in ("Adafactor", "Muon", "LBFGS")),
        ]
    assert [is_elementwise(each) for each in mixing] == [False] * 4


def test_weights_that_are_not_trained_are_left_out():
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3), requires_grad=False)]
    (segment,) = group_segments(torch.optim.AdamW(weights))
    assert segment["num_weights"] == 2
