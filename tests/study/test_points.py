"""The points of a study are those that Hydra would run."""

import pytest

from paceline.errors import SettingError
from paceline.study.study_points import Study, study_points
from tests.made_records import make_record


def test_points_are_in_the_order_of_the_axes_and_know_their_records(root):
    points = study_points("made", root)
    assert [tuple(point.axes.items()) for point in points] == [
        (("scheme", scheme), ("seed", seed))
        for scheme in ("sync_allreduce", "async_parameter_server")
        for seed in (0, 1)
    ]
    assert points[0].overrides == ("scheme=sync_allreduce", "seed=0", "experiments=made")
    point = points[3]
    assert point.config.names["scheme"] == "async_parameter_server"
    assert point.config.measurement.mlflow.experiment == "paceline/made"
    assert "hydra" not in point.config.values
    assert (point.key, point.folder) == (point.config.key, root / "runs/made" / point.key)
    assert point.status is None
    make_record(point.folder, point.config, status="diverged")
    assert study_points("made", root)[3].status == "diverged"


def test_overrides_replace_axes_and_add_others(root):
    points = study_points("made", root, ["seed=7", "training.lr=0.1,0.2", "sweep.jobs=2"])
    assert [point.axes for point in points] == [
        {"scheme": scheme, "training.lr": lr}
        for scheme in ("sync_allreduce", "async_parameter_server")
        for lr in (0.1, 0.2)
    ]
    assert {point.config.seed for point in points} == {7}


def test_grids_follow_each_other_and_share_the_axes(root, studied):
    grids = [{"workers": "1,2"}, {"workers": 4, "batch_size": 8}]
    studied("made", {"grids": grids, "batch_size": 16}, seed="0,1")
    points = study_points("made", root)
    names = ("seed", "workers", "batch_size")
    assert [point.axes for point in points] == [
        dict(zip(names, values, strict=True))
        for values in [(0, 1, 16), (0, 2, 16), (1, 1, 16), (1, 2, 16), (0, 4, 8), (1, 4, 8)]
    ]
    assert [len(grid) for grid in Study("made", root).grids] == [4, 2]


def test_a_grid_of_grids_is_a_loop_around_them(root, studied):
    """What stands before `grids` is outermost, and what follows is innermost."""
    served = {"scheme": "async_parameter_server", "scheme.servers": "${divided:${workers},2}"}
    alone = {"scheme": "sync_allreduce"}
    grids = [{"batch_size": "8,4", "grids": [alone, served], "workers": "2,4", "seed": 3}]
    studied("made", {"grids": grids})
    points = study_points("made", root)
    names = ("batch_size", "scheme", "workers", "scheme.servers")
    assert [tuple(point.axes.get(name) for name in names) for point in points] == [
        (size, scheme, workers, workers // 2 if scheme.startswith("async") else None)
        for size in (8, 4)
        for scheme in ("sync_allreduce", "async_parameter_server")
        for workers in (2, 4)
    ]
    assert {point.config.values["grids"] for point in points} == {None}
    studied("made", {"grids": [{**grids[0], "workers": "2,3"}]})
    with pytest.raises(SettingError, match=r"scheme.servers: .*3 cannot be divided by 2"):
        study_points("made", root)


IMAGES = {"global_batch_size": 64}


@pytest.mark.parametrize(
    ("settings", "params", "setting", "message"),
    [
        ({}, {"scheme": "nonsense"}, "scheme", "there is no nonsense; there are: async_par"),
        ({}, {"training.speed": "1,2"}, "training.speed", "there is no such setting"),
        ({}, {"seed": "[0,1"}, "study", "no viable alternative"),
        ({}, {"seed": "0,1,0"}, "seed", "two points are the same: seed=0 and seed=0"),
        ({}, {"seed": "0,1", "sweep.jobs": "1,2"}, "sweep.jobs", "two points are the same"),
        *(({"grids": grids}, {}, "grids", "a list of") for grids in (3, [3], {"workers": 1})),
        (IMAGES | {"batch_size": 32}, {}, "global_batch_size", "64, but batch_size=32 is also"),
        (IMAGES, {"workers": "1,3"}, "global_batch_size", "cannot be divided .* workers=3"),
        ({"global_batch_size": "many"}, {}, "global_batch_size", "a whole number of at least 1"),
        ({}, {"global_batch_size": "null,64"}, "global_batch_size", "some points .* have none"),
    ],
)
def test_a_bad_study_is_found_before_anything_runs(
    root, studied, settings, params, setting, message
):
    studied("made", settings, **params)
    with pytest.raises(SettingError, match=message) as caught:
        study_points("made", root)
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


def test_an_unknown_study_names_those_that_are(root, studied):
    studied("other")
    with pytest.raises(
        SettingError, match=r"study: there is no mad, did you mean made\?; there are: made, other"
    ):
        study_points("mad", root)


def test_strong_scaling_divides_the_images_of_a_step(studied, root):
    studied("made", {"global_batch_size": 64}, workers="1,2,4", seed="0")
    strong = study_points("made", root)
    assert [point.config.values["batch_size"] for point in strong] == [64, 32, 16]
    assert [point.axes["global_batch_size"] for point in strong] == [64, 64, 64]
    studied("made", {"batch_size": 16}, workers="4", seed="0")
    (weak,) = study_points("made", root)
    assert weak.key == strong[2].key
    assert "global_batch_size" not in weak.axes
