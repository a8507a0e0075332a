"""Predictions of a study's measured points, from its records' table alone."""

import csv
from collections import Counter

import numpy as np
import pytest

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.predict import predict
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.study.study_points import study_points
from papers.predict_points import (
    UNEVENNESS,
    compared_staleness,
    emulating,
    predict_points,
    run_of,
)
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
    path = predict_points("held", root)
    assert path == root / "reports/held/predictions.csv"
    found = rows_of(path)
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
    with pytest.raises(SettingError) as refused:
        predict_points("own_pace", root)
    assert refused.value.setting == "study"
    code, _, (error,) = run(root, "predict", "--study", "own_pace")  # a project without papers/
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


def drawn(draw, mean=7.0):
    return Counter(np.rint(draw.normal(mean, 2, 100)).clip(0).astype(int).tolist())


def test_the_distance_by_hand():
    found = compared_staleness(Counter({0: 1, 2: 3}), [Counter({0: 2, 1: 2}), Counter({0: 2})])
    assert found.distance == pytest.approx((0.5 + 0.25 + 0.75) / 2)


def test_one_more_draw_is_rejected_at_most_as_often_as_the_size_says():
    """19 draws: p is 1/20 only for the farthest; of 400, 20 are expected, 35 are 3.4 s.d. off."""
    draw = np.random.default_rng(0)
    found = [
        compared_staleness(drawn(draw), [drawn(draw) for _ in range(19)]).p for _ in range(400)
    ]
    assert 5 <= sum(p <= 0.05 for p in found) <= 35
    assert min(found) == pytest.approx(1 / 20)


def test_other_staleness_is_rejected():
    draw = np.random.default_rng(1)
    predicted = [drawn(draw) for _ in range(199)]
    assert compared_staleness(drawn(draw, 9), predicted).p == pytest.approx(1 / 200)


def test_equal_runs_are_alike():
    same = Counter({0: 5, 3: 1})
    assert compared_staleness(same, [same] * 9) == pytest.approx((0, 1))


PACED = ("data=synthetic", "batch_size=4", "cluster.step_seconds=0.1", "workload=sized")
PACED += ("workload.num_bytes=1000000", "cluster.accelerator=cpu", "training.samples=800")


def settings_of(root, *overrides):
    return composed([*PACED, *overrides], root)


@pytest.mark.parametrize("profile", ["virtual", "this_machine", "two_cores_small_cnn"])
def test_every_modelled_machine_can_emulate_links(root, profile):
    """What a profile leaves out has its default."""
    config = settings_of(root, "cluster=shaped_nodes", "workers=4", "cluster.workers_per_node=2")
    modelled = dict(composed([f"cluster={profile}", "data=synthetic"], root).values["cluster"])
    modelled["node_cores"] = modelled["node_cores"] or 2
    cluster = Target("cluster", emulating(modelled, config.values["cluster"], 4)).build()
    assert isinstance(cluster, VirtualCluster)
    assert cluster.link.bandwidth == config.values["cluster"]["link"]["bandwidth"]
    assert cluster.link.unevenness == UNEVENNESS
    assert cluster.workers_per_node == 2
    assert cluster.node_cores == modelled["node_cores"] / 2
    made = run_of(config, emulating(modelled, config.values["cluster"], 4), 800)
    assert made.images_per_second > 0


def test_messages_cost_what_they_cost_among_all_workers(root):
    """Three nodes share the cores: costs are those of 6 workers, half of the way from 4 to 8."""
    config = settings_of(root, "cluster=shaped_nodes", "workers=6", "cluster.workers_per_node=2")
    modelled = dict(composed(["cluster=this_machine", "data=synthetic"], root).values["cluster"])
    modelled |= {"message_seconds": {4: 1.0, 8: 3.0}, "message_bandwidth": {}}
    cluster = Target("cluster", emulating(modelled, config.values["cluster"], 6)).build()
    profile = cluster.profile
    assert profile.core_seconds(1, 0, workers=2) == 2 / profile.node_cores
    by_byte = 100 / profile.node_link.bandwidth
    assert profile.core_seconds(0, 100, workers=2) == by_byte / profile.node_cores
