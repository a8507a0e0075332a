"""A record reaches MLflow whole: at the end of a run, after an outage, beside fifteen others."""

import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from paceline.record.tracking.log import ProgressFollower, log_record
from paceline.record.tracking.mlflow_log import LogError, client
from tests.ends import wait_until
from tests.made_records import made_config, make_record

CONF = Path(__file__).parents[3] / "conf"
LIVE = "samples,seconds,train_loss,images_per_second\n"


def logged(uri, experiment):
    """The settings of a measurement that is logged there."""
    settings = yaml.safe_load((CONF / "measurement/standard.yaml").read_text())
    return settings | {"mlflow": {"tracking_uri": uri, "experiment": experiment}}


def only_run(uri):
    store = client(uri)
    (run,) = store.search_runs([store.get_experiment_by_name("made").experiment_id])
    return run


def steps(uri, run, metric):
    return [row.step for row in client(uri).get_metric_history(run.info.run_id, metric)]


def test_a_record_is_logged_whole_and_once(mlflow_uri, tmp_path):
    make_record(tmp_path / "0123456789ab", made_config(), bytes_sent=1000)
    assert log_record(tmp_path / "0123456789ab", mlflow_uri, "made")
    assert not log_record(tmp_path / "0123456789ab", mlflow_uri, "made")
    run = only_run(mlflow_uri)
    assert (run.info.status, run.info.run_name) == (
        "FINISHED",
        "sync_allreduce 1 worker batch 32 seed 0",
    )
    assert run.info.end_time - run.info.start_time == 4000
    assert run.data.params["scheme"] == "sync_allreduce"
    metrics = run.data.metrics
    assert (metrics["final/top1"], metrics["curve/top1"]) == (0.5, 0.5)
    assert (metrics["system/wall_seconds"], metrics["system/bytes_sent"]) == (4, 1000)
    assert {name.partition("/")[0] for name in metrics} == {"curve", "final", "system"}
    assert "final/validation_loss" not in metrics
    assert steps(mlflow_uri, run, "curve/train_loss") == [64, 128]
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.name == "synthetic"
    assert len(used.dataset.digest) == 12
    files = client(mlflow_uri).list_artifacts(run.info.run_id)
    assert sorted(file.path for file in files) == ["config.yaml", "curve.csv", "result.json"]
    tags = {"study": "made", "key": "0123456789ab", "workers": "1", "status": "finished"}
    tags["tuning"] = "false"
    assert tags.items() <= run.data.tags.items()


def test_a_data_set_is_its_samples_and_not_their_place(mlflow_uri, tmp_path):
    made = {
        "0123456789ab": {},
        "1123456789ab": {"root": "elsewhere"},
        "2123456789ab": {"split_seed": 7},
    }
    for key, changes in made.items():
        data = {"_target_": "paceline.data.synthetic.Synthetic", **changes}
        make_record(tmp_path / key, made_config(data=data))
        log_record(tmp_path / key, mlflow_uri, "made")
    store = client(mlflow_uri)
    runs = store.search_runs([store.get_experiment_by_name("made").experiment_id])
    digests = {run.data.tags["key"]: run.inputs.dataset_inputs[0].dataset.digest for run in runs}
    first, elsewhere, other = (digests[key] for key in made)
    assert first == elsewhere != other


def test_another_store_gets_it_too(mlflow_uri, tmp_path):
    make_record(tmp_path / "0123456789ab", made_config())
    log_record(tmp_path / "0123456789ab", mlflow_uri, "made")
    lost = Path(mlflow_uri.removeprefix("sqlite:///"))
    with sqlite3.connect(lost) as database:  # a store made anew under the same name
        for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
            database.execute(f"DELETE FROM {table}")
    assert log_record(tmp_path / "0123456789ab", mlflow_uri, "made")
    assert steps(mlflow_uri, only_run(mlflow_uri), "curve/train_loss") == [64, 128]


def test_a_failed_point_is_a_failed_run(mlflow_uri, tmp_path):
    nothing = {"samples": None, "seconds": None, "top1": None}
    make_record(tmp_path / "key", made_config(), rows=0, status="failed", **nothing)
    log_record(tmp_path / "key", mlflow_uri, "made")
    assert only_run(mlflow_uri).info.status == "FAILED"


def test_live_rows_and_the_record_are_one_run(mlflow_uri, tmp_path):
    config = made_config(measurement=logged(mlflow_uri, "made"))
    partial = tmp_path / ".key.123"
    partial.mkdir()
    progress = partial / "progress.csv"
    progress.write_text(LIVE + "64,0.5,2.0,128\n128,1.")
    with ProgressFollower(partial, config):
        wait_until(lambda: live_steps(mlflow_uri, partial) == [64])
    assert only_run(mlflow_uri).data.tags["status"] == "running"
    progress.write_text(LIVE + "64,0.5,2.0,128\n128,1.0,1.0,128\n")

    final = tmp_path / "key"
    make_record(final, config)
    for name in ("progress.csv", "mlflow.json"):
        (partial / name).rename(final / name)
    log_record(final, mlflow_uri, "made")
    run = only_run(mlflow_uri)
    assert steps(mlflow_uri, run, "live/train_loss") == [64, 128]
    assert steps(mlflow_uri, run, "curve/train_loss") == [64, 128]
    assert run.data.tags["status"] == "finished"


def test_an_interrupted_run_ends_as_killed(mlflow_uri, tmp_path):
    config = made_config(measurement=logged(mlflow_uri, "made"))
    (tmp_path / "progress.csv").write_text(LIVE + "64,0.5,2.0,128\n")

    def interrupted():
        with ProgressFollower(tmp_path, config):
            wait_until(lambda: live_steps(mlflow_uri, tmp_path) == [64])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert only_run(mlflow_uri).info.status == "KILLED"


def test_a_server_that_falls_silent_does_not_hold_a_run_back(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.record.tracking.log._PATIENCE", 0.1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
        (tmp_path / "progress.csv").write_text(LIVE + "64,0.5,2.0,128\n")
        follower = ProgressFollower(tmp_path, made_config(measurement=logged(uri, "made")))
        with follower:
            asked, _ = mute.accept()
        assert follower._thread.is_alive()  # it waits, alone
        asked.close()
    follower._thread.join()


def test_an_outage_during_the_run_is_made_up_for(mlflow_uri, tmp_path):
    config = made_config(measurement=logged(mlflow_uri, "gone"))
    make_record(tmp_path / "key", config)
    with ProgressFollower(tmp_path / "key", config):
        time.sleep(1.2)
    with pytest.raises(LogError, match="no experiment gone"):
        log_record(tmp_path / "key", mlflow_uri, "gone")
    assert log_record(tmp_path / "key", mlflow_uri, "made")
    assert steps(mlflow_uri, only_run(mlflow_uri), "curve/train_loss") == [64, 128]


@pytest.mark.slow
def test_sixteen_points_at_once_lose_nothing(tmp_path):
    """Each in a process of its own, on a store that none of them has made yet."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for n in range(16):
        make_record(tmp_path / f"key{n}", made_config(seed=n), rows=200)
    subprocess.run([sys.executable, "-c", SIXTEEN, uri, tmp_path], check=True, cwd=tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        counts = database.execute(
            "SELECT run_uuid, key, count(DISTINCT step) FROM metrics GROUP BY run_uuid, key"
        ).fetchall()
    for metric in ("curve/train_loss", "curve/top1", "curve/updates"):
        assert [count for _, key, count in counts if key == metric] == [200] * 16
    assert len([key for _, key, _ in counts if key == "system/wall_seconds"]) == 16


SIXTEEN = """
import os, sys
from pathlib import Path
from paceline.record.tracking.log import log_record
from paceline.record.tracking.mlflow_log import prepare_store

uri, folder = sys.argv[1], Path(sys.argv[2])
prepare_store(f"sqlite:///{folder}/other.db", "made")  # imports for all; forks connect anew
for n in range(16):
    if os.fork() == 0:
        prepare_store(uri, "made")
        log_record(folder / f"key{n}", uri, "made")
        os._exit(0)
sys.exit(sum(os.wait()[1] for _ in range(16)) > 0)
"""


def live_steps(uri, folder):
    """Steps that are logged of the run that a partial record names."""
    path = folder / "mlflow.json"
    return steps(uri, only_run(uri), "live/train_loss") if path.exists() else []
