"""Cores of one machine: durations of a step alone, and what many processes compute."""

import pytest

from paceline.errors import SettingError
from paceline.timing.shared_cores import SharedCores

CORES = SharedCores(step_seconds={8: 1.0, 32: 3.0}, speeds={1: 1, 2: 1.8, 4: 1.4}, ddp_seconds=0)


@pytest.mark.parametrize(("processes", "speed"), [(1, 1), (2, 1.8), (3, 1.6), (4, 1.4), (9, 1.4)])
def test_the_speed_of_many_is_linear_between_those_measured_and_stays(processes, speed):
    assert CORES.speed(processes) == pytest.approx(speed)


@pytest.mark.parametrize(("batch_size", "seconds"), [(8, 1), (20, 2), (64, 6)])
def test_a_step_alone_goes_by_its_batch(batch_size, seconds):
    assert CORES.mean_step_seconds(batch_size) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"speeds": {2: 1.8}}, "speeds"),
        ({"speeds": {1: 2.0}}, "speeds"),
        ({"speeds": {1: 1, 2: 0.0}}, "speeds"),
        ({"step_seconds": {}}, "step_seconds"),
        ({"ddp_seconds": -1.0}, "ddp_seconds"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(changes, setting):
    right = {"step_seconds": {8: 1.0}, "speeds": {1: 1}, "ddp_seconds": 0}
    with pytest.raises(SettingError) as refused:
        SharedCores(**{**right, **changes})
    assert refused.value.setting.startswith(f"cluster.shared_cores.{setting}")
