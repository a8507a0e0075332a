"""A study with tuning, as a user types it, and then again."""

import pytest

from paceline.record.archive import ARCHIVE
from tests.command_line import results, run, run_anew
from tests.small_study import STUDY, write_small_study

pytestmark = pytest.mark.slow
SETTINGS = {
    "batch_size": 10,
    "training": {"samples": 200},
    "measurement": STUDY["measurement"] | {"evaluations": 2},
    "tuning": {
        "effective_rate": [0.0001, 0.3],
        "one_minus_momentum": [0.1, 1],
        "searches": 1,
        "trials": 2,
        "extensions": 1,
        "extension_trials": 1,
        "seed": 126,  # one trial is too small to learn by, the other in the outer tenth
    },
}


@pytest.fixture(scope="module")
def swept(root):
    axes = {"training.rate": "by_rule,tuned"}
    write_small_study(root, "tuned", axes, cluster="virtual", **SETTINGS)
    code, lines, errors = run_anew(root, "sweep", "tuned")
    assert (code, errors) == (0, [])
    return root, lines


TRIED = [  # lr and momentum; the last in the extension
    (0.00019, 0.233),
    (0.05418, 0.742),
    (0.2261, 0.823),
]


def test_tuning_comes_first_and_its_best_rate_is_trained_with(swept):
    root, lines = swept
    ends = [line for line in lines if line.startswith("tuned")]
    assert [end.partition(" points: ")[0] for end in ends] == [
        "tuned, tuning: 2",
        "tuned, tuning, extension 1: 1",
        "tuned: 2",
    ]
    trials, reported = parts(root)
    assert sorted((trial["lr"], trial["momentum"]) for trial in trials) == TRIED
    rate = best(trials)
    assert rate != TRIED[0]
    assert sorted((each["lr"], each["momentum"]) for each in reported) == sorted(
        [(0.05, 0.9), rate]
    )
    assert {each["seed"] for each in reported} == {0}


def parts(root):
    """The records of trials, and those of the study's own points."""
    found = results(root, "tuned")
    trials = [each for each in found if each["seed"] == 126]
    return trials, [each for each in found if each not in trials]


def best(trials):
    finished = [trial for trial in trials if trial["status"] == "finished"]
    found = max(finished, key=lambda trial: trial["top1"])
    return found["lr"], found["momentum"]


def test_a_second_sweep_runs_nothing(swept):
    root, lines = swept
    code, again, errors = run(root, "sweep", "tuned")
    ends = [line for line in lines if line.startswith("tuned")]
    assert (code, again, errors) == (0, [*ends, lines[-1]], [])


def test_what_is_missing_of_both_parts_is_run_again(swept):
    """As after a sweep that was killed."""
    root, _ = swept
    trials, reported = parts(root)
    lr, _ = best(trials)
    lost = [each["key"] for each in trials if each["lr"] == TRIED[2][0]]
    lost += [each["key"] for each in reported if each["lr"] == lr]
    (root / "reports/tuned" / ARCHIVE).unlink()  # from which they would come back
    for key in lost:
        (root / "runs/tuned" / key / "result.json").unlink()
    code, lines, errors = run(root, "sweep", "tuned", "sweep.jobs=1")
    assert (code, errors) == (0, [])
    assert sum(line.startswith("point ") for line in lines) == len(lost), lines
    assert len(results(root, "tuned")) == 5


def test_a_tuned_point_by_itself_is_that_of_the_study(swept):
    root, _ = swept
    asked = ("experiments=tuned", "training.rate=tuned")
    code, lines, _ = run(root, "train", *asked)
    assert code == 0
    assert lines[0].endswith("already there")
    lr, _ = best(parts(root)[0])
    assert f" lr={lr} " in lines[0]
    code, _, errors = run(root, "train", *asked, "batch_size=20")
    assert code == 2
    assert errors[0].startswith("paceline: training.rate: tuned, but some trials have no record")
    code, _, errors = run(root, "train", "training.rate=tuned")
    assert code == 2
    assert errors == ["paceline: training.rate: tuned, but the study has no tuning"]
