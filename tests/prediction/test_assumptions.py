"""Draws of what a profile assumes."""

import numpy as np
import pytest

from paceline.errors import SettingError
from paceline.prediction.predict import drawn_configs, interval
from paceline.study.compose import composed
from paceline.timing.workload import OwnNetwork
from tests.tiny import CONF

ROOT = CONF.parent


def drawn(assumed, draws=200):
    config = composed(["cluster=virtual", f"+cluster.assumed={{{assumed}}}"], ROOT)
    return [each.values["cluster"] for each in drawn_configs(config, draws)]


def test_a_range_is_drawn_evenly_in_its_logarithm():
    values = np.array([each["step_seconds"] for each in drawn("step_seconds: [1, 100]")])
    assert 1 <= values.min() < 1.2
    assert 80 < values.max() <= 100
    assert np.median(values) == pytest.approx(10, rel=0.4)


def test_a_range_from_nothing_is_drawn_evenly():
    values = np.array([each["step_jitter"] for each in drawn("step_jitter: [0, 0.2]")])
    assert np.median(values) == pytest.approx(0.1, rel=0.2)
    assert 0 <= values.min() < 0.01


def test_settings_inside_of_others_are_drawn():
    found = drawn("link.latency: [1, 2]", draws=5)
    assert len({each["link"]["latency"] for each in found}) == 5
    assert {each["step_seconds"] for each in found} == {1}


def test_a_step_that_was_timed_once_keeps_its_length_there():
    """GoogLeNet at 32 images; a part of up to a half does not grow with the batch."""
    config = composed(["cluster=titan", "workload=googlenet", "batch_size=32"], ROOT)
    rates = [
        each.values["cluster"]["step_rates"]["googlenet"] for each in drawn_configs(config, 50)
    ]
    assert all(
        rate["fixed"] + 32 * rate["per_image"] == pytest.approx(32 * 0.02213) for rate in rates
    )
    shares = np.array([rate["fixed"] / (32 * 0.02213) for rate in rates])
    assert 0 <= shares.min() < 0.05
    assert 0.45 < shares.max() <= 0.5


def test_a_step_that_was_timed_at_two_sizes_is_as_it_was():
    config = composed(["cluster=minsky", "workload=resnet50"], ROOT)
    rates = {
        each.values["cluster"]["step_rates"]["resnet50"]["fixed"]
        for each in drawn_configs(config, 5)
    }
    assert rates == {0.036}


def test_an_interval_has_nine_tenths_of_the_draws():
    """Of a step between 0.5 s and 2 s, evenly in its logarithm."""
    settings = ["cluster=virtual", "batch_size=32", "+cluster.assumed.step_seconds=[0.5,2]"]
    low, high = interval(composed(settings, ROOT), OwnNetwork(), steps=3, draws=200)
    assert low == pytest.approx(32 / 2 * 4**0.05, rel=0.05)
    assert high == pytest.approx(32 / 2 * 4**0.95, rel=0.05)


@pytest.mark.parametrize(
    ("assumed", "message"),
    [
        ("link.color: [1, 2]", r"there is no cluster\.link\.color"),
        ("step_seconds.x: [1, 2]", r"there is no cluster\.step_seconds\.x"),
        ("step_jitter: [0.2, 0.1]", r"step_jitter: 0\.2 is above 0\.1"),
    ],
)
def test_an_assumption_that_cannot_be_is_named(assumed, message):
    with pytest.raises(SettingError, match=message) as error:
        drawn(assumed)
    assert error.value.setting == "cluster.assumed"


@pytest.mark.parametrize(
    "name", ["minotauro", "titan", "four_titans", "minsky", "ec2_p2", "compute_engine_k80"]
)
def test_every_published_profile_can_be_drawn(name):
    """What is assumed contains what the profile says."""
    cluster = composed([f"cluster={name}"], ROOT).values["cluster"]
    for setting, (low, high) in cluster["assumed"].items():
        value = cluster
        for part in setting.split("."):
            value = value[part]
        assert low <= value <= high, setting
