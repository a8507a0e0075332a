"""The learning rate by its rule and schedule, corrected momentum, and LARS."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.errors import SettingError
from paceline.model.layerwise import LARS
from paceline.model.learning_rate import LearningRate, corrected_momentum
from tests.tiny import point_of, tiny_point

CONSTANT = LearningRate(
    rule="none",
    update_batch_size=128,
    reference_batch_size=32,
    warmup_samples=0,
    schedule="constant",
    total_samples=1000,
    milestones=(0.5, 0.75),
    gamma=0.1,
    poly_power=0.5,
)


LATE = {"rule": "inverse_staleness", "images_meanwhile": 128 * 15}
LINEAR = {"rule": "linear", "warmup_samples": 300}


@pytest.mark.parametrize(
    ("changes", "factors"),
    [
        # a rule scales by the images behind one update
        ({"rule": "none"}, {0: 1, 1000: 1}),
        ({"rule": "linear"}, {0: 4, 1000: 4}),
        ({"rule": "square_root"}, {0: 2, 1000: 2}),
        # or divides by the updates that others make meanwhile
        *(
            (LATE | {"images_meanwhile": 128 * (workers - 1)}, {0: factor})
            for workers, factor in ((1, 1), (2, 1), (3, 1 / 2), (16, 1 / 15))
        ),
        # a warm-up rises from the unscaled rate to the scaled one, unless that is lower or the same
        (LINEAR, {0: 1, 100: 2, 200: 3, 300: 4, 400: 4}),
        (LINEAR | {"update_batch_size": 8}, {0: 0.25}),
        ({"warmup_samples": 300}, {100: 1}),
        # schedules fall over the budget, and stay at its end
        *(
            (
                {"schedule": schedule, "poly_power": power},
                dict(zip((0, 250, 500, 750, 1000, 1200), factors, strict=True)),
            )
            for schedule, power, factors in (
                ("cosine", 1, [1, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2, 0, 0]),
                ("steps", 1, [1, 1, 0.1, 0.01, 0.01, 0.01]),
                ("poly", 0.5, [1, 0.75**0.5, 0.5**0.5, 0.5, 0, 0]),
                ("poly", 2, [1, 0.75**2, 0.25, 0.25**2, 0, 0]),
            )
        ),
        ({"schedule": "steps"}, {499: 1, 749: 0.1}),  # at their milestones and not before
        (LINEAR | {"schedule": "steps"}, {600: 4 * 0.1}),
    ],
)
def test_the_rate_has_the_factors_of_its_rule_and_schedule(changes, factors):
    rate = replace(CONSTANT, **changes)
    found = {samples: rate.factor(samples) for samples in factors}
    rounding = 1e-15 if "schedule" in changes else 0
    assert found == pytest.approx(factors, rel=rounding, abs=rounding)


def test_updates_that_all_wait_for_are_not_stale():
    assert replace(CONSTANT, **LATE).factor(0, 128 * 16) == 1


def test_an_empty_budget_is_named():
    with pytest.raises(SettingError, match=r"^training\.epochs: "):
        replace(CONSTANT, total_samples=0)


@pytest.mark.parametrize(
    ("momentum", "staleness", "left"),
    [(0.9, 0, 0.9), (0.9, 1, 8 / 9), (0.9, 8, 0.5), (0.9, 9, 0), (0.9, 63, 0), (0, 3, 0)],
)
def test_momentum_is_lowered_by_as_much_as_stale_gradients_stand_for(momentum, staleness, left):
    assert corrected_momentum(momentum, staleness) == pytest.approx(left, abs=1e-12)


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
