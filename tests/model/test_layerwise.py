import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.errors import SettingError
from paceline.model.layerwise import LARS
from tests.tiny import point_of, tiny_point

SHAPES = [(3, 4), (4,), (2, 3, 2), (1,)]
RATES = [0.5, 0.1, 0.2]
TENSORS = torch.Generator().manual_seed(0)


def drawn():
    return [torch.randn(shape, generator=TENSORS, dtype=torch.float64) for shape in SHAPES]


def by_hand(weight, gradient, state, rate):
    """Algorithm 1 of You 2017, with momentum 0.9, weight decay 0.1 and trust 0.01."""
    local = 1.0
    if weight.ndim > 1:
        norm, of = weight.square().sum().sqrt(), gradient.square().sum().sqrt()
        local = 0.01 * norm / (of + 0.1 * norm)
        gradient = gradient + 0.1 * weight
    state["v"] = 0.9 * state.get("v", 0) + rate * local * gradient
    return weight - state["v"]


def test_it_is_the_algorithm_of_the_paper():
    expected, states = drawn(), [{} for _ in SHAPES]
    weights = [nn.Parameter(each.clone()) for each in expected]
    optimizer = LARS(weights, lr=1.0, momentum=0.9, weight_decay=0.1, trust_coefficient=0.01)
    for rate in RATES:
        gradients = drawn()
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        before = zip(expected, gradients, states, strict=True)
        expected = [by_hand(*each, rate) for each in before]
        assert_close([each.detach() for each in weights], expected, rtol=1e-12, atol=1e-14)


def test_norms_of_zero_give_finite_steps():
    weights = [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.ones(2, 2))]
    optimizer = LARS(weights, lr=1.0)
    weights[0].grad, weights[1].grad = torch.ones(2, 2), torch.zeros(2, 2)
    optimizer.step()
    assert_close(weights[0].detach(), -torch.ones(2, 2), rtol=1e-5, atol=0)
    assert torch.equal(weights[1].detach(), torch.ones(2, 2))


def test_a_wrong_or_unknown_option_is_named_before_anything_runs():
    optimizer = {"_target_": "paceline.model.layerwise.LARS", "_partial_": True, "lr": 1.0}
    point_of(tiny_point("sync_allreduce", 2, 8, model__optimizer=optimizer))
    optimizer["nesterov"] = True
    with pytest.raises(SettingError) as error:
        point_of(tiny_point("sync_allreduce", 2, 8, model__optimizer=optimizer))
    assert error.value.setting == "model.optimizer.nesterov"
    with pytest.raises(SettingError) as error:
        LARS([nn.Parameter(torch.ones(2))], lr=0.1, trust_coefficient=0)
    assert error.value.setting == "model.optimizer.trust_coefficient"
