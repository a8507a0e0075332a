"""The answer is what decision.csv says, in words."""

import re
from dataclasses import replace

import pytest

from paceline.analysis.analyse import analyse
from paceline.report.answer import answers, summary_sentences
from paceline.report.findings import read_findings
from paceline.report.use_counts import counted
from tests.made_decisions import AXES, arm, made_family, made_tuning, two_arms, write_decided
from tests.made_reports import fail, make_run, write_rows


@pytest.fixture
def decided(tmp_path):
    """Findings of these runs with their times to the target: `decided(runs)`."""

    def make(runs, tuning=(), **about):
        folder = write_decided(tmp_path / "made", runs, **about)
        if tuning:
            write_rows(folder / "tuning.csv", list(tuning[0]), tuning)
        analyse(folder)
        return read_findings(folder)

    return make


def test_a_situation_has_the_best_scheme_and_the_others_by_tier(decided):
    found = decided(made_family())
    (answer,) = answers(found)
    row = found.concluded["decision"].query("tier == 'best' and workers == 4").iloc[0]
    assert (answer.situation, answer.use) == ("4 workers", "gossip")
    low, mean, high = (f"{row[f'speedup_{end}']:.1f}" for end in ("low", "mean", "high"))
    assert answer.text == (
        f"{mean} ({low} to {high}) times as fast as the best one worker; 4 of 4 runs reached "
        "80.0 % on validation images."
    )
    one_worker, reference, tied, behind, never = answer.details
    assert tied.startswith("Not told from it (times as fast as one worker): local SGD 3.")
    assert behind.startswith("Behind (times as fast as one worker): all-reduce 2.")
    assert "; mixed groups 1." in behind
    assert never == "Never there: asynchronous servers."
    assert one_worker.startswith("Against one worker: accuracy +0.02 (")
    assert one_worker.endswith(" points, not told apart, and within the margin.")
    low, mean, high = (f"{row[f'reference_speedup_{end}']:.1f}" for end in ("low", "mean", "high"))
    assert reference.startswith(
        f"Against all-reduce: {mean} ({low} to {high}) times as fast, accuracy +0.02 ("
    )
    assert reference.endswith(" points, not told apart, and within the margin.")


def test_nothing_is_said_against_a_scheme_at_the_edge_of_its_search(decided):
    edges = {"async_parameter_server": "lowest effective_rate", "mixed": "lowest effective_rate"}
    (answer,) = answers(decided(made_family(), made_tuning(made_family(), edges)))
    text = " ".join(answer.details)
    assert "Never there" not in text
    assert (
        "Not judged, since the best rate lies at an edge of what was tried: mixed groups; "
        "asynchronous servers." in text
    )
    assert "Behind (times as fast as one worker): all-reduce " in text


def test_the_accuracy_of_a_scheme_at_the_edge_of_its_search_is_not_judged(decided):
    runs = [run for run in made_family() if run["scheme"] in ("sync_allreduce", "gossip")]
    tuning = made_tuning(runs, {"gossip": "highest effective_rate"})
    (answer,) = answers(decided(runs, tuning))
    assert answer.use == "gossip"
    for detail in answer.details[:2]:
        assert detail.endswith("not judged, since its best rate lies at an edge of what was tried.")


def test_tables_of_older_code_are_answered_by_what_they_have(decided):
    found = decided(made_family())
    decision = found.concluded["decision"]
    older = decision[[name for name in decision if not name.startswith(("one_", "reference_"))]]
    (answer,) = answers(replace(found, concluded=found.concluded | {"decision": older}))
    assert answer.details[0].startswith("Against all-reduce: accuracy +0.02 (")
    assert not any("Against one worker" in text for text in answer.details)


def test_where_no_run_reaches_the_target_no_scheme_is_named(decided):
    runs = [*arm("sync_allreduce", 801, 0.9, workers=1), *arm("sync_allreduce", None, 0.7)]
    runs += arm("gossip", None, 0.6)
    (answer,) = answers(decided(runs))
    assert (answer.use, answer.text) == ("", "No run reached 80.0 % on validation images.")
    assert answer.details[0].startswith("The most images per second: all-reduce, 400")


def test_without_a_target_the_most_images_per_second_are_named_and_nothing_to_use(findings):
    runs = [make_run(s, 2, seed=n) for s in ("sync_allreduce", "gossip") for n in (0, 1, 2)]
    for run in runs:
        run["images_per_second"] = 100.0 + run["seed"] + 50 * (run["scheme"] == "gossip")
    (answer,) = answers(findings(runs, axes=AXES))
    assert (answer.use, answer.details) == ("", [])
    assert answer.text.startswith("the most images per second: gossip, 151 (")


def test_the_target_is_said_with_its_images(decided):
    settings = {"measurement.curve_images": 2000}
    (answer,) = answers(decided(made_family(), settings=settings))
    assert "runs reached 80.0 % on 2,000 validation images." in answer.text


def test_what_to_use_is_not_known_without_a_target(findings):
    runs = [
        make_run("sync_allreduce", 2, seed=n, key=f"{scheme}{n}{size}")
        | {"scheme": scheme, "batch_size": size}
        for scheme in ("sync_allreduce", "gossip")
        for n in (0, 1)
        for size in range(1, 10)
    ]
    assert summary_sentences(findings(runs, axes=AXES)) == [
        "Of 9 situations, the one to use is: not known in 9."
    ]


def test_where_one_worker_is_faster_it_is_to_be_used(decided):
    runs = [*arm("sync_allreduce", 101, 0.9, workers=1), *arm("sync_allreduce", 801, 0.9)]
    runs += arm("gossip", 201, 0.9)
    (answer,) = answers(decided(runs))
    assert answer.use == "one worker"
    assert answer.text.startswith("of several, gossip is first; 0.55 (0.46 to 0.64) times as fast")
    assert answer.details[2] == "Behind (times as fast as one worker): all-reduce 0.15."


def test_where_no_speed_up_is_shown_one_worker_is_to_be_used(decided):
    runs = [*arm("sync_allreduce", 221, 0.9, workers=1), *arm("sync_allreduce", 801, 0.9)]
    runs += arm("gossip", 201, 0.9)
    (answer,) = answers(decided(runs))
    assert answer.use == "one worker"
    assert answer.text.startswith("no speed-up is shown; of several, gossip is first; 1.1 (0.9")


def lose(runs, number=1):
    """Let so many runs not get there."""
    return [run | ({"crossing": None} if n < number else {}) for n, run in enumerate(runs)]


def test_where_one_worker_loses_runs_nothing_is_known_to_be_faster(decided):
    runs = [*lose(arm("sync_allreduce", 801, 0.9, workers=1)), *arm("gossip", 201, 0.9)]
    (answer,) = answers(decided([*runs, *arm("local_sgd", 401, 0.9)]))
    assert answer.use == ""
    assert answer.text == (
        "gossip is first; 4 of 4 runs reached 80.0 % on validation images, and 3 of 4 of one "
        "worker: how much sooner is not known."
    )


def test_of_those_not_told_apart_one_that_is_shown_to_be_faster_is_used(decided):
    """The first lost runs, and is not told from another that lost one, or none."""

    def made(lost):
        one = arm("sync_allreduce", 801, 0.9, workers=1)
        return [*one, *lose(arm("gossip", 201, 0.9)), *lose(arm("local_sgd", 401, 0.9), lost)]

    found = decided(made(0))
    decision = found.concluded["decision"]
    decision.loc[decision["scheme"] == "gossip", "tier"] = "best"
    decision.loc[decision["scheme"] == "local_sgd", "tier"] = "tied"
    (answer,) = answers(found)
    assert answer.use == "local SGD"
    assert answer.details[-1] == "Not told from it: gossip (3 of 4 runs got there)."
    (answer,) = answers(decided(made(1)))
    assert answer.use == ""
    assert answer.text.endswith("of one worker: how much sooner is not known.")


def test_one_lost_run_is_told_beside_who_is_behind_for_it(decided):
    runs = made_family()
    lost = next(run for run in runs if run["scheme"] == "local_sgd")
    lost["crossing"] = None
    (answer,) = answers(decided(runs))
    (behind,) = (text for text in answer.details if text.startswith("Behind"))
    assert re.search(r"local SGD \(3 of 4 runs got there\)", behind)
    assert behind.count("got there") == 1


def test_rates_by_rule_are_no_answer_where_tuned_ones_are_there(decided):
    rate, axes = "training.rate", [*AXES, "training.rate"]
    runs = [run | {rate: "tuned"} for run in made_family()]
    runs += [run | {rate: "by_rule", "key": f"{run['key']}r"} for run in made_family()]
    assert [each.situation for each in answers(decided(runs, axes=axes))] == [
        "4 workers, tuned rate"
    ]
    only = [run | {rate: "by_rule"} for run in made_family()]
    assert len(answers(decided(only, axes=axes))) == 1


def test_many_situations_are_counted_by_their_scheme(decided):
    runs = arm("sync_allreduce", 801, 0.9, workers=1)
    for workers in range(2, 11):
        runs += arm("sync_allreduce", 301, 0.9, workers=workers)
        runs += arm("gossip", 201 if workers < 8 else 401, 0.9, workers=workers)
    found = decided(runs)
    assert len(answers(found)) == 9
    (text,) = summary_sentences(found)
    assert text == "Of 9 situations, the one to use is: gossip in 6; all-reduce in 3."


def test_many_situations_are_counted_by_their_size_too(decided):
    slow, axes = "cluster.slow_workers", [*AXES, "cluster.slow_workers"]
    runs = [run | {slow: 0} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    for workers in range(2, 7):
        for late in (0, 1):
            first = 201 if late else 301 if workers < 6 else 1001
            crossings = (301 if workers < 6 else 901, first)
            runs += two_arms(crossings, workers, **{slow: late})
    found = decided(runs, axes=axes)
    assert len(answers(found)) == 10
    most, *others = counted(found)
    assert (most.words, most.use) == (
        "6 workers, 2 situations",
        "one worker in 1, that of even workers; "
        "gossip in 1, that of one slow worker (the others are later, or lose runs)",
    )
    assert list(most.rows["scheme"]) == ["gossip"]
    for each in others:
        names = each.use.replace(" (others are not told from it)", "")
        assert {*names.split("; ")} == {
            "gossip in 1, that of one slow worker (the others are later, or lose runs)",
            "all-reduce in 1, that of even workers",
        }
        assert {*each.rows["scheme"]} == {"gossip", "sync_allreduce"}
    assert counted(decided(made_family())) == []


def test_a_single_scheme_is_compared_with_none(findings):
    found = findings([make_run(seed=seed) for seed in (0, 1)])
    assert answers(found) == []
    assert summary_sentences(found)[0].startswith("Nothing can be said between schemes")


def test_without_a_finished_point_there_is_no_answer(findings):
    (text,) = summary_sentences(findings([fail(make_run(seed=0))]))
    assert text.startswith("No point has finished yet")


def test_split_workers_are_compared_by_their_processes(decided):
    shards, split = "model.shards", "model.split"
    runs = [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    runs += [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 401, 0.9, 2)]
    divided = arm("sync_allreduce", 201, 0.9, workers=1)
    runs += [run | {shards: 2, split: "auto", "key": f"{run['key']}d"} for run in divided]
    found = decided(runs, axes=[*AXES, shards, split])
    (answer,) = answers(found)
    assert answer.situation == "2 processes"
    assert answer.use == "all-reduce, 1 worker of 2 processes, auto"
    assert answer.details[1].startswith("Behind (times as fast as one worker): all-reduce ")
    best = found.concluded["decision"].query("tier == 'best' and processes == 2").iloc[0]
    assert best["worker_seconds"] == pytest.approx(2 * best["target_seconds_mean"])
