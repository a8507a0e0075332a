"""A record reaches MLflow whole and once, and no failure of MLflow reaches a record."""

import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import time

import pytest
import yaml

from paceline.errors import SettingError
from paceline.record.label import run_label
from paceline.record.measurement import MLflow
from paceline.record.mlflow import RecordLog, client
from tests.ends import wait_until
from tests.made_records import made_config, make_record

KEY, OTHER = made_config().key, made_config(seed=1).key


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr("paceline.record.mlflow._PERIOD", 0.05)


@pytest.fixture
def uri(made_store, tmp_path):
    """A store with the experiment `made`, which has no run yet."""
    shutil.copy(made_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def runs(tmp_path):
    """The folder of the records of the study `made`."""
    return tmp_path / "runs/made"


def log_of(runs, uri, **more):
    return RecordLog(runs, MLflow(uri, "made"), **more)


def log(runs, uri, **more):
    with log_of(runs, uri, **more) as ended:
        pass
    return ended.failure


def logged(uri):
    """All runs, from the first to the last."""
    store = client(uri)
    experiment = store.get_experiment_by_name("made").experiment_id
    return store.search_runs([experiment], order_by=["start_time"])


def keys(uri):
    return [run.data.tags["key"] for run in logged(uri)]


def record(runs, seed=0, **changes):
    config = made_config(seed=seed)
    return make_record(runs / config.key, config, **changes)


def statuses(uri):
    return [run.info.status for run in logged(uri)]


def history(uri, run, metric):
    rows = client(uri).get_metric_history(run.info.run_id, metric)
    return [(row.step, row.timestamp - run.info.start_time, row.value) for row in rows]


def test_a_record_is_logged_whole_and_once(uri, runs):
    made = made_config(trial=None, model={"more": "0123456789" * 1000, "shape": [1, 28]})
    make_record(runs / made.key, made, bytes_sent=1000, images_per_second=9.5, test_top1=0.25)
    for _ in range(2):
        assert log(runs, uri, note="Does it?") is None
    (run,) = logged(uri)
    tags = client(uri).get_experiment_by_name("made").tags
    assert tags["mlflow.note.content"] == "Does it?"
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    assert (run.info.status, run.info.end_time - run.info.start_time) == ("FINISHED", 4000)
    assert run.info.run_name == "allreduce x1 batch 32 s0"
    tags = {"study": "made", "status": "finished", "tuning": "false", "present": "false"}
    assert tags.items() <= run.data.tags.items()
    params = {"scheme": "sync_allreduce", "workers": "1", "model.shape": "[1, 28]"}
    assert params.items() <= run.data.params.items()
    assert "trial" not in run.data.params  # null
    assert run.data.params["model.more"].startswith("0123456789" * 500)  # which MLflow cuts
    metrics = run.data.metrics
    assert (metrics["accuracy/top1"], metrics["throughput/images_per_second"]) == (0.25, 9.5)
    assert (metrics["final/validation_top1"], metrics["curve/validation_top1"]) == (0.5, 0.5)
    assert not {"final/top1", "curve/top1"} & metrics.keys()
    assert (metrics["system/wall_seconds"], metrics["system/bytes_sent"]) == (4, 1000)
    assert "final/validation_loss" not in metrics  # null
    assert history(uri, run, "curve/validation_top1") == [(64, 500, 0.5), (128, 1000, 0.5)]
    files = client(uri).list_artifacts(run.info.run_id)
    assert sorted(file.path for file in files) == ["config.yaml", "curve.csv", "result.json"]


def test_a_damaged_record_and_one_that_is_not_asked_for_are_not_logged(uri, runs):
    for seed in (0, 1, 2):
        record(runs, seed)
    (runs / KEY / "curve.csv").unlink()
    assert log(runs, uri, key=OTHER) is None
    assert keys(uri) == [OTHER]
    assert log(runs, uri) is None
    assert sorted(keys(uri)) == sorted([OTHER, made_config(seed=2).key])


@pytest.mark.parametrize(
    ("axes", "trial", "label"),
    [
        ([], None, "s3"),
        (["workers", "seed", "training.rate", "no.such", "scheme"], None, "async x16 tuned s3"),
        (["training.rate", "scheme"], {"lr": 0.05418}, "async tuning lr 0.0542 s3"),
        (["batch_size", "scheme.period"], None, "batch 64 period 2 s3"),
    ],
)
def test_a_run_is_named_by_the_axes_of_its_study(axes, trial, label):
    config = {"names": {"scheme": "async_parameter_server"}, "scheme": {"period": 2}}
    config |= {"workers": 16, "seed": 3, "batch_size": 64, "trial": trial}
    assert run_label(config | {"training": {"rate": "tuned"}}, axes) == label


def test_without_a_store_nothing_is_written(runs):
    assert log(runs, None) is None
    assert not runs.exists()
    server = log_of(runs, "https://ml.example.org/")
    server._experiment = "7"
    assert server.address == "https://ml.example.org/#/experiments/7/runs"


def test_records_are_logged_while_a_sweep_runs_and_a_new_one_has_a_run_of_its_own(uri, runs):
    with log_of(runs, uri):
        record(runs, rows=0)
        wait_until(lambda: statuses(uri) == ["FINISHED"])
        shutil.rmtree(runs / KEY)
        record(runs, rows=0, started="2026-01-02T04:04:05+00:00", status="failed")
    assert statuses(uri) == ["FINISHED", "FAILED"]


def test_a_view_averages_the_newest_finished_run_of_each_present_point(uri, runs):
    """Neither runs of old settings, nor of another clock, nor one that was run again."""
    present, numbers = {OTHER}, {"test_top1": 0.5, "images_per_second": 9.5}

    def sweep():
        axes = ["workers", "seed", "cluster"]
        assert log(runs, uri, axes=axes, present=lambda: set(present)) is None

    for seed, status in enumerate(("finished", "finished", "finished", "diverged")):
        record(runs, seed, status=status, **numbers)
    sweep()
    assert shown(uri, "measured") == {("1", "03")}
    present |= {made_config(seed=seed).key for seed in (2, 3, 4)}
    record(runs, 4, kind="virtual", **numbers)
    shutil.rmtree(runs / OTHER)
    record(runs, 1, started="2026-01-02T04:04:05+00:00", **numbers)
    sweep()
    assert len(logged(uri)) == 6
    assert shown(uri, "measured") == {("2", "03"), ("1", "04")}
    assert shown(uri, "virtual") == {("4", "03")}
    present.remove(OTHER)
    sweep()
    assert shown(uri, "measured") == {("2", "03")}


def shown(uri, kind):
    """Seed and hour of the runs that the saved view of a kind selects; they have its columns."""
    store = client(uri)
    experiment = store.get_experiment_by_name("made")
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{kind}"])
    assert (view["name"], view["createdAt"]) == (kind, 0)  # else MLflow leaves it out
    state = json.loads(view["state"])
    found = store.search_runs([experiment.experiment_id], state["searchFilter"])
    params = {"scheme", "workers", "batch_size", "seed", "data", "model", "cluster"}
    for run in found:
        assert run.data.params.keys() == params
        columns = {f"metrics.`{name}`" for name in run.data.metrics}
        columns |= {f"params.`{name}`" for name in params}
        assert {*state["selectedColumns"], state["orderByKey"]} <= columns
        (group,) = state["groupBy"]["groupByKeys"]
        assert run.data.tags[group["groupByData"]] == "x1 local"
    return {(run.data.params["seed"], run.data.tags["started"][11:13]) for run in found}


def test_a_record_whose_files_cannot_be_stored_has_one_run(uri, runs, monkeypatch):
    calls = []

    def refuses(*_):
        calls.append(len(logged(uri)))
        if len(calls) < 3:
            raise OSError("no room")

    monkeypatch.setattr("mlflow.MlflowClient.log_artifact", refuses)
    with log_of(runs, uri) as ended:
        record(runs)
        wait_until(lambda: statuses(uri) == ["FINISHED"])
    assert ended.failure is None
    assert set(calls) == {1}


def test_the_run_of_a_killed_process_is_ended_by_the_next(uri, runs):
    store = client(uri)
    experiment = store.get_experiment_by_name("made").experiment_id
    store.create_run(experiment, tags={"key": KEY})
    log(runs, uri, key=OTHER)
    assert statuses(uri) == ["RUNNING"]
    log(runs, uri)
    assert statuses(uri) == ["KILLED"]


def test_the_store_is_opened_only_if_it_lacks_a_record(uri, runs, monkeypatch):
    record(runs)
    study = {"axes": ["seed"], "present": lambda: {KEY}}
    assert log(runs, uri, **study) is None
    opened = []
    monkeypatch.setattr(RecordLog, "_open", lambda _: opened.append("again"))
    monkeypatch.setattr(RecordLog, "_log_new", lambda _: None)
    for more in ({}, study):
        log_of(runs, uri, **more).catch_up()
        assert opened == []
    log_of(runs, uri, axes=["seed"], present=lambda: set[str]()).catch_up()  # no longer present
    assert opened.pop() == "again"
    record(runs, seed=1)
    log_of(runs, uri, key=KEY).catch_up()
    assert opened == []
    log_of(runs, uri).catch_up()
    log_of(runs, f"{uri}.lost").catch_up()
    assert opened == ["again", "again"]


def test_what_an_outage_left_out_is_logged_by_the_next(uri, runs):
    path, result = uri.removeprefix("sqlite:///"), record(runs)
    shutil.copy(path, f"{path}.before")
    with log_of(runs, uri) as lost:
        with sqlite3.connect(path) as database:
            database.execute("DROP TABLE runs")
        record(runs, 1)
    assert lost.failure.startswith(f"{uri} lacks records")
    assert "\n" not in lost.failure
    assert yaml.safe_load((runs / KEY / "result.json").read_text()) == result
    shutil.copy(f"{path}.before", path)
    assert log(runs, uri) is None
    assert sorted(keys(uri)) == sorted([KEY, OTHER])


def test_processes_that_share_a_new_store_log_each_record_once(runs, tmp_path):
    for n in range(4):
        record(runs, n, rows=50)
    command = [sys.executable, "-c", FOUR, f"sqlite:///{tmp_path}/new/mlflow.db", runs]
    subprocess.run(command, check=True, cwd=tmp_path)
    with sqlite3.connect(tmp_path / "new/mlflow.db") as database:
        ended = database.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall()
        rows = database.execute(
            "SELECT count(*) FROM metrics WHERE key = 'curve/train_loss'"
        ).fetchall()
        names = database.execute("SELECT name FROM experiments ORDER BY name").fetchall()
    assert (ended, rows, names) == ([("FINISHED", 4)], [(200,)], [("Default",), ("made",)])


FOUR = """
import os, sys
from pathlib import Path
from paceline.record.measurement import MLflow
from paceline.record.mlflow import RecordLog, client

client(f"sqlite:///{os.getcwd()}/imports.db")  # for all; forks connect anew
for _ in range(4):
    if os.fork() == 0:
        with RecordLog(Path(sys.argv[2]), MLflow(sys.argv[1], "made")) as log:
            pass
        os._exit(log.failure is not None)
sys.exit(sum(os.wait()[1] for _ in range(4)) > 0)
"""


def unusable(runs, uri):
    began = time.monotonic()
    with pytest.raises(SettingError) as caught:
        log(runs, uri)
    assert time.monotonic() - began < 12
    assert caught.value.setting == "measurement.mlflow.tracking_uri"
    assert "\n" not in str(caught.value)
    return caught.value.message


def test_a_store_that_cannot_be_used_is_named_before_anything_runs(uri, runs, tmp_path, capfd):
    (tmp_path / "file").write_text("not a database, but long enough to be taken for one" * 9)
    assert "exists" in unusable(runs, f"sqlite:///{tmp_path}/file/mlflow.db")
    assert "unable to open" in unusable(runs, f"sqlite:///{tmp_path}/runs/..")
    assert "file is not a database" in unusable(runs, f"sqlite:///{tmp_path}/file")
    unusable(runs, f"file://{tmp_path}/mlruns")  # a kind that MLflow refuses
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    assert "ffffffffffff" in unusable(runs, uri)  # of a newer MLflow
    assert capfd.readouterr() == ("", "")


def test_a_server_that_refuses_or_never_answers(runs, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
        assert uri in unusable(runs, uri)
        mute.listen()
        assert uri in unusable(runs, uri)
    assert capfd.readouterr() == ("", "")


def test_a_deleted_experiment_is_named(uri, runs):
    store = client(uri)
    store.delete_experiment(store.get_experiment_by_name("made").experiment_id)
    with pytest.raises(SettingError, match="made was deleted in MLflow"):
        log(runs, uri)
