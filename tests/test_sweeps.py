"""A sweep as a user types it, with tuning, and again; and one that is killed and goes on."""

import subprocess

import psutil
import pytest

from paceline.record.archive import ARCHIVE
from paceline.record.record import records_in
from tests.command_line import results, run, run_anew, start
from tests.ends import all_end, wait_until
from tests.made_records import rows_of
from tests.small_study import STUDY, write_small_study

pytestmark = pytest.mark.slow
SETTINGS = {
    "batch_size": 10,
    "training": {"samples": 200},
    "measurement": STUDY["measurement"] | {"evaluations": 2},
    "tuning": {
        "effective_rate": 0.1,
        "momentum": [0.0],
        "rates": 3,
        "finalists": 1,
        "repeats": 1,
        "seed": 126,
    },
}


@pytest.fixture(scope="module")
def swept(root):
    axes = {"training.rate": "by_rule,tuned"}
    write_small_study(root, "tuned", axes, cluster="virtual", **SETTINGS)
    code, lines, errors = run_anew(root, "sweep", "tuned")
    assert (code, errors) == (0, [])
    return root, lines


def test_tuning_comes_first_and_its_best_rate_is_trained_with(swept):
    root, lines = swept
    ends = [line for line in lines if line.startswith("tuned")]
    grid, *others, final, points = [end.partition(" points: ")[0] for end in ends]
    assert grid == "tuned, tuning: 3"
    assert all(end.endswith(": 1") for end in (*others, final))  # wider, and the best again
    assert points == "tuned: 2"
    trials, reported = parts(root)
    rates = {(each["lr"], each["momentum"]) for each in reported}
    assert rates == {(0.05, 0.9), best(root)}
    tried = {(each["lr"], each["momentum"]) for each in trials}
    assert len(tried) == len(trials) - 1 == 3 + len(others)
    assert best(root) in tried
    assert {each["seed"] for each in reported} == {0}


def parts(root):
    """The records of trials, and those of the study's own points."""
    found = results(root, "tuned")
    trials = [each for each in found if each["seed"] in (126, 127)]
    return trials, [each for each in found if each not in trials]


def best(root):
    """The learning rate and momentum that the search chose."""
    rows = rows_of(root / "reports/tuned/tuning.csv")
    ((lr, momentum),) = {(r["lr"], r["momentum"]) for r in rows if r["chosen"] == "true"}
    return float(lr), float(momentum)


def test_a_second_sweep_runs_nothing(swept):
    root, lines = swept
    code, again, errors = run(root, "sweep", "tuned")
    number = len(parts(root)[0])
    ends = [f"tuned, tuning: {number} points: {number} finished", "tuned: 2 points: 2 finished"]
    assert (code, again, errors) == (0, [*ends, lines[-1]], [])


def test_what_is_missing_of_both_parts_is_run_again(swept):
    """As after a sweep that was killed."""
    root, _ = swept
    trials, reported = parts(root)
    lost = [each["key"] for each in (trials[0], *reported) if each["seed"] or each["lr"] != 0.05]
    (root / "reports/tuned" / ARCHIVE).unlink()  # from which they would come back
    for key in lost:
        (root / "runs/tuned" / key / "1/result.json").unlink()
    code, lines, errors = run(root, "sweep", "tuned", "sweep.jobs=1")
    assert (code, errors) == (0, [])
    assert sum(line.startswith("point ") for line in lines) == len(lost), lines
    assert len(results(root, "tuned")) == len(trials) + len(reported)


def test_a_tuned_point_by_itself_needs_its_study(swept):
    root, _ = swept
    code, _, errors = run(root, "train", "experiments=tuned", "training.rate=tuned")
    assert code == 2
    message = "found by the search of a study; run paceline sweep tuned"
    assert errors == [f"paceline: training.rate: {message}"]
    code, _, errors = run(root, "train", "training.rate=tuned")
    assert code == 2
    assert errors == ["paceline: training.rate: tuned, but the study has no tuning"]


@pytest.mark.parametrize(("command", "jobs"), [("sweep", 1), ("train", 2)])
def test_a_killed_sweep_leaves_no_process_and_goes_on(command, jobs, root):
    study = f"{command}{jobs}"
    write_small_study(root, study, {"seed": "0,1,2"}, training={"epochs": 90})
    asked = [study] if command == "sweep" else ["--multirun", f"experiments={study}"]
    arguments = (command, *asked, f"sweep.jobs={jobs}")
    finished = kill_in_the_second_point(root, study, arguments)
    code, _, errors = run(root, *arguments[:-1], "sweep.jobs=1")
    assert (code, errors) == (0, [])
    assert [result["status"] for result in results(root, study)] == ["finished"] * 3
    assert finished
    assert all(path.stat().st_mtime_ns == before for path, before in finished.items())
    if command == "sweep":
        assert not list((root / "runs" / study).glob(".*"))


def kill_in_the_second_point(root, study, arguments):
    """SIGKILL while a point trains and another has ended; when which records were written."""
    folder = root / "runs" / study
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with start(root, *arguments, **silent, start_new_session=True) as launcher:
        try:
            wait_until(lambda: records_in(folder))
            wait_until(lambda: list(folder.glob(".*/progress.csv")))
            family = psutil.Process(launcher.pid).children(recursive=True)
        finally:
            launcher.kill()
    assert len(family) >= 3  # the forkserver and two workers
    finished = {p: p.stat().st_mtime_ns for p in folder.glob("[!.]*/1/result.json")}
    all_end(family)
    assert 1 <= len(records_in(folder)) < 3
    return finished
