"""The mean duration of a published accelerator's step."""

import pytest

from paceline.errors import SettingError
from paceline.timing.step_rate import StepRate

RATE = StepRate(fixed=0.5, per_image=0.25, batch_sizes=[4, 16], rows=["some row"])


def test_a_step_is_a_fixed_part_and_one_for_each_image():
    assert RATE.seconds(4) == 1.5
    assert RATE.seconds(1) == 0.75


@pytest.mark.parametrize(("size", "covered"), [(3, False), (4, True), (16, True), (17, False)])
def test_what_the_rate_was_fitted_to(size, covered):
    assert RATE.covers(size) is covered


@pytest.mark.parametrize(("setting", "value"), [("fixed", -1), ("per_image", 0), ("rows", "one")])
def test_bad_settings_are_named(setting, value):
    settings = {"fixed": 0, "per_image": 1, "batch_sizes": [1, 1], "rows": []}
    with pytest.raises(SettingError, match=rf"cluster\.step_rates\.{setting}"):
        StepRate(**{**settings, setting: value})
