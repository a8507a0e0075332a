"""The command line as a user types it: in a copy of conf/, on small synthetic images."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from paceline.record.record import records_in
from paceline.report.number_format import MISSING
from tests.command_line import results, run, run_anew

NUM_TRAIN = 400
SMALL = (
    "data=synthetic",
    "data.num_train=600",
    "data.num_validation=200",
    "data.num_test=200",
    "data.image_shape=[1,12,12]",
    "batch_size=10",
    "training.epochs=1",
    "measurement.evaluations=2",
    "measurement.evaluation_batch_size=100",
)
UNLOGGED = (*SMALL, "measurement.mlflow.tracking_uri=null")
BOTH = "scheme=sync_allreduce,async_parameter_server"
SERVED = "scheme=async_parameter_server"
URI = "measurement.mlflow.tracking_uri"


def assert_refused(found, setting):
    code, _, errors = found
    assert code == 2
    assert len(errors) == 1, errors
    assert errors[0].startswith(f"paceline: {setting}: ")


def assert_no_record(root, study):
    folder = root / "runs" / study
    assert not [path for path in folder.glob("*") if path.name != "multirun.yaml"]


# what is printed, and what is left


@pytest.fixture(scope="module")
def good(root):
    settings = ("study=good", "workers=2", "scheme=async_parameter_server", "seed=3")
    code, lines, errors = run_anew(root, "train", *UNLOGGED, *settings)
    assert (code, errors) == (0, [])
    return root, lines


def test_the_last_line_is_the_folder_of_the_record(good):
    root, lines = good
    folder = root / lines[-1]
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "result.json", "curve.csv", "staleness.csv", "phases.csv"} <= names
    assert folder.parents[1] == root / "runs/good"
    assert records_in(folder.parents[1]) == [folder.parent]
    assert "hydra" not in yaml.safe_load((folder / "config.yaml").read_text())
    assert len((folder / "curve.csv").read_text().splitlines()) == 3


def test_a_record_says_what_was_asked_and_what_was_seen(good):
    (result,) = results(good[0], "good")
    expected = {
        "status": "finished",
        "reason": "",
        "kind": "measured",
        "study": "good",
        "key": Path(good[1][-1]).parent.name,
        "scheme": "async_parameter_server",
        "workers": 2,
        "servers": 1,
        "batch_size": 10,
        "global_batch_size": 10,
        "seed": 3,
        "samples": NUM_TRAIN,
        "updates": NUM_TRAIN // 10,
    }
    assert {name: result[name] for name in expected} == expected
    measured = ("seconds", "images_per_second", "updates_per_second", "validation_loss")
    assert all(result[name] > 0 for name in (*measured, "bytes_sent", "bytes_received"))
    assert 0.3 < result["top1"] <= 1
    assert 0.3 < result["test_top1"] <= 1
    assert 0 <= result["staleness_mean"] <= result["staleness_max"] < NUM_TRAIN // 10
    assert result["versions"]["torch"]
    assert result["hardware"]["cores"]
    assert "commit" in result


def test_a_finished_point_is_not_done_again(good):
    root, lines = good
    record = root / lines[-1] / "result.json"
    before = record.stat().st_mtime_ns
    settings = ("study=good", "workers=2", "scheme=async_parameter_server", "seed=3")
    code, again, _ = run(root, "train", *UNLOGGED, *settings)
    assert (code, again[-1]) == (0, lines[-1])
    assert again[0].endswith("already there")
    for words in (("train",), ("train", "-m")):
        code, _, (error,) = run(root, *words, *UNLOGGED, *settings, "cluster.timeout_seconds=long")
        assert (code, error.split(":")[1]) == (2, " cluster.timeout_seconds")  # in no point's key
    assert record.stat().st_mtime_ns == before


def test_a_virtual_run_leaves_the_same_record_with_both_times(root):
    asked = ("study=virtual", "cluster=virtual", "workers=20", "scheme=async_parameter_server")
    code, lines, errors = run(root, "train", *UNLOGGED, *asked, "cluster.step_jitter=0.2")
    assert (code, errors) == (0, [])
    assert "images/s virtual" in lines[0]
    (result,) = results(root, "virtual")
    assert (result["kind"], result["workers"], result["servers"]) == ("virtual", 20, 1)
    assert result["samples"] == result["distinct_samples"] == NUM_TRAIN
    assert result["certificate"] == "asynchronous: stale pushes seen"
    assert 1.5 < result["seconds"] < 4  # two steps of about a second each
    assert 0 < result["real_seconds"] < 60
    tables = {path.stem: path.read_text() for path in (root / lines[-1]).glob("*.csv")}
    assert tables.keys() == {"curve", "staleness", "phases", "progress", "timeline", "test"}
    assert len(tables["phases"].splitlines()) == 21
    assert tables["timeline"] == "worker,phase,start,end\n"  # of more than 16 nobody sees one


# bad input


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("batch_size", "workers=2 batch_size=201"),
        ("batch_size", "model.shards=3"),
        (URI, f"{URI}=sqlite:////proc/mlflow.db"),
        ("scheme.servers", f"--multirun {SERVED} scheme.servers=abc,1"),  # before a point has run
    ],
)
def test_bad_input_is_one_line_that_names_the_setting_and_leaves_no_record(setting, words, root):
    assert_refused(run(root, "train", *UNLOGGED, "study=bad", *words.split()), setting)
    assert_no_record(root, "bad")


def test_a_locked_mlflow_store_is_found_out_before_training(root, tmp_path):
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        asked = (*SMALL, "study=bad", f"{URI}=sqlite:///{path}")
        soon = ("paceline.record.mlflow._SECONDS", 0.5)
        assert_refused(run(root, "train", *asked, patched=[soon]), URI)
    assert_no_record(root, "bad")


def test_settings_are_shown_and_nothing_is_run_beside_multirun(root):
    swept = ("study=shown", "training.lr=0.25,0.5", "--multirun")
    assert run(root, "train", *swept, "--cfg", "job", "-p", "training.lr") == (0, ["0.25"], [])
    added = ("+rate=0.25", "training.lr=${rate}", "--cfg", "job", "--resolve")
    assert run(root, "train", *added, "-p", "training.lr") == (0, ["0.25"], [])
    assert not (root / "runs/shown").exists()


def test_an_unknown_setting_is_told_beside_the_nearest_one(root):
    code, _, (error,) = run(root, "train", "workrs=2")
    assert (code, error) == (2, "paceline: workrs: there is no such setting, did you mean workers?")


def test_outside_a_repository_predictions_are_made_and_nothing_is_trained(tmp_path):
    code, lines, errors = run(tmp_path, "predict", "model=resnet18", "cluster=aws_p5", "workers=8")
    assert (code, errors) == (0, [])
    assert any(line.split()[:1] == ["8"] for line in lines)
    found = run(tmp_path, "train")
    assert_refused(found, "conf")
    assert f"no conf/config.yaml in {tmp_path} or a folder above it" in found[2][0]


# multirun


@pytest.mark.slow
def test_a_multirun_trains_as_many_workers_as_asked_on_all_the_data(root):
    """First fewer than before, then more."""
    swept = (BOTH, "workers=2,1,4", "study=counts", "training.lr=0.01")
    code, lines, errors = run(root, "train", "--multirun", *UNLOGGED, *swept)
    assert (code, errors) == (0, [])
    points = lines[:6]
    assert [line.split()[3] for line in points] == ["workers=2", "workers=1", "workers=4"] * 2
    assert lines[6] == "counts: 6 points: 6 finished"
    assert lines[-1] == "next: paceline report counts"
    assert run(root, "report", "counts") == (0, [str(root / "reports/counts/index.html")], [])
    assert "counts: 6 points: 6 finished" in run(root, "show", "counts")[1]
    found = results(root, "counts")
    for scheme in ("sync_allreduce", "async_parameter_server"):
        mine = [result for result in found if result["scheme"] == scheme]
        assert sorted(result["workers"] for result in mine) == [1, 2, 4]
        assert {result["samples"] for result in mine} == {NUM_TRAIN}
        if scheme == "sync_allreduce":
            assert {result["distinct_samples"] for result in mine} == {NUM_TRAIN}
            assert {r["updates"] * r["workers"] for r in mine} == {NUM_TRAIN // 10}


def test_a_point_that_fails_is_recorded_and_the_others_go_on(root):
    swept = ("study=failing", "workers=2", "batch_size=201,10")
    code, lines, errors = run(root, "train", "--multirun", *UNLOGGED, *swept)
    assert (code, errors) == (1, [])
    assert lines[2] == "failing: 2 points: 1 finished, 1 failed"
    assert ["201", MISSING, MISSING, "0", "of", "1"] in [line.split() for line in lines]
    assert lines[-1] == "next: paceline report failing"
    assert "failing: 2 points: 1 failed, 1 finished" in run(root, "show", "failing")[1]
    found = {result["batch_size"]: result for result in results(root, "failing")}
    assert found[10]["status"] == "finished"
    assert found[201]["status"] == "failed"
    assert found[201]["reason"].startswith("batch_size: 201 is more than a worker's share")
    assert found[201]["top1"] is None


def test_ctrl_c_in_a_callback_whose_errors_python_ignores_ends_a_command():
    program = """
import signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored under a shell's background job
from paceline import cli

class Thing: pass

def run(arguments):
    thing = Thing()
    watch = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    time.sleep(60)

cli._run = run
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 130
    assert done.stderr == "paceline: interrupted; finished points are kept\n"
