"""What was given to MLflow is there, whole."""

import math
import sqlite3
import threading
import time

import pytest

from paceline.record.tracking.mlflow_log import (
    KnownRun,
    LogError,
    PointLog,
    client,
    flat_params,
)


def open_log(uri, **more):
    return PointLog.begin(uri, "made", "a point", {"key": "0123"}, 1000.0, **more)


def history(uri, run_id, name):
    rows = client(uri).get_metric_history(run_id, name)
    return [(metric.step, metric.timestamp, metric.value) for metric in rows]


def test_rows_arrive_by_samples_and_training_clock(mlflow_uri):
    log = open_log(mlflow_uri)
    log.log([{"samples": 64.0, "seconds": 0.5, "top1": 0.25}])
    assert history(mlflow_uri, log.run_id, "top1") == [(64, 1_000_500, 0.25)]


def test_a_row_written_twice_is_there_once(mlflow_uri):
    log = open_log(mlflow_uri)
    rows = [{"samples": n, "seconds": n / 2, "top1": 0.25} for n in range(1500)]
    log.log(rows[:1000])
    log.log(rows)
    assert len(history(mlflow_uri, log.run_id, "top1")) == 1500


def test_null_is_left_out_and_nan_is_kept(mlflow_uri):
    log = open_log(mlflow_uri)
    log.log([{"samples": 64, "seconds": 1.0, "none": None, "nan": math.nan, "inf": math.inf}])
    metrics = client(mlflow_uri).get_run(log.run_id).data.metrics
    assert metrics.keys() == {"nan", "inf"}
    assert math.isnan(metrics["nan"])
    assert metrics["inf"] > 1e308


def test_parameters_are_logged_and_long_ones_are_cut(mlflow_uri):
    log = open_log(mlflow_uri)
    log.describe({"long": "0123456789" * 1000, "short": "x", "empty": ""}, {})
    params = client(mlflow_uri).get_run(log.run_id).data.params
    assert params.pop("long").startswith("0123456789" * 500)
    assert params == {"short": "x", "empty": ""}


def test_parameters_are_named_as_on_the_command_line():
    config = {"data": {"root": "data", "image_shape": [1, 28, 28], "more": {}}, "lr": None}
    assert flat_params(config) == {
        "data.root": "data",
        "data.image_shape": "[1, 28, 28]",
        "data.more": "{}",
        "lr": "null",
    }


def test_a_write_waits_until_the_database_is_free(mlflow_uri, monkeypatch):
    busy_for(mlflow_uri, 1.0)
    log = open_log(mlflow_uri)
    log.log([{"samples": 64, "seconds": 1.0, "top1": 0.5}])
    assert len(history(mlflow_uri, log.run_id, "top1")) == 1


def test_what_was_not_logged_is_named(mlflow_uri, monkeypatch):
    log = open_log(mlflow_uri, timeout=1)
    calls = []

    def locked(*_, **__):
        calls.append(1)
        raise sqlite3.OperationalError("database is locked\n[SQL: INSERT ...]")

    monkeypatch.setattr(log._client, "log_batch", locked)
    with pytest.raises(LogError) as caught:
        log.log([{"samples": n, "seconds": 1.0, "top1": 0.5} for n in (64, 128)])
    assert str(caught.value) == f"2 metrics not logged to {mlflow_uri}: database is locked"
    assert len(calls) > 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"run_id": "0", "track',
        b'{"run_id": "0"}',
        b'{"run_id": 0, "tracking_uri": "sqlite:///mlflow.db"}',
        b'{"run_id": "0", "tracking_uri": "sqlite:///mlflow.db", "axes": "seed"}',
        b'{"run_id": "0", "tracking_uri": "sqlite:///mlflow.db", "of_later": 1}',
    ],
    ids=range(9),
)
def test_a_file_that_names_no_run_is_set_aside_and_told(content, tmp_path, capsys):
    path = tmp_path / "mlflow.json"
    path.write_bytes(content)
    assert KnownRun.read(path) is None
    (aside,) = tmp_path.iterdir()
    assert aside.read_bytes() == content
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert aside.name in line
    known = KnownRun("0", "sqlite:///mlflow.db", complete=True, axes=["seed"])
    known.write(path)
    assert KnownRun.read(path) == known


def busy_for(uri, seconds):
    """Hold the database's write lock, from now on, in a thread."""
    held = threading.Event()

    def hold():
        holder = sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        held.set()
        time.sleep(seconds)
        holder.close()

    threading.Thread(target=hold).start()
    held.wait()
