"""A modelled cluster whose processes share the cores of one machine."""

import pytest

from paceline.errors import SettingError
from paceline.prediction.predict import predict
from paceline.record.target import Target
from paceline.study.compose import composed
from tests.tiny import CONF

ROOT = CONF.parent
CORES = {"step_seconds": {8: 0.5, 32: 2.0}, "speeds": {1: 1, 2: 2, 4: 2}, "ddp_seconds": 0.0}


def settings_of(*overrides):
    values = composed(["cluster=virtual", "data=synthetic", *overrides], ROOT).values["cluster"]
    return {**values, "step_seconds": None, "shared_cores": CORES}


def cluster_of(**changes):
    return Target("cluster", {**settings_of(), **changes}).build()


def test_steps_are_those_measured_unless_accelerators_are_emulated():
    assert cluster_of().mean_step_seconds(32) == 2
    assert cluster_of().profile.shared_cores.speed(4) == 2
    emulated = cluster_of(step_seconds=0.1)
    assert emulated.mean_step_seconds(32) == 0.1
    assert emulated.profile.shared_cores is None


def test_four_workers_on_two_cores_are_as_fast_as_two():
    rates = [predict(config_of(workers), steps=10).run.images_per_second for workers in (1, 2, 4)]
    assert rates == pytest.approx([16, 32, 32])


def config_of(workers):
    scheme = ("scheme=independent", f"workers={workers}")
    return composed(["data=synthetic", *scheme], ROOT).replaced(cluster=settings_of())


@pytest.mark.parametrize(
    ("changes", "workload", "setting"),
    [
        ({"workers_per_node": 2}, "own", "cluster.shared_cores"),
        ({}, "resnet50", "workload"),
        ({"shared_cores": None}, "own", "cluster.step_seconds"),
        ({"shared_cores": {**CORES, "speeds": {2: 2}}}, "own", "cluster.shared_cores.speeds"),
    ],
)
def test_what_does_not_fit_is_refused(changes, workload, setting):
    config = composed(["data=synthetic", f"workload={workload}"], ROOT)
    with pytest.raises(SettingError) as refused:
        predict(config.replaced(cluster={**settings_of(), **changes}), steps=10)
    assert refused.value.setting == setting
