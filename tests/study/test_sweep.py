"""A sweep prepares its data, runs what has no record, and leaves nothing behind."""

import sqlite3
from threading import Thread
from unittest.mock import Mock

import pytest

from paceline.command.sweep_command import prepare
from paceline.record.mlflow import client
from paceline.record.record import PartialRecord
from paceline.record.rerun import Sweep
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.study.progress import finished_results, points_table, time_of
from paceline.study.study_point import counts, to_run
from paceline.study.study_points import study_points
from paceline.study.sweep import (
    checked_study,
    one_at_a_time,
    settle_partial_records,
    sweep,
    tell_unfit,
)
from tests.made_records import make_record
from tests.tiny import REPOSITORY

URI = "measurement.mlflow.tracking_uri"
SHORT = {"sync_allreduce": "allreduce", "async_parameter_server": "async"}
UNLOGGED = [f"{URI}=null"]


def no_run(points):
    raise AssertionError(f"ran {points}")


def no_record(points):
    """Stands for runs that leave no record."""
    return [None for _ in points]


@pytest.fixture
def records(root):
    """Writes records for these points of the study `made`, by position."""

    def write(*positions, **changes):
        points = study_points("made", root)
        for n in positions:
            make_record(points[n].folder, points[n].config, **changes)

    return write


def test_a_table_has_a_line_for_each_point(root, records):
    records(0, images_per_second=1234.5, test_top1=0.875)
    records(1, status="failed", test_top1=None)
    _, first, second, third, _ = points_table(study_points("made", root)).splitlines()
    assert {"finished", "87.50", "1,234"} <= {*first.split()}
    assert "failed" in second
    assert "to do" in third


def test_a_sweep_runs_the_study_and_logs_every_record(root, records, store, capsys):
    seen = []

    def run(points):
        seen.append(points)
        records(0, 2, 3)
        return no_record(points)

    records(1, status="failed")
    study = checked_study("made", root, ["sweep.jobs=1"])
    assert sweep(study, run)
    assert seen == [[study.points[n] for n in (0, 2, 3)]]
    out = capsys.readouterr().out
    assert "3 finished, 1 failed" in out
    assert f"mlflow ui --backend-store-uri {store}" in out
    experiment = client(store).get_experiment_by_name("paceline/made")
    assert experiment.tags["mlflow.note.content"] == "Does it?"
    runs = client(store).search_runs([experiment.experiment_id])
    assert {run.data.tags["key"]: run.info.run_name for run in runs} == {
        point.key: f"{SHORT[point.config.names['scheme']]} s{point.config.seed}"
        for point in study.points
    }
    assert {run.data.tags["present"] for run in runs} == {"true"}
    assert sorted(run.info.status for run in runs) == ["FAILED"] + 3 * ["FINISHED"]
    assert len({frozenset(run.data.metrics) for run in runs if run.info.status == "FINISHED"}) == 1


def test_a_store_that_fails_in_the_middle_costs_no_record(root, records, store, capsys):
    def run(points):
        with sqlite3.connect(store.removeprefix("sqlite:///")) as database:
            database.execute("DROP TABLE runs")
        records(0, 1, 2, 3)
        return no_record(points)

    assert sweep(checked_study("made", root), run)
    assert counts(study_points("made", root)) == "4 points: 4 finished"
    (line,) = [line for line in capsys.readouterr().err.splitlines() if URI in line]
    assert line.startswith(f"paceline: {URI}: {store} lacks records, which the next sweep logs: ")


@pytest.mark.parametrize(
    ("now", "earlier", "fault", "succeeds"),
    [
        ([0], [], {}, False),
        ([0, 1, 2, 3], [], {}, False),
        ([0], [], {"fault_samples": 64, "fault_seconds": 1.0}, True),  # it was injected
        ([], [1], {}, True),  # a recorded result
        ([], [0, 1, 2, 3], {}, False),
    ],
)
def test_a_point_that_fails_is_a_failure_of_the_sweep_that_ran_it(
    root, records, now, earlier, fault, succeeds
):
    def run(points):
        records(*now, status="failed", **fault)
        records(*({0, 1, 2, 3} - {*now, *earlier}))
        return no_record(points)

    records(*earlier, status="failed")
    assert sweep(checked_study("made", root, UNLOGGED), run) == succeeds


@pytest.mark.parametrize("environment", [False, True])
def test_a_failure_where_a_record_stays_is_a_failure_of_the_sweep(environment, root, records):
    failed = {"status": "failed", "reason": "made to", "environment": environment}
    runs = []

    def run(points):
        runs.extend(point.key for point in points)
        for point in points:
            PartialRecord(point.folder).complete(failed)
        return [failed for _ in points]

    records(0, 1, 2, 3)
    study = checked_study("made", root, [*UNLOGGED, "sweep.rerun=all"])
    assert not sweep(study, run)
    assert sorted(runs) == sorted(
        point.key for point in study.points for _ in range(1 + environment)
    )
    assert counts(study.points) == "4 points: 4 finished"
    assert counts(study_points("made", root)) == "4 points: 4 finished"


def test_more_processes_than_cores_are_warned_of(root, monkeypatch, capsys):
    monkeypatch.setattr("paceline.study.sweep.num_cores", lambda: 3)
    checked_study("made", root, ["sweep.jobs=2"])
    assert "sweep.jobs: 4 processes at a time share 3 cores" in capsys.readouterr().err
    checked_study("made", root, ["sweep.jobs=1"])
    assert "cores" not in capsys.readouterr().err


def test_what_dead_processes_began_is_removed_and_what_they_completed_is_kept(root):
    runs = root / "runs/made"
    alive = PartialRecord(runs / "0123456789ab")
    whole, dead = (runs / f".0123456789a{end}.partial" for end in "cd")
    other = runs / ".gitignore"
    for folder in (whole, dead, other):
        folder.mkdir()
    (whole / "result.json").write_text("{}")
    settle_partial_records(runs)
    lock = runs / ".0123456789ab.lock"
    assert sorted(runs.iterdir()) == sorted([alive.folder, lock, other, runs / "0123456789ac"])


def test_a_second_sweep_waits_for_the_first(root, capsys):
    folder = root / "runs/made"
    ended = []

    def second():
        with one_at_a_time(folder):
            ended.append("second")

    with one_at_a_time(folder):
        other = Thread(target=second)
        other.start()
        while "another process is running made" not in capsys.readouterr().err:
            other.join(0.01)
        ended.append("first")
    other.join()
    assert ended == ["first", "second"]
    assert list(folder.iterdir()) == []


def test_records_that_do_not_fit_are_named_and_made_anew(root, records, capsys):
    records(0, 1)
    (bad, good, *_) = study_points("made", root)
    (bad.folder / "curve.csv").unlink()
    points = [bad, good]
    for point in points:
        point.refresh()
    tell_unfit(point.folder for point in points)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(bad.folder) in line
    assert "curve.csv" in line
    assert to_run(points) == [points[0]]


def test_times_come_from_records_and_follow_the_samples(root, records, studied):
    """The first two points are synchronous, the others have a server. Other studies count."""
    points = study_points("made", root, ["sweep.jobs=2"])
    assert time_of(points, []) is None
    records(0, wall_seconds=7200)
    records(2, wall_seconds=3600)
    results = finished_results(root / "runs")
    assert time_of([points[1], points[3]], results) == "about 1.5 hours"
    studied("other", scheme="sync_allreduce,local_sgd", seed="8")
    other = study_points("other", root, ["training.epochs=1,4", "sweep.jobs=1"])
    words = "about 5.0 hours and 2 points of unknown length"
    assert time_of(other, results) == words
    (by_samples,) = study_points(
        "other", root, ["training.samples=32", "scheme=sync_allreduce", "sweep.jobs=1"]
    )
    assert time_of([by_samples], results) == "about 30.0 minutes"


def test_a_point_takes_the_median_of_what_points_like_it_took(root):
    """One of three was made on a machine that slept."""
    points = study_points("made", root, ["scheme=sync_allreduce", "seed=0,1,2", "sweep.jobs=1"])
    for point, seconds in zip(points, (1200, 600, 90000), strict=True):
        make_record(point.folder, point.config, wall_seconds=seconds)
    assert time_of(points[:1], finished_results(root / "runs")) == "about 20.0 minutes"


def test_times_are_those_of_the_study_itself_where_it_has_any(root, records, studied):
    """Another study may pace its steps, and says so only in its cluster's settings."""
    records(0, wall_seconds=3600)
    (other,) = finished_results(root / "runs")
    own = {**other, "study": "other", "batch_size": 2 * other["batch_size"], "wall_seconds": 60}
    studied("other", scheme="sync_allreduce", seed="8")
    points = study_points("other", root, ["sweep.jobs=1"])
    assert time_of(points, [other]) == "about 1.0 hours"
    assert time_of(points, [other, own]) == "about 1.0 minutes"


RECORDS = {
    "missing": None,
    "finished": {"status": "finished", "source_digest": "now"},
    "diverged": {"status": "diverged", "source_digest": "now"},
    "failed": {"status": "failed", "source_digest": "now"},
    "of a bad machine": {"status": "failed", "environment": True, "source_digest": "now"},
    "old": {"status": "finished", "source_digest": "then"},
    "of other data": {"status": "finished", "source_digest": "now", "data_digest": "then"},
}


def test_points_done_again():
    bad = {"missing", "of a bad machine"}
    stale = {"old", "of other data"}
    again = {"none": bad, "failed": bad | {"failed"}, "stale": bad | stale, "all": set(RECORDS)}
    for rerun, names in again.items():
        ask = Sweep(jobs=1, rerun=rerun).needs_run
        needed = {n for n, r in RECORDS.items() if ask(r, "now", "data_digest" in (r or {}))}
        assert needed == names, rerun


def test_auto_jobs_follow_from_the_machine(monkeypatch):
    """On a virtual clock a point keeps one core busy; real processes are measured by themselves."""
    monkeypatch.setattr("paceline.record.point_config.num_cores", lambda: 12)
    for settings, jobs in (
        (["cluster=virtual"], 12),
        (["cluster=virtual", "cluster.threads_per_worker=5"], 2),
        (["cluster=virtual", "cluster.threads_per_worker=16"], 1),
        (["cluster=local"], 1),
    ):
        found = composed([*settings, "sweep.jobs=auto"], REPOSITORY)
        assert found.sweep.jobs == jobs
        assert found.key == composed([*settings, "sweep.jobs=3"], REPOSITORY).key


def test_data_of_many_points_are_prepared_once(root, monkeypatch, capsys):
    prepare("made", root)  # anybody's data prepare themselves
    assert capsys.readouterr().out == ""
    data = Mock()
    monkeypatch.setattr(Target, "build", lambda _: data)
    prepare("made", root, ["data._target_=paceline.made.Data"])
    data.prepare.assert_called_once_with()
    assert capsys.readouterr().out == "made is there\n"
