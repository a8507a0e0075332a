"""Predictions of a study's measured points, from its records' table alone."""

import csv

import pytest

from paceline.errors import SettingError
from paceline.prediction.predict import predict
from paceline.prediction.predict_points import predict_points
from paceline.study.compose import composed
from paceline.study.study_points import study_points
from tests.command_line import run
from tests.made_records import rows_of

STUDY = """\
# @package _global_
defaults:
  - override /data: fashion_mnist_subset
study: held
predicted_by: {small_cnn: two_cores_small_cnn}
batch_size: 8
hydra:
  sweeper:
    params:
      cluster: local,virtual
      workers: 1,2
"""


COLUMNS = ("key", "kind", "status", "model", "batch_size", "workers", "servers")
COLUMNS += ("samples", "images_per_second")


def write_runs(root, servers=0):
    points = study_points("held", root)
    kinds = {"local": "measured", "virtual": "virtual"}
    rows = []
    for each in points[:3]:
        kind, workers = kinds[each.config.names["cluster"]], each.config.values["workers"]
        row = (each.key, kind, "finished", "small_cnn", 8, workers, servers, 1600, 2000)
        rows.append(row)
    rows.append(("no rate", "measured", "finished", "small_cnn", 8, 1, servers, 8, ""))
    folder = root / "reports/held"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return points


@pytest.mark.parametrize(("servers", "step"), [(1, None), (0, 0.004)])
def test_every_measured_point_with_a_row_is_predicted(root, servers, step):
    """By the profile's step, or by that of one worker without a server: 8 images in 4 ms."""
    (root / "experiments/held.yaml").write_text(STUDY)
    points = write_runs(root, servers)
    code, (path,), errors = run(root, "predict", "--study", "held")
    assert (code, path, errors) == (0, "reports/held/predictions.csv", [])
    found = rows_of(root / path)
    assert [row["key"] for row in found] == [point.key for point in points[:2]]
    assert {row["cluster"] for row in found} == {"two_cores_small_cnn"}
    assert [row["kind"] for row in found] == ["calibrated" if step else "predicted", "predicted"]
    cluster = composed(["cluster=two_cores_small_cnn"], root).values["cluster"]
    if step:
        cluster["shared_cores"]["step_seconds"] = {8: step}
    for row, point, steps in zip(found, points, (200, 100), strict=False):
        rate = predict(point.config.replaced(cluster=cluster), steps).run.images_per_second
        assert float(row["images_per_second"]) == pytest.approx(rate, rel=1e-5)


def test_a_split_worker_is_predicted_and_does_not_compute_alone(root):
    """The first point is one whole worker, 8 images in 4 ms; the second is two processes of one."""
    text = STUDY.replace("workers: 1,2", "model.shards: 1,2").replace("local,virtual", "local")
    (root / "experiments/held.yaml").write_text(text)
    points = study_points("held", root)
    rows = [(each.key, "measured", "finished", "small_cnn", 8, 1, 0, 1600) for each in points]
    folder = root / "reports/held"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, (*rows[0], 2000), (*rows[1], 1)])
    whole, split = rows_of(predict_points("held", root))
    assert (whole["kind"], split["kind"]) == ("calibrated", "predicted")
    assert float(whole["images_per_second"]) == pytest.approx(2000, rel=0.05)


def test_a_study_without_records_is_refused(root):
    code, _, (error,) = run(root, "predict", "--study", "own_pace")
    assert (code, error.split(":")[1]) == (2, " study")


@pytest.mark.parametrize("named", ["null", "{resnet18: two_cores_resnet18}"])
def test_a_model_without_a_profile_is_refused(root, named):
    text = STUDY.replace("{small_cnn: two_cores_small_cnn}", named)
    (root / "experiments/held.yaml").write_text(text)
    write_runs(root)
    with pytest.raises(SettingError) as refused:
        predict_points("held", root)
    assert refused.value.setting == "predicted_by"


def test_what_validates_is_said_of_each_point(root):
    text = STUDY + "validated_on: {workers: [2]}\n"
    (root / "experiments/held.yaml").write_text(text)
    write_runs(root)
    halves = [row["half"] for row in rows_of(predict_points("held", root))]
    assert halves == ["development", "validation"]


@pytest.mark.parametrize(
    "bad", ["{speed: [2]}", "{workers: 2}", "{workers: [3]}", "{seed: [0]}", "2"]
)
def test_what_no_point_can_be_told_by_is_refused(root, bad):
    (root / "experiments/held.yaml").write_text(STUDY + f"validated_on: {bad}\n")
    write_runs(root)
    with pytest.raises(SettingError) as refused:
        predict_points("held", root)
    assert refused.value.setting == "validated_on"


def test_a_profile_changes_no_key(root):
    (root / "experiments/held.yaml").write_text(STUDY)
    keys = [each.key for each in study_points("held", root)]
    (root / "experiments/held.yaml").write_text(STUDY.replace("two_cores_small_cnn", "titan"))
    assert [each.key for each in study_points("held", root)] == keys
