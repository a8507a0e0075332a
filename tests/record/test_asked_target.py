import math

import pytest

from paceline.errors import SettingError
from paceline.record.point_config import asked_target

VALUE = {"metric": "top1", "value": 0.85}


@pytest.mark.parametrize(
    "target",
    [
        *(None, VALUE, {"metric": "top5", "below_baseline": 0.03}),
        *({"metric": "loss", name: 1.5} for name in ("value", "below_baseline")),
    ],
)
def test_a_target_is_kept_as_asked(target):
    assert asked_target(target) == target


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (0.85, "target"),
        ({"metric": "top1"}, "target"),
        (VALUE | {"below_baseline": 0.1}, "target"),
        (VALUE | {"metric": "top2"}, "target.metric"),
        *[({"metric": "loss", "value": v}, "target.value") for v in (0, -1, math.inf)],
        *[(VALUE | {"value": v}, "target.value") for v in (85, 0, math.nan, math.inf, "x", True)],
        ({"metric": "top1", "below_baseline": -0.1}, "target.below_baseline"),
    ],
)
def test_another_target_is_refused_by_name(target, named):
    with pytest.raises(SettingError, match=f"^{named}: .* is needed"):
        asked_target(target)
