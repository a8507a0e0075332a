"""What a profile assumes, at its slowest."""

import pytest

from paceline.errors import SettingError
from paceline.prediction.predict import at_slowest
from paceline.record.point import Point
from paceline.study.compose import composed
from tests.tiny import CONF

ROOT = CONF.parent


def slowest(assumed, *settings):
    config = composed(["cluster=virtual", f"+cluster.assumed={{{assumed}}}", *settings], ROOT)
    return at_slowest(Point.of(config)).values["cluster"]


@pytest.mark.parametrize(
    ("chosen", "found"), [("3e+8", 2e8), ("8e+9", 4e9), ("8GB/s", 4e9), ("null", None)]
)
def test_a_bandwidth_has_its_least_value_or_as_much_less(chosen, found):
    """The least is half of the greatest."""
    cluster = slowest("link.bandwidth: [2e+8, 4e+8]", f"cluster.link.bandwidth={chosen}")
    assert cluster["link"]["bandwidth"] == found


@pytest.mark.parametrize(("chosen", "found"), [(0.5, 2.0), (3.0, 3.0), (0.05, 0.05)])
def test_a_time_has_its_greatest_value_unless_another_was_chosen(chosen, found):
    cluster = slowest("link.latency: [0.1, 2]", f"cluster.link.latency={chosen}")
    assert (cluster["link"]["latency"], cluster["step_seconds"]) == (found, 1)


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
        slowest(assumed)
    assert error.value.setting == "cluster.assumed"


@pytest.mark.parametrize(
    "name", ["minotauro", "titan", "four_titans", "minsky", "ec2_p2", "compute_engine_k80"]
)
def test_every_published_profile_has_what_it_assumes_within_its_range(name):
    cluster = composed([f"cluster={name}"], ROOT).values["cluster"]
    for setting, (low, high) in cluster["assumed"].items():
        value = cluster
        for part in setting.split("."):
            value = value[part]
        assert low <= value <= high, setting
