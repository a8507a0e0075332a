"""A store that cannot be used is named in one line, soon, before anything runs."""

import logging
import os
import socket
import sqlite3
import time

import pytest

from paceline.errors import SettingError
from paceline.record.measurement import MLflow
from paceline.record.tracking.log import begin_study_run, end_study_run, log, log_study_files
from paceline.record.tracking.mlflow_log import KnownRun, client, prepare_store
from tests.made_records import made_config, make_record


def unusable(uri):
    began = time.monotonic()
    with pytest.raises(SettingError) as caught:
        prepare_store(uri, "made")
    assert time.monotonic() - began < 12
    assert caught.value.setting == "measurement.mlflow.tracking_uri"
    assert "\n" not in str(caught.value)
    return caught.value.message


def test_a_store_is_made_once_in_silence(tmp_path, capfd, caplog):
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    with caplog.at_level(logging.DEBUG):
        prepare_store(uri, "made")
        prepare_store(uri, "made")
    assert [e.name for e in client(uri).search_experiments()] == ["made", "Default"]
    assert capfd.readouterr() == ("", "")


def test_a_deleted_experiment_is_named(mlflow_uri):
    store = client(mlflow_uri)
    store.delete_experiment(store.get_experiment_by_name("made").experiment_id)
    with pytest.raises(SettingError, match="made was deleted in MLflow"):
        prepare_store(mlflow_uri, "made")


def test_a_store_locked_by_another_process(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("paceline.record.tracking.mlflow_log._SECONDS", 0.5)
    holder = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert "database is locked" in unusable(f"sqlite:///{tmp_path}/mlflow.db")
    holder.close()
    assert capfd.readouterr() == ("", "")


def test_a_store_in_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    assert "exists" in unusable(f"sqlite:///{tmp_path}/file/mlflow.db")


def test_a_store_that_is_a_folder(tmp_path):
    assert "unable to open database file" in unusable(f"sqlite:///{tmp_path}")


def test_a_store_that_is_no_database(tmp_path):
    (tmp_path / "mlflow.db").write_text("not a database, but long enough to be taken for one" * 9)
    assert "file is not a database" in unusable(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_store_of_a_newer_mlflow_is_named_wherever_it_is_opened(mlflow_uri, tmp_path):
    with sqlite3.connect(mlflow_uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    make_record(tmp_path / "key", made_config())
    KnownRun("0", mlflow_uri).write(tmp_path / "mlflow_parent.json")
    mlflow = MLflow(tracking_uri=mlflow_uri, experiment="made")
    for reason in (
        unusable(mlflow_uri),
        begin_study_run(tmp_path, mlflow, [], {}),
        log(tmp_path / "key", mlflow),
        end_study_run(tmp_path, mlflow, "FINISHED", {}),
        log_study_files(tmp_path, [tmp_path / "mlflow_parent.json"]),
    ):
        assert "ffffffffffff" in reason
        assert "\n" not in reason


def test_a_server_that_refuses():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert "refused" in unusable(f"http://127.0.0.1:{unused.getsockname()[1]}")


def test_a_server_that_never_answers(monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        assert "cannot use http://" in unusable(f"http://127.0.0.1:{mute.getsockname()[1]}")
    assert capfd.readouterr() == ("", "")


def test_a_store_of_a_kind_that_mlflow_refuses(tmp_path):
    unusable(f"file://{tmp_path}/mlruns")


def test_a_tracking_server_s_addresses_of_runs_are_not_printed(mlflow_uri, monkeypatch):
    name = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
    monkeypatch.delenv(name, raising=False)
    client(mlflow_uri)
    assert os.environ[name] == "true"
