"""A study with tuning, as a user types it: two points at a time, then again."""

import json

import pytest

from tests.command_line import results, run, run_anew
from tests.small_study import STUDY, write_small_study

SETTINGS = {
    "batch_size": 10,
    "training": {"samples": 200},
    "measurement": STUDY["measurement"] | {"evaluations": 2},
    "sweep": {"jobs": 2},
    "tuning": {"values": [1e-05, 0.03125], "seed": 100},
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
    assert lines[2].startswith("tuned, tuning: 2 points: ")
    assert lines[5] == "tuned: 2 points: 2 finished"
    found = [(result["seed"], result["lr"]) for result in results(root, "tuned")]
    assert sorted(found) == [(0, 0.03125), (0, 0.05), (100, 1e-05), (100, 0.03125)]


def test_a_second_sweep_runs_nothing(swept):
    root, lines = swept
    code, again, errors = run(root, "sweep", "tuned")
    assert (code, again, errors) == (0, [lines[2], lines[5]], [])


def test_what_is_missing_of_both_parts_is_run_again(swept):
    """As after a sweep that was killed."""
    root, _ = swept
    files = (root / "runs/tuned").glob("[!.]*/result.json")
    lost = {json.loads(path.read_text())["seed"]: path for path in files}
    for path in lost.values():
        path.unlink()
    code, lines, errors = run(root, "sweep", "tuned", "sweep.jobs=1")
    assert (code, len(lines), errors) == (0, 6, [])
    assert sum(line.endswith("already there") for line in lines) == 2
    assert len(results(root, "tuned")) == 4


def test_a_tuned_point_by_itself_is_that_of_the_study(swept):
    root, _ = swept
    asked = ("experiments=tuned", "training.rate=tuned")
    code, lines, _ = run(root, "train", *asked)
    assert code == 0
    assert lines[0].endswith("already there")
    assert " lr=0.03125 " in lines[0]
    code, _, errors = run(root, "train", *asked, "batch_size=20")
    assert code == 2
    assert errors[0].startswith("paceline: training.rate: tuned, but not all of its trials")
    code, _, errors = run(root, "train", "training.rate=tuned")
    assert code == 2
    assert errors == ["paceline: training.rate: tuned, but the study has no tuning"]
