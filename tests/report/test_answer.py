"""The answer is what decision.csv says: which scheme, with which numbers, and which others."""

import math

import pandas as pd
import pytest

from paceline.report.answer import ONE, UNKNOWN, answers, choice
from paceline.report.findings import read_findings
from paceline.report.words import scheme_name
from tests.made_decisions import AXES, arm, made_family, write_decided
from tests.made_findings import decided, made_findings, numbers, spread
from tests.made_reports import make_run

GOSSIP, ASYNCHRONOUS = scheme_name("gossip"), scheme_name("async_parameter_server")
FASTER, SLOWER, UNSURE = (3.0, 2.0, 4.0), (0.5, 0.4, 0.6), (1.2, 0.9, 1.5)


def answer_of(*rows, **findings):
    (answer,) = answers(made_findings(rows, **findings))
    return answer


def detail(answer, *names):
    """The only detail that names all of these."""
    (found,) = (text for text in answer.details if all(name in text for name in names))
    return found


@pytest.fixture
def written(tmp_path):
    """Findings of these runs with their times to the target: `written(runs)`."""

    return lambda runs, **about: read_findings(write_decided(tmp_path / "made", runs, **about))


def test_numbers_are_those_of_the_table(written):
    found = written(made_family())
    (answer,) = answers(found)
    rows = found.concluded["decision"].query("workers == 4").set_index("scheme")
    best = rows.loc["gossip"]
    assert (answer.situation, answer.use) == ("4 workers", GOSSIP)
    ends = ("mean", "low", "high")
    assert numbers(answer.text)[:3] == [f"{best[f'speedup_{end}']:.1f}" for end in ends]
    assert numbers(answer.text)[3:] == ["4", "4", "80.0"]
    points = [f"{100 * best[f'one_worker_top1_difference_{end}']:+.2f}" for end in ends]
    assert numbers(answer.details[0]) == points
    speeds = [f"{best[f'reference_speedup_{end}']:.1f}" for end in ends]
    points = [f"{100 * best[f'top1_difference_{end}']:+.2f}" for end in ends]
    assert numbers(answer.details[1]) == [*speeds, *points]
    tied, behind, never = answer.details[2:]
    assert "local SGD" in tied
    assert numbers(tied) == [f"{rows.loc['local_sgd', 'speedup_mean']:.1f}"]
    assert numbers(behind) == [
        f"{rows.loc[name, 'speedup_mean']:.1f}" for name in ("sync_allreduce", "mixed")
    ]
    assert ASYNCHRONOUS in never


@pytest.mark.parametrize(
    ("speedup", "use", "phrase"),
    [
        (FASTER, GOSSIP, "3.0 (2.0 to 4.0) times as fast"),
        (UNSURE, "", "too few seeds or trials"),
        ((1.01, 0.95, 1.05), ONE, "no significant speed-up"),
        (SLOWER, ONE, "only 0.50 (0.40 to 0.60) times as fast"),
    ],
)
def test_a_scheme_is_used_if_its_whole_interval_is_above_one_worker(speedup, use, phrase):
    answer = answer_of(decided("gossip", "best", speedup), decided("mixed", "never", reached=0))
    assert answer.use == use
    assert phrase in answer.text
    assert numbers(answer.text)[-3:] == ["4", "4", "80.0"]


def test_where_one_worker_misses_the_target_no_speed_up_is_known():
    row = decided("gossip", "best", baseline_reached=3)
    answer = answer_of(row, decided("mixed", "behind", reached=2))
    assert (answer.use, choice(pd.DataFrame([row])).use) == ("", UNKNOWN)
    assert numbers(answer.text) == ["4", "4", "80.0", "3", "4"]
    assert numbers(detail(answer, "mixed groups")) == ["2", "4"]


def test_without_runs_of_one_worker_the_best_is_used():
    row = decided("gossip", "best", baseline="", baseline_n=math.nan, baseline_reached=math.nan)
    answer = answer_of(row, decided("mixed", "behind"))
    assert (answer.use, numbers(answer.text)) == (GOSSIP, ["4", "4", "80.0"])


def test_of_tied_schemes_one_that_is_shown_to_be_faster_is_used():
    """The best missed the target in a run."""
    first = decided("gossip", "best", reached=3)
    answer = answer_of(first, decided("local_sgd", "tied", FASTER))
    assert answer.use == "local SGD"
    assert numbers(detail(answer, GOSSIP)) == ["3", "4"]
    assert answer_of(first, decided("local_sgd", "tied", reached=3)).use == ""


@pytest.mark.parametrize(
    ("accuracy", "within", "edge", "words"),
    [
        ("worse", 0, "", "points, lower."),
        ("not told", 0, "", "points, not significantly different."),
        ("equivalent", 1, "", "points, not significantly different and within the margin."),
        ("worse", 1, "lowest lr", "points, not judged"),
    ],
)
def test_accuracies_are_judged_unless_the_search_ends_at_its_best(accuracy, within, edge, words):
    sides = {}
    for side in ("", "one_worker_"):
        sides |= spread(f"{side}top1_difference", 0.01, -0.02, 0.04)
        sides |= {f"{side}accuracy": accuracy, f"{side}within_margin": within}
    answer = answer_of(
        decided("gossip", "best", FASTER, at_edge=edge, **sides), decided("mixed", "tied", FASTER)
    )
    assert all(words in text for text in answer.details[:2])
    assert numbers(answer.details[0]) == ["+1.00", "-2.00", "+4.00"]


def test_of_tied_schemes_a_less_accurate_one_is_not_used():
    first = decided("gossip", "best", FASTER, less_accurate_than="local_sgd")
    second = decided("local_sgd", "tied", FASTER)
    answer = answer_of(first, second)
    assert answer.use == "local SGD"
    assert "less accurate" in detail(answer, GOSSIP)
    slow = answer_of(first, second | {"speedup_low": 0.9})  # not shown to be faster than one
    assert slow.use == ""
    assert "local SGD" in slow.text


def test_nothing_is_said_against_a_scheme_at_the_edge_of_its_search():
    edge = {"at_edge": "lowest lr"}
    answer = answer_of(
        decided("gossip", "best", FASTER),
        decided("sync_allreduce", "behind", UNSURE),
        decided("mixed", "behind", UNSURE, **edge),
        decided("async_parameter_server", "never", reached=0, **edge),
    )
    assert detail(answer, "mixed groups", ASYNCHRONOUS) == answer.details[-1]
    assert "all-reduce" not in answer.details[-1]
    assert not any(text.startswith("Never") for text in answer.details)


def test_without_a_target_that_is_reached_images_per_second_are_told_and_nothing_to_use():
    rows = [
        decided(name, "never", reached=0, **spread("images_per_second", rate, rate - 1, rate + 1))
        for name, rate in (("gossip", 300.0), ("sync_allreduce", 400.0))
    ]
    answer = answer_of(*rows)
    assert (answer.use, numbers(answer.text)) == ("", ["80.0"])
    assert not answer.details  # virtual images/s follow from what the study assumes
    at_edge = answer_of(rows[0], rows[1] | {"at_edge": "lowest lr"})
    assert len(at_edge.text) > len(answer.text)
    measured = [row | {"kind": "measured"} | spread("speedup", 1.5, 1.4, 1.6) for row in rows]
    told = ["400", "399", "401", "3", "1.5", "1.4", "1.6", "300", "299", "301", "3"]
    (detail,) = answer_of(*measured, configurations=pd.DataFrame(measured)).details
    assert numbers(detail)[:11] == told
    untold = [row | {"tier": "", "target": math.nan} for row in measured]
    answer = answer_of(*untold, configurations=pd.DataFrame(untold))
    assert (answer.use, answer.text, answer.details) == ("", detail, [])
    assert "No run finished" in answer_of(*untold).text


@pytest.mark.parametrize(
    ("settings", "target", "expected"),
    [
        ({}, None, ["80.0"]),
        ({"measurement.curve_images": 2000}, None, ["80.0", "2,000"]),
        ({}, {"metric": "top5", "value": 0.8}, ["80.0", "-5"]),
        ({}, {"metric": "loss", "value": 0.8}, ["0.80"]),
    ],
)
def test_the_target_is_said_with_its_images(settings, target, expected):
    rows = [decided("gossip", "best", FASTER), decided("mixed", "behind", UNSURE)]
    answer = answer_of(*rows, settings=settings, target=target)
    assert numbers(answer.text)[5:] == expected


def test_rates_by_rule_are_no_answer_where_tuned_ones_are_there():
    rate, axes = "training.rate", ("scheme", "workers", "training.rate")
    rows = [
        decided(name, tier, FASTER, **{rate: value})
        for value in ("tuned", "by_rule")
        for name, tier in (("gossip", "best"), ("mixed", "tied"))
    ]
    assert len(answers(made_findings(rows, axes=axes))) == 1
    only = [row for row in rows if row[rate] == "by_rule"]
    assert len(answers(made_findings(only, axes=axes))) == 1


def test_split_workers_are_compared_by_their_processes(written):
    shards, split = "model.shards", "model.split"
    runs = [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    runs += [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 401, 0.9, 2)]
    divided = arm("sync_allreduce", 201, 0.9, workers=1)
    runs += [run | {shards: 2, split: "auto", "key": f"{run['key']}d"} for run in divided]
    found = written(runs, axes=[*AXES, shards, split])
    (answer,) = answers(found)
    assert answer.situation == "2 processes"
    assert answer.use == "all-reduce, 1 worker of 2 processes, auto"
    best = found.concluded["decision"].query("tier == 'best' and processes == 2").iloc[0]
    assert best["worker_seconds"] == pytest.approx(2 * best["target_seconds_mean"])


def test_a_study_without_schemes_to_choose_from_compares_all_configurations(findings):
    """By top-1, or by images/s if no run was evaluated, whose budget is then not named."""
    axes = ["scheme", "workers", "batch_size", "training.epochs", "seed"]
    own = {32: 1, 128: 2}
    runs = [
        make_run(batch_size=batch, seed=seed, **{"training.epochs": epochs})
        for batch, epochs in own.items()
        for seed in (0, 1)
    ]
    first, second = answers(findings(runs, axes=axes))
    assert first.situation == "32 images per worker and step, 1 epoch"
    assert second.situation == "128 images per worker and step, 2 epochs"
    tops = [run["test_top1"] for run in runs]
    difference = 50 * (sum(tops[2:]) - sum(tops[:2]))
    assert f"; {difference:+.2f} (" in second.text
    assert "the first" not in first.text
    scores = dict.fromkeys(("top1", "test_top1", "validation_loss"))
    first, second = answers(findings([run | scores for run in runs], axes=axes))
    assert first.situation == "32 images per worker and step"
    speeds = [run["images_per_second"] for run in runs]
    ratio = (speeds[2] * speeds[3] / speeds[0] / speeds[1]) ** 0.5
    assert f"; {ratio:.1f} (" in second.text
