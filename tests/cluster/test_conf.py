"""Every file of conf/cluster: its keys, that it can be modelled, and where its numbers are from."""

import csv
from functools import cache
from pathlib import Path

import pytest

from paceline.cluster.virtual import VirtualCluster
from paceline.prediction.predict import predict
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.timing.workload import SizedNetwork

CONF = Path(__file__).parents[2] / "conf"
FILES = sorted(path.stem for path in (CONF / "cluster").glob("*.yaml"))
PUBLISHED = ("minotauro", "titan", "four_titans", "minsky", "ec2_p2")
COMPUTE_ENGINE = ("compute_engine_k80", "compute_engine_p100")
EPOCH = 1_281_167  # training images of ImageNet-1k
DAY = 24 * 60 * 60


@cache
def settings_of(name):
    return composed([f"cluster={name}", "data=synthetic"], CONF.parent).values["cluster"]


def cluster_of(name):
    return Target("cluster", settings_of(name)).build()


def test_every_file_builds_and_a_virtual_cluster_can_be_modelled():
    modelled = [name for name in FILES if isinstance(cluster_of(name), VirtualCluster)]
    assert {"virtual", *PUBLISHED} <= set(modelled) < set(FILES)
    for name in modelled:
        cluster = cluster_of(name)
        assert cluster.kind == "virtual", name
        assert cluster.profile.num_nodes(8) in (1, 2, 8), name
        if cluster.chip is not None and not cluster.step_rates:
            continue
        workload = SizedNetwork(name=next(iter(cluster.step_rates), "own"))
        assert cluster.step_times(32, 0, workload).seconds(0, 0) > 0, name


def test_a_step_of_the_abstract_cluster_takes_a_second_and_all_else_nothing():
    cluster = cluster_of("virtual")
    profile = cluster.profile
    assert cluster.step_times(32, seed=0).seconds(3, 5) == 1
    assert profile.link.seconds(1e12) == profile.node_link.seconds(1e12) == 0
    assert profile.server_seconds + 1e12 / profile.server_bandwidth == 0


def test_a_step_of_the_virtual_gpu_gives_back_what_is_published_of_an_a100():
    step = cluster_of("virtual_gpu").step_rates["resnet50"].seconds
    found = {images: images / step(images) for images in (256, 512)}
    assert found == pytest.approx({256: 2470, 512: 2600}, rel=1e-3)
    assert step(33) - step(32) == pytest.approx(step(2) - step(1))


@cache
def published():
    """Published numbers, by id; each has a source and a verdict."""
    with (CONF.parent / "papers/published.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(row["id"] and row["source"] and row["verified"] in ("yes", "no") for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def images_per_second(rows):
    """Of an accelerator, from the rows that a rate was fitted to, by their batch size."""
    images = {"images_per_second": 1, "steps_per_second": 128}
    rates = {
        int(row["batch_size"]): images[row["metric"]] * float(row["value"])
        for row in rows
        if row["metric"] in images
    }
    for row in rows:
        if row["metric"] in ("train_time", "time_100_epochs"):
            epochs = [float(each["value"]) for each in rows if each["metric"] == "epochs"] or [100]
            seconds = float(row["value"]) * {"days": DAY, "h": 3600}[row["unit"]]
            rates[int(row["batch_size"] or 256)] = epochs[0] * EPOCH / seconds
    return rates


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_rate_gives_back_the_rows_that_it_was_fitted_to(name):
    known = published()
    for workload, rate in cluster_of(name).step_rates.items():
        found = images_per_second([known[row] for row in rate.rows])
        assert sorted(found) in ([rate.batch_sizes[0]], list(rate.batch_sizes)), workload
        for batch_size, images in found.items():
            assert batch_size / rate.seconds(batch_size) == pytest.approx(images, rel=0.002)


@pytest.mark.parametrize("name", COMPUTE_ENGINE)
def test_one_worker_with_its_messages_gives_back_the_row_that_its_rate_was_fitted_to(name):
    known, of_one = published(), ["scheme=async_parameter_server", "workers=1", "batch_size=128"]
    for workload, rate in cluster_of(name).step_rates.items():
        settings = [f"cluster={name}", "cluster.step_jitter=0", f"workload={workload}", *of_one]
        found = predict(composed(settings, CONF.parent), 10).run.images_per_second
        assert found == pytest.approx(images_per_second([known[rate.rows[0]]])[128], rel=0.005)


def test_four_titans_give_back_the_time_of_two_to_which_their_bus_was_fitted():
    """100 epochs in 7.0 days, at 128 images each."""
    settings = ["cluster=four_titans", "workload=alexnet", "workers=2", "batch_size=128"]
    prediction = predict(composed(settings, CONF.parent), 1000)
    row = published()["C/table1-100-epochs/alexnet/data-parallel-sync-2gpu-time-100-epochs"]
    days = 100 * EPOCH / prediction.run.images_per_second / DAY
    assert days == pytest.approx(float(row["value"]), rel=0.02)
