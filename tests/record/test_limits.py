"""Values that would run, fail late or mean nothing are one line that names the setting."""

import pytest

from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.run.run_point import run_point
from paceline.study.compose import composed
from tests.tiny import REPOSITORY

MEANINGLESS = [
    ("study=null", "study"),
    ("study=5", "study"),
    (f"study={'a' * 300}", "study"),
    ("question={a:1}", "question"),
    ("model.optimizer=null", "model.optimizer"),
    ("cluster.threads_per_worker=1000000", "cluster.threads_per_worker"),
    ("cluster.slow_workers=99", "cluster.slow_workers"),
    ("measurement.mlflow.tracking_uri=''", "measurement.mlflow.tracking_uri"),
    ("scheme=null", "scheme"),
    ("scheme=5", "scheme"),
    ("data=null", "data"),
    ("cluster=", "cluster"),
    ("names.scheme=other", "names.scheme"),
    ("grids=5", "grids"),
]


@pytest.mark.parametrize(("override", "setting"), MEANINGLESS)
def test_what_means_nothing_is_refused_before_anything_starts(override, setting):
    with pytest.raises(SettingError) as caught:
        point(["scheme=async_parameter_server", override])
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "setting", "reason"),
    [
        ("data._target_=5", "data._target_", "a class is needed"),
        ("model._target_=nope", "model._target_", "a class is needed"),
        ("model._target_=nope.Net", "model._target_", "the package nope is not installed"),
        (
            "model.network._target_=nope.a.Net",
            "model.network._target_",
            "the package nope is not installed",
        ),
        ("model.optimizer._target_=nope.SGD", "model.optimizer._target_", "the package nope"),
    ],
)
def test_a_class_that_is_not_there_is_named_before_a_process_starts(override, setting, reason):
    built = point([override, "cluster.accelerator=cpu"])
    with pytest.raises(SettingError, match=f"^{setting}: {reason}"):
        run_point(built)


@pytest.mark.parametrize(
    "store", ["http://me:secret@host:5000", "postgresql://me:secret@host/mlflow"]
)
def test_a_password_is_refused_and_not_repeated(store):
    with pytest.raises(SettingError, match=r"^measurement.mlflow.tracking_uri: ") as caught:
        point([f"measurement.mlflow.tracking_uri={store}"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["seed=4294967295", "training.momentum=0", "workers=40"],
        ["cluster.slow_workers=2", "workers=2", "training.warmup_epochs=5"],
        ["study=my study-2", "measurement.mlflow.tracking_uri=null", "question=null"],
        ["data=cifar10", "+data/augmentation=crop_and_flip"],
    ],
)
def test_what_means_something_is_not(overrides):
    point(overrides)


@pytest.mark.parametrize(
    ("override", "setting"),
    [("workers=100000", "workers"), ("scheme.servers=100000", "scheme.servers")],
)
def test_processes_that_do_not_fit_into_memory_are_refused(override, setting):
    asked = ["scheme=async_parameter_server", "cluster.accelerator=cpu", override]
    with pytest.raises(SettingError, match=r"processes do not fit into .*memory") as caught:
        point(asked)
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


def test_a_modelled_cluster_needs_one_process():
    point(["cluster=virtual", "workers=100000"])


def point(overrides):
    return Point.of(composed(overrides, REPOSITORY))
