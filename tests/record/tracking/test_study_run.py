"""The run of a study, to which its points' runs are linked, over any number of sweeps."""

import base64
import json
import zlib
from pathlib import Path

import yaml

from paceline.record.measurement import MLflow
from paceline.record.tracking.compared_runs import comparison_link
from paceline.record.tracking.log import (
    ProgressFollower,
    begin_study_run,
    end_study_run,
    log_record,
    log_study_files,
    study_run,
)
from paceline.record.tracking.mlflow_log import client
from tests.ends import wait_until
from tests.made_records import made_config, make_record

CONF = Path(__file__).parents[3] / "conf"
AXES = ["scheme", "workers", "seed"]


def begin(folder, uri, experiment="made"):
    return begin_study_run(folder, MLflow(tracking_uri=uri, experiment=experiment), AXES, {})


def end(folder, uri, status="FINISHED"):
    mlflow = MLflow(tracking_uri=uri, experiment="made")
    return end_study_run(folder, mlflow, status, {"points": "1 point: 1 finished"})


def run_of(uri, folder):
    return client(uri).get_run(json.loads((folder / "mlflow.json").read_text())["run_id"])


def test_points_are_linked_and_named_by_the_axes_of_their_study(mlflow_uri, tmp_path):
    study = tmp_path / "made"
    assert begin(study, mlflow_uri) is None
    trial = {"lr": 0.5, "momentum": 0.9, "seed": 7}
    configs = {"reported": made_config(workers=4, seed=3), "tried": made_config(trial=trial)}
    for name, config in configs.items():
        make_record(study / name, config)
        log_record(study / name, mlflow_uri, "made")
    assert end(study, mlflow_uri) is None
    parent = study_run(study, mlflow_uri)
    reported, tried = (run_of(mlflow_uri, study / name) for name in configs)
    assert reported.info.run_name == "sync_allreduce 4 workers seed 3"
    assert tried.info.run_name == "sync_allreduce 1 worker tuning lr 0.5 momentum 0.9 seed 0"
    assert [run.data.tags["tuning"] for run in (reported, tried)] == ["false", "true"]
    for run in (reported, tried):
        assert run.data.tags["study_run"] == parent.run_id
    own = client(mlflow_uri).get_run(parent.run_id)
    assert (own.info.run_name, own.info.status) == ("made", "FINISHED")
    assert (own.data.metrics, own.data.tags["points"]) == ({}, "1 point: 1 finished")


def test_the_view_of_a_study_shows_what_its_runs_have(mlflow_uri, tmp_path):
    study = tmp_path / "made"
    assert begin(study, mlflow_uri) is None
    make_record(study / "key", made_config(), test_top1=0.5, images_per_second=100.0)
    log_record(study / "key", mlflow_uri, "made")
    data = run_of(mlflow_uri, study / "key").data
    tags = client(mlflow_uri).get_experiment_by_name("made").tags
    saved = json.loads(tags["mlflow.sharedViewState.paceline"])["state"].removeprefix("deflate;")
    view = json.loads(zlib.decompress(base64.b64decode(saved)))
    kinds = {"metrics": data.metrics, "params": data.params}
    for column in (*view["selectedColumns"], view["orderByKey"]):
        kind, name = column.split(".", 1)
        assert name.strip("`") in kinds[kind]
    assert [each["groupByData"] for each in view["groupBy"]["groupByKeys"]] == AXES[:-1]
    for chart in view["compareRunCharts"]:
        keys = [chart[name]["key"] for name in ("xaxis", "yaxis") if name in chart]
        keys += [chart[name] for name in ("metricKey", "selectedXAxisMetricKey") if name in chart]
        assert keys
        assert set(keys) <= data.metrics.keys()


def test_a_finished_study_tells_where_its_runs_are_compared(mlflow_uri, tmp_path, capsys):
    begin(tmp_path, mlflow_uri)
    end(tmp_path, mlflow_uri, "KILLED")
    assert capsys.readouterr().out == ""
    end(tmp_path, mlflow_uri)
    number = client(mlflow_uri).get_experiment_by_name("made").experiment_id
    page = f"/#/experiments/{number}/runs?viewStateShareKey=paceline&compareRunsMode=CHART"
    served = f"http://127.0.0.1:5000{page} after mlflow ui --backend-store-uri {mlflow_uri}"
    assert capsys.readouterr().out == f"runs compared: {served}\n"
    assert comparison_link("https://ml.example.org/", number) == f"https://ml.example.org{page}"


def test_a_point_is_linked_to_its_study_while_it_runs(mlflow_uri, tmp_path):
    settings = yaml.safe_load((CONF / "measurement/standard.yaml").read_text())
    settings["mlflow"] = {"tracking_uri": mlflow_uri, "experiment": "made"}
    begin(tmp_path, mlflow_uri)
    partial = tmp_path / ".key.1"
    partial.mkdir()
    with ProgressFollower(partial, made_config(measurement=settings)):
        wait_until((partial / "mlflow.json").exists)
    run = run_of(mlflow_uri, partial)
    assert run.data.tags["study_run"] == study_run(tmp_path, mlflow_uri).run_id
    assert run.info.run_name == "sync_allreduce 1 worker seed 0"


def test_a_second_sweep_goes_on_with_the_same_run(mlflow_uri, tmp_path):
    begin(tmp_path, mlflow_uri)
    end(tmp_path, mlflow_uri, "KILLED")
    first = study_run(tmp_path, mlflow_uri)
    begin(tmp_path, mlflow_uri)
    assert study_run(tmp_path, mlflow_uri) == first
    assert client(mlflow_uri).get_run(first.run_id).info.status == "RUNNING"


def test_an_experiment_of_dvc_has_a_run_of_its_own(mlflow_uri, tmp_path, monkeypatch):
    begin(tmp_path, mlflow_uri)
    first = study_run(tmp_path, mlflow_uri)
    monkeypatch.setenv("DVC_EXP_NAME", "tubal-wean")
    assert study_run(tmp_path, mlflow_uri) is None
    begin(tmp_path, mlflow_uri)
    second = study_run(tmp_path, mlflow_uri)
    assert client(mlflow_uri).get_run(second.run_id).info.run_name == f"{tmp_path.name} tubal-wean"
    monkeypatch.delenv("DVC_EXP_NAME")
    assert study_run(tmp_path, mlflow_uri) == first


def test_another_store_gets_a_run_of_its_own(mlflow_uri, tmp_path):
    (tmp_path / "mlflow_parent.json").write_text(
        json.dumps({"run_id": "gone", "tracking_uri": "sqlite:///gone.db", "axes": []})
    )
    assert study_run(tmp_path, mlflow_uri) is None
    assert begin(tmp_path, mlflow_uri) is None
    assert study_run(tmp_path, mlflow_uri).run_id != "gone"


def test_a_study_and_a_point_whose_files_are_damaged_are_logged_anew(mlflow_uri, tmp_path, capsys):
    study = tmp_path / "made"
    make_record(study / "key", made_config())
    damaged = [study / "mlflow_parent.json", study / "key/mlflow.json"]
    for path in damaged:
        path.touch()
    assert begin(study, mlflow_uri) is None
    assert log_record(study / "key", mlflow_uri, "made")
    assert len(capsys.readouterr().err.splitlines()) == 2
    tags = run_of(mlflow_uri, study / "key").data.tags
    assert tags["study_run"] == study_run(study, mlflow_uri).run_id


def test_without_a_store_nothing_is_written(tmp_path):
    assert begin(tmp_path / "made", None) is None
    assert end(tmp_path / "made", None) is None
    assert log_study_files(tmp_path / "made", []) is None
    assert not (tmp_path / "made").exists()


def test_a_store_that_fails_is_a_reason_and_no_error(mlflow_uri, tmp_path):
    assert begin(tmp_path, mlflow_uri, "gone") == (
        f"the run not logged to {mlflow_uri}: there is no experiment gone"
    )
    page = tmp_path / "index.html"
    page.write_text("<p>made</p>")
    lost = f"sqlite:///{tmp_path}/lost.db"
    (tmp_path / "mlflow_parent.json").write_text(
        json.dumps({"run_id": "0", "tracking_uri": lost, "axes": []})
    )
    assert log_study_files(tmp_path, [page]) == f"index.html not logged: no {lost}"
    assert not (tmp_path / "lost.db").exists()


def test_the_page_of_a_study_is_with_its_run(mlflow_uri, tmp_path):
    begin(tmp_path, mlflow_uri)
    page = tmp_path / "index.html"
    page.write_text("<p>made</p>")
    assert log_study_files(tmp_path, [page, tmp_path / "not there"]) is None
    run = study_run(tmp_path, mlflow_uri).run_id
    assert [file.path for file in client(mlflow_uri).list_artifacts(run)] == ["index.html"]
