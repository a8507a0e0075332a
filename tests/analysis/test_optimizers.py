"""A scheme with another optimizer is compared like another scheme, and never merged."""

import pytest

from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.report.findings import read_findings, situations
from tests.made_decisions import AXES, arm, write_decided
from tests.made_reports import concluded

OPTIMIZER = "model/optimizer"


def of(optimizer, runs):
    return [run | {OPTIMIZER: optimizer, "key": f"{run['key']}{optimizer}"} for run in runs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = of("sgd", arm("sync_allreduce", 801, 0.9, workers=1))
    for workers in (4, 8):
        runs += of("sgd", arm("sync_allreduce", 301, 0.89, workers=workers))
        runs += of("sgd", arm("gossip", 201, 0.88, workers=workers))
        runs += of("lars", arm("sync_allreduce", 251, 0.895, workers=workers))
    return write_decided(tmp_path_factory.mktemp("made") / "made", runs, axes=[*AXES, OPTIMIZER])


@pytest.fixture(scope="module")
def tables(folder):
    return read_tables(folder)


def test_they_share_situations_and_one_worker(folder, tables):
    assert [each.words for each in situations(read_findings(folder))] == [
        "8 workers",
        "4 workers",
        "1 worker",
    ]
    rows = decision(tables).query("workers == 4").set_index(["scheme", OPTIMIZER])
    assert len(rows) == 3
    points = 100 * rows["one_worker_top1_difference_mean"]
    assert points["sync_allreduce", "sgd"] == pytest.approx(-1)
    assert points["sync_allreduce", "lars"] == pytest.approx(-0.5)


def test_the_first_optimizer_is_that_of_the_reference(tables):
    rows = decision(tables).query("workers == 4").set_index(["scheme", OPTIMIZER])
    points = 100 * rows["reference_top1_difference_mean"]
    assert points["sync_allreduce", "lars"] == pytest.approx(0.5)
    assert points["gossip", "sgd"] == pytest.approx(-1)
    assert points.isna()["sync_allreduce", "sgd"]
    compared = concluded(tables, "reference").query("workers == 4")
    assert [*zip(compared["scheme"], compared[OPTIMIZER], strict=True)] == [
        ("gossip", "sgd"),
        ("sync_allreduce", "lars"),
    ]
    assert list(100 * compared["reference_top1_difference_mean"]) == pytest.approx([-1, 0.5])


def test_their_speed_up_names_the_optimizer_of_one_worker(tables):
    rows = concluded(tables).query("workers == 4").set_index(["scheme", OPTIMIZER])["baseline"]
    own = "sync_allreduce batch_size=32 model/optimizer=sgd"
    assert rows["sync_allreduce", "sgd"] == rows["sync_allreduce", "lars"] == own
