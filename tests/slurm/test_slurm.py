"""Points in the queue of a real Slurm: what comes out, and what faults leave behind."""

import os
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from paceline.errors import SettingError
from paceline.record.reading import read_result
from paceline.record.record import records_in
from paceline.study.slurm_jobs import cancel_study, living_jobs, read_jobs
from paceline.study.study_points import study_points
from paceline.study.sweep import checked_study, sweep
from tests.ends import wait_until
from tests.slurm.faults import head_of, writes_to
from tests.slurm.gated import AT_GATE, GATE
from tests.tiny import REPOSITORY

pytestmark = pytest.mark.slow
OFTEN = 1e-6  # s between checkpoints: after each step


def run(project, *overrides):
    """Whether all points of the study have a record after a sweep; none of them runs here."""
    return sweep(checked_study("study", project, overrides), pytest.fail)


@contextmanager
def running(project, *overrides):
    """A sweep that goes on inside, and its outcome."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit(run, project, *overrides)


def results(project):
    """Records by key: all are whole, and none is under way."""
    folder = project / "runs/study"
    assert not list(folder.glob(".*.partial"))
    return {record.name: read_result(record) for record in records_in(folder)}


def times_run(project):
    """How many times each point came to its end in a job, by key."""
    logs = (project / "runs/study/.jobs").glob("*.out")
    told = "".join(path.read_text() for path in logs)
    ends = re.findall(r"paceline: (\w{12}): (?:finished|failed|diverged)", told)
    return {key: ends.count(key) for key in ends}


def keys(project):
    return [point.key for point in study_points("study", project)]


def job_of(project, key):
    return wait_until(lambda: read_jobs(project / "runs/study").get(key))


def at_gate(outcome, project, key, name="worker_0"):
    """The process of a point of that name, which is in training; the sweep goes on meanwhile."""
    log = project / f"runs/study/.{key}.partial/log/{name}.log"

    def found():
        if outcome.done():
            raise AssertionError(f"the sweep has ended: {outcome.result()}")
        says_so = log.exists() and AT_GATE in log.read_text()
        return (says_so or name.startswith("server")) and writes_to(log)

    return wait_until(found)


def test_points_of_every_shape_in_one_sweep(project, write, capfd):
    """Workers 1, 2, 4 of two schemes over one and two nodes, and more seeds over two; nothing is
    left to do then.

    After as many samples no order of pushes leaves the accuracy at chance.
    """
    schemes, long = "sync_allreduce,async_parameter_server", "training.samples=960"
    more = {"scheme": "sync_allreduce", "workers": 4, "seed": "1,2,3,4"}
    write([{"scheme": schemes, "workers": "1,2,4"}, more], points_per_job=5)
    assert run(project, long)
    found = results(project)
    shapes = {
        (each["scheme"], each["workers"], each["servers"], each["nodes"] == "n[1-2]")
        for each in found.values()
    }
    assert shapes == {
        (scheme, workers, int(scheme != "sync_allreduce"), workers == 4)
        for scheme in schemes.split(",")
        for workers in (1, 2, 4)
    }
    assert {(each["status"], each["samples"]) for each in found.values()} == {("finished", 960)}
    assert times_run(project) == dict.fromkeys(found, 1)
    (jobs,) = re.findall(r"10 points queued; jobs (.*)", capfd.readouterr().out)
    assert {each["job"].split("_")[0] for each in found.values()} == set(jobs.split(", "))
    with closing(sqlite3.connect(project / "mlflow.db")) as database:
        ended = database.execute("select status, count(*) from runs group by status")
        assert ended.fetchall() == [("FINISHED", 10)]
        logged = database.execute("select count(*) from latest_metrics where key = 'accuracy/top1'")
        assert logged.fetchone() == (10,)
    assert run(project, long, "cluster.partition=low", "cluster.minutes=5")  # neither is in the key
    assert times_run(project) == dict.fromkeys(found, 1)


def test_a_cancelled_point_is_told_and_runs_in_the_next_sweep(project, write, capfd):
    """On two nodes."""
    write([{"scheme": "sync_allreduce"}], gated=True, workers_per_node=1)
    (key,) = keys(project)
    for overrides, statuses in (((), []), (("sweep.rerun=all",), ["finished"])):
        with running(project, *overrides) as outcome:
            at_gate(outcome, project, key)
            assert cancel_study("study") == 1
            assert outcome.result() is False
        told = capfd.readouterr()
        assert f"{key}: job {job_of(project, key)} left the queue without a new record" in told.err
        assert [result["status"] for result in results(project).values()] == statuses
        GATE.touch()
        assert run(project)
        assert results(project)[key]["status"] == "finished"
        GATE.unlink()
    assert times_run(project) == {key: 1}


def test_killed_processes_end_their_points_and_the_next_of_the_job_runs(project, write):
    """A worker of the first, the server of the second; each record has the logs."""
    grids = [
        {"scheme": "sync_parameter_server"},
        {"scheme": "async_parameter_server", "seed": "0,1"},
    ]
    write(grids, gated=True, points_per_job=3)
    first, second, third = keys(project)
    with running(project) as outcome:
        at_gate(outcome, project, first, "worker_1").kill()
        at_gate(outcome, project, second)
        at_gate(outcome, project, second, "server_0").kill()
        at_gate(outcome, project, third)
        GATE.touch()
        assert not outcome.result()  # what the machine made fail is left to the next sweep
    found = results(project)
    assert [(found[key]["status"], found[key]["reason"]) for key in (first, second, third)] == [
        ("failed", "worker 1: killed by SIGKILL"),
        ("failed", "server 0: killed by SIGKILL"),
        ("finished", ""),
    ]
    assert len({each["job"] for each in found.values()}) == 1
    for key in (first, second):
        logs = {path.name for path in (project / f"runs/study/{key}/1/log").iterdir()}
        assert logs == {"worker_0.log", "worker_1.log", "server_0.log"}
    assert times_run(project) == dict.fromkeys(found, 1)


def test_a_killed_process_of_two_nodes_ends_its_point_and_the_next_of_the_job_runs(project, write):
    write([{"seed": "0,1"}], gated=True, points_per_job=2, workers_per_node=1)
    first, second = keys(project)
    with running(project) as outcome:
        at_gate(outcome, project, first, "worker_1").kill()
        at_gate(outcome, project, second, "worker_1")
        GATE.touch()
        assert outcome.result() is False
    found = results(project)
    assert (found[first]["status"], found[second]["status"]) == ("failed", "finished")
    assert found[first]["reason"] == "worker 1: killed by SIGKILL"
    assert times_run(project) == {first: 1, second: 1}


def test_a_killed_head_ends_its_job_and_the_point_runs_in_the_next_sweep(project, slurm, write):
    write([{"workers": 2}], gated=True)
    (key,) = keys(project)
    with running(project) as outcome:
        at_gate(outcome, project, key, "worker_1")
        head_of(slurm.environment["SLURM_CONF"], job_of(project, key)).kill()
        assert outcome.result() is False
    GATE.touch()
    assert run(project)
    assert times_run(project) == {key: 1}


@pytest.mark.parametrize("taken_by", ["a job of higher priority", "its time limit"])
def test_a_point_whose_allocation_is_taken_is_queued_again(project, slurm, write, taken_by):
    """And is resumed, in the same job, where it was. Two nodes are told before they are taken."""
    several = {} if taken_by == "its time limit" else {"workers_per_node": 1}
    write([{"workers": 2}], gated=True, checkpoints=OFTEN, partition="low", **several)
    (key,) = keys(project)
    with running(project) as outcome:
        at_gate(outcome, project, key, "worker_1")
        job = job_of(project, key)
        if taken_by == "its time limit":  # what Slurm sends before it
            slurm.ask("scancel", "--batch", "--signal=USR2", job)
        else:
            whole = ["--exclusive", "--nodes=2", "--partition=main", "--output=/dev/null"]
            slurm.ask("sbatch", *whole, "--wrap=true")
        wait_until(lambda: "Restarts=1" in slurm.ask("scontrol", "show", "job", job))
        GATE.touch()
        assert outcome.result()
    found = results(project)[key]
    assert (found["job"], found["resumes"], found["samples"]) == (job, 1, 192)
    assert times_run(project) == {key: 1}


def test_another_sweep_goes_on_for_one_that_was_killed(project, write, capfd):
    write([{"workers": 2}], gated=True)
    (key,) = keys(project)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    command = [sys.executable, "-m", "paceline", "sweep", "study"]
    with ThreadPoolExecutor() as pool:
        killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        at_gate(pool.submit(killed.wait), project, key)
        killed.kill()
    capfd.readouterr()
    with running(project) as outcome:
        wait_until(lambda: "0 points queued, 1 were already" in capfd.readouterr().out)
        GATE.touch()
        assert outcome.result()
    assert times_run(project) == {key: 1}


def test_nobody_waits_without_wait_and_the_next_sweep_logs(project, write, capfd):
    """Here for points on a virtual clock, one after the other in one job."""
    write([{"workers": "2,4"}], gated=True, virtual=True, points_per_job=2, wait=False, minutes=10)
    assert run(project)
    assert "2 points: 2 to do" in capfd.readouterr().out
    GATE.touch()
    wait_until(lambda: not living_jobs("study"))
    found = results(project)
    assert {(each["status"], each["kind"]) for each in found.values()} == {("finished", "virtual")}
    assert run(project)
    with closing(sqlite3.connect(project / "mlflow.db")) as database:
        logged = database.execute("select count(*) from latest_metrics where key = 'accuracy/top1'")
        assert logged.fetchone() == (2,)
    assert times_run(project) == dict.fromkeys(found, 1)


def test_what_slurm_would_refuse_is_one_line_and_nothing_is_submitted(project, write, slurm):
    """Not even the point that it would run."""
    write([{"workers": "1,3"}])
    for setting, message in (
        ("cluster.partition=nope", "cluster.partition: sbatch refuses 1 nodes, .*nope"),
        ("cluster.workers_per_node=1", "cluster: sbatch refuses 3 nodes, .*not available"),
        ("cluster.memory_gb=100", "cluster: sbatch refuses 1 nodes, "),
        ("+cluster.arguments.colour=red", "cluster: sbatch refuses .*colour"),
    ):
        with pytest.raises(SettingError, match=f"^{message}"):
            run(project, setting)
    assert not read_jobs(project / "runs/study")
    assert not slurm.ask("squeue", "--noheader")
