from dataclasses import replace

import pytest

from paceline.errors import SettingError
from paceline.model.learning_rate import LearningRate, corrected_momentum

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


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("linear", 4), ("square_root", 2)])
def test_rule_scales_by_the_images_behind_one_update(rule, factor):
    rate = replace(CONSTANT, rule=rule)
    assert [rate.factor(0), rate.factor(1000)] == [factor, factor]


@pytest.mark.parametrize(("workers", "factor"), [(1, 1), (2, 1), (3, 1 / 2), (16, 1 / 15)])
def test_rule_divides_by_the_updates_that_others_make_meanwhile(workers, factor):
    rate = replace(CONSTANT, rule="inverse_staleness", images_meanwhile=128 * (workers - 1))
    assert rate.factor(0) == factor


def test_updates_that_all_wait_for_are_not_stale():
    rate = replace(CONSTANT, rule="inverse_staleness", images_meanwhile=128 * 15)
    assert [rate.factor(0), rate.factor(0, 128 * 16)] == [1 / 15, 1]


def test_a_rule_that_lowers_the_rate_needs_no_warmup():
    rate = replace(CONSTANT, rule="linear", update_batch_size=8, warmup_samples=300)
    assert rate.factor(0) == 0.25


def test_warmup_rises_linearly_from_the_unscaled_rate_to_the_scaled_one():
    rate = replace(CONSTANT, rule="linear", warmup_samples=300)
    assert [rate.factor(samples) for samples in (0, 100, 200, 300, 400)] == [1, 2, 3, 4, 4]


def test_warmup_without_a_rule_changes_nothing():
    assert replace(CONSTANT, warmup_samples=300).factor(100) == 1


@pytest.mark.parametrize(
    ("schedule", "power", "factors"),
    [
        ("cosine", 1, [1, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2, 0, 0]),
        ("steps", 1, [1, 1, 0.1, 0.01, 0.01, 0.01]),
        ("poly", 0.5, [1, 0.75**0.5, 0.5**0.5, 0.5, 0, 0]),
        ("poly", 2, [1, 0.75**2, 0.25, 0.25**2, 0, 0]),
    ],
)
def test_a_schedule_falls_over_the_budget_and_stays_at_its_end(schedule, power, factors):
    rate = replace(CONSTANT, schedule=schedule, poly_power=power)
    found = [rate.factor(samples) for samples in (0, 250, 500, 750, 1000, 1200)]
    assert found == pytest.approx(factors, rel=1e-15, abs=1e-15)


def test_steps_fall_at_their_milestones_and_not_before():
    rate = replace(CONSTANT, schedule="steps")
    assert [rate.factor(499), rate.factor(749)] == pytest.approx([1, 0.1], rel=1e-15)


def test_rule_and_schedule_multiply():
    rate = replace(CONSTANT, rule="linear", warmup_samples=300, schedule="steps")
    assert rate.factor(600) == pytest.approx(4 * 0.1, rel=1e-15)


def test_an_empty_budget_is_named():
    with pytest.raises(SettingError, match=r"^training\.epochs: "):
        replace(CONSTANT, total_samples=0)


@pytest.mark.parametrize(
    ("momentum", "staleness", "left"),
    [(0.9, 0, 0.9), (0.9, 1, 8 / 9), (0.9, 8, 0.5), (0.9, 9, 0), (0.9, 63, 0), (0, 3, 0)],
)
def test_momentum_is_lowered_by_as_much_as_stale_gradients_stand_for(momentum, staleness, left):
    assert corrected_momentum(momentum, staleness) == pytest.approx(left, abs=1e-12)
