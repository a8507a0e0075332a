"""Decisions on planted tables: schemes at 4 workers, with one worker beside them.

Nothing is decided against a scheme whose best trial is at an edge of its search.
"""

import math

import pytest

from paceline.analysis.decision import decision
from paceline.analysis.searches import best_trials, edge_of
from paceline.analysis.tables import read_tables
from tests.made_decisions import made_tuning
from tests.made_reports import fail, make_run, write_reports

AXES = ["scheme", "workers", "batch_size", "seed"]
NOISE = (-0.0015, -0.0005, 0.0005, 0.0015)


def arm(scheme, speed, top1, workers=4, turn=0, **changes):
    """Four runs; the order of their noise over the seeds differs by `turn`."""
    return [
        make_run(
            scheme,
            workers,
            seed=seed,
            images_per_second=100.0 * speed,
            top1=top1 + NOISE[(seed + turn) % 4],
            test_top1=top1 + NOISE[(seed + turn) % 4],
        )
        | {"kind": "virtual", "optimizer": "SGD"}
        | changes
        for seed in range(4)
    ]


def decided(folder, runs, **about):
    return decision(read_tables(write_reports(folder, runs, **{"axes": AXES} | about)))


def verdicts(folder, runs, **about):
    rows = decided(folder, runs, **about).query("workers == 4")
    return dict(zip(rows["scheme"], rows["verdict"], strict=True))


ONE = arm("sync_allreduce", 1, 0.90, workers=1)


@pytest.mark.parametrize(
    ("schemes", "expected"),
    [
        # twice as fast, within the margin of a point, even if significantly less accurate
        ({"sync_allreduce": (1.5, 0.90), "gossip": (3, 0.895)}, "slower, use"),
        ({"sync_allreduce": (1.5, 0.90), "gossip": (3, 0.85)}, "use, less accurate"),
        # on the margin nothing is shown
        ({"sync_allreduce": (1.5, 0.90), "gossip": (3, 0.89)}, "use, less accurate"),
        # faster by less than the error of modelled time: the simplest
        ({"sync_allreduce": (3, 0.90), "gossip": (3.8, 0.90)}, "use, as fast"),
        ({"mixed": (3.8, 0.90), "gossip": (3, 0.90)}, "as fast, use"),
        ({"sync_allreduce": (3, 0.90), "gossip": (3.9, 0.90)}, "slower, use"),
        # what is less accurate is no rival in speed
        ({"gossip": (3, 0.90), "mixed": (9, 0.7)}, "use, less accurate"),
        ({"sync_allreduce": (0.8, 0.90)}, "not faster than one worker"),
        # faster than one worker by less than the error of modelled time, beside one that is faster
        ({"sync_allreduce": (1.2, 0.90)}, "not faster than one worker"),
        ({"sync_allreduce": (1.2, 0.90), "gossip": (1.4, 0.90)}, "as fast, use"),
        ({"sync_allreduce": (2, 0.90), "independent": (9, 0.90)}, "use, "),
    ],
)
def test_the_fastest_that_loses_at_most_the_margin_is_used(tmp_path, schemes, expected):
    runs = [
        run
        for turn, (scheme, numbers) in enumerate(schemes.items())
        for run in arm(scheme, *numbers, turn=turn)
    ]
    found = verdicts(tmp_path / "made", [*ONE, *runs])
    assert ", ".join(found[scheme] for scheme in schemes) == expected


@pytest.mark.parametrize(
    ("speed", "expected"), [(3.8, ["use", "as fast"]), (3.9, ["slower", "use"])]
)
def test_gradients_are_compressed_only_if_this_is_faster(tmp_path, speed, expected):
    name = "scheme.compression"
    whole = arm("sync_allreduce", 3, 0.90, **{name: "none"})
    fewer = arm("sync_allreduce", speed, 0.90, turn=1, **{name: "fp16"})
    fewer = [run | {"key": f"fp16_{run['key']}"} for run in fewer]
    rows = decided(tmp_path / "made", [*ONE, *whole, *fewer], axes=[*AXES, name])
    assert rows.query("workers == 4")["verdict"].tolist() == expected


def test_speed_of_real_processes_is_told_apart_by_a_t_test(tmp_path):
    """A tenth faster in each pass is faster; in two passes of four it is not."""
    runs = [*arm("sync_allreduce", 3, 0.90), *arm("gossip", 3.3, 0.90, turn=1)]
    measured = [run | {"kind": "measured"} for run in runs]
    assert verdicts(tmp_path / "clear", measured)["gossip"] == "use"
    for run, speed in zip(measured[4:], (290, 340, 290, 400), strict=True):
        run["images_per_second"] = speed
    assert verdicts(tmp_path / "unclear", measured) == {
        "sync_allreduce": "use",
        "gossip": "as fast",
    }


@pytest.mark.parametrize(("seeds", "verdict"), [(2, "use"), (4, "not faster than one worker")])
def test_an_interval_of_two_seeds_does_not_speak_against_a_scheme(tmp_path, seeds, verdict):
    """1.2 and 2.4 times as fast, and then half as fast and 1.2 times."""
    runs = [run | {"kind": "measured"} for run in [*ONE, *arm("gossip", 1.2, 0.9)]]
    for run, speed in zip(runs[4:], (120, 240, 50, 120), strict=True):
        run["images_per_second"] = speed
    kept = [run for run in runs if run["seed"] < seeds]
    assert verdicts(tmp_path / "made", kept) == {"gossip": verdict}


def test_without_accuracies_the_fastest_is_used(tmp_path):
    runs = [*arm("sync_allreduce", 2, 0.9), *arm("gossip", 3, 0.8)]
    for run in runs:
        run |= {"top1": None, "test_top1": None}
    assert verdicts(tmp_path / "made", runs) == {"sync_allreduce": "slower", "gossip": "use"}


def test_a_scheme_of_which_a_run_did_not_train_is_not_used(tmp_path):
    runs = [*ONE, *arm("sync_allreduce", 2, 0.9), *arm("gossip", 3, 0.9)]
    runs[-1] = fail(runs[-1], "diverged")
    runs += [fail(run) for run in arm("mixed", 9, 0.9)]
    assert verdicts(tmp_path / "made", runs) == {
        "sync_allreduce": "use",
        "gossip": "not trained",
        "mixed": "",
    }


def test_a_run_whose_machine_failed_says_nothing_against_a_scheme(tmp_path):
    runs = [*ONE, *arm("sync_allreduce", 2, 0.9), *arm("gossip", 3, 0.9, turn=1)]
    runs[-1] = fail(runs[-1])
    table = decided(tmp_path / "made", runs).set_index(["scheme", "workers"])
    row = table.loc[("gossip", 4)]
    assert (row["n"], row["n_failed"], row["top1_n"], row["verdict"]) == (4, 1, 3, "use")


def test_few_seeds_of_the_most_accurate_do_not_speak_against_the_others(tmp_path):
    """Its machine failed in three of four runs."""
    gossip = arm("gossip", 2, 0.9055)
    runs = [*ONE, gossip[0], *map(fail, gossip[1:])]
    runs += [*arm("sync_allreduce", 3, 0.9), *arm("local_sgd", 3, 0.9, turn=1)]
    found = verdicts(tmp_path / "made", runs)
    assert found == {"gossip": "less accurate", "sync_allreduce": "use", "local_sgd": "as fast"}


def test_two_seeds_are_told_apart_in_speed_by_their_means(tmp_path):
    runs = [*arm("sync_allreduce", 2, 0.9)[:2], *arm("gossip", 10, 0.9)[:2]]
    runs = [run | {"kind": "measured", "top1": None, "test_top1": None} for run in runs]
    assert verdicts(tmp_path / "made", runs) == {"sync_allreduce": "slower", "gossip": "use"}


def test_local_sgd_is_judged_by_itself_if_all_reduce_did_not_train(tmp_path):
    runs = [run | {"scheme.period": None} for run in ONE]
    lost = [fail(run, "diverged") for run in arm("sync_allreduce", 2, 0.9)]
    runs += [run | {"scheme.period": None} for run in lost]
    runs += arm("local_sgd", 3, 0.9, **{"scheme.period": 1})
    found = verdicts(tmp_path / "made", runs, axes=[*AXES, "scheme.period"])
    assert found == {"sync_allreduce": "not trained", "local_sgd": "use"}


def test_a_single_seed_shows_nothing_but_is_the_most_accurate(tmp_path):
    runs = [*arm("sync_allreduce", 2, 0.9)[:1], *arm("gossip", 3, 0.901, turn=1)[:1]]
    assert verdicts(tmp_path / "made", runs) == {
        "sync_allreduce": "less accurate",
        "gossip": "use",
    }


def test_tests_are_adjusted_for_the_number_of_schemes_of_a_situation(tmp_path):
    """What one scheme shows alone, two equal ones do not."""
    lost = [0.0, -0.001, -0.004, -0.007]
    gossip = arm("gossip", 3, 0.9)
    for run, value in zip(gossip, lost, strict=True):
        run |= {"top1": 0.9 + 2 * value, "test_top1": 0.9 + 2 * value}
    allreduce = [run | {"top1": 0.9, "test_top1": 0.9} for run in arm("sync_allreduce", 1, 0.9)]
    alone = verdicts(tmp_path / "alone", [*allreduce, *gossip], margin=1.45)
    assert alone["gossip"] == "use"
    mixed = [run | {"scheme": "mixed", "key": f"{run['key']}m"} for run in gossip]
    both = verdicts(tmp_path / "both", [*allreduce, *gossip, *mixed], margin=1.45)
    assert (both["gossip"], both["mixed"]) == ("less accurate", "less accurate")


def test_nothing_is_said_against_a_scheme_whose_best_rate_is_at_an_edge(tmp_path):
    runs = [*ONE, *arm("sync_allreduce", 2, 0.9), *arm("gossip", 3, 0.8)]
    trials = made_tuning(runs[4:], {"gossip": "highest effective_rate"})
    found = decided(tmp_path / "made", runs, trials=trials).query("workers == 4")
    found = found.set_index("scheme")
    assert dict(found["verdict"]) == {"sync_allreduce": "use", "gossip": "not judged"}
    assert found.loc["gossip", "at_edge"] == "highest effective_rate"


@pytest.mark.parametrize(
    ("top1", "verdict"),
    [(0.9002, "equivalent"), (0.92, "better"), (0.895, "worse"), (0.85, "worse")],
)
def test_accuracies_are_judged_against_one_worker(tmp_path, top1, verdict):
    table = decided(tmp_path / "made", [*ONE, *arm("gossip", 2, top1, turn=1)])
    assert list(table["one_worker_accuracy"]) == ["", verdict]
    row = table.iloc[1]
    assert row["one_worker_top1_difference_mean"] == pytest.approx(top1 - 0.9)
    # differences of the noise by seed: 1, 1, 1 and -3 thousandths
    half = 3.18244631 * 0.001
    assert row["one_worker_top1_difference_high"] == pytest.approx(top1 - 0.9 + half)


def test_few_seeds_with_a_wide_interval_tell_nothing(tmp_path):
    runs = arm("gossip", 2, 0.9)[:2]
    for run, value in zip(runs, (0.88, 0.91), strict=True):
        run |= {"top1": value, "test_top1": value}
    table = decided(tmp_path / "made", [*ONE, *runs])
    assert list(table["one_worker_accuracy"]) == ["", "not told"]


def test_the_loss_is_against_the_most_accurate_scheme(tmp_path):
    runs = [*ONE, *arm("sync_allreduce", 2, 0.88), *arm("gossip", 3, 0.9)]
    rows = decided(tmp_path / "made", runs).query("workers == 4").set_index("scheme")
    assert rows.loc["sync_allreduce", "loss_mean"] == pytest.approx(-0.02)
    assert math.isnan(rows.loc["gossip", "loss_mean"])


def test_one_worker_has_no_verdict(tmp_path):
    runs = [*ONE, *arm("gossip", 1, 0.9, workers=1)]
    assert list(decided(tmp_path / "made", runs)["verdict"]) == ["", ""]


SEARCHES = {100: [0.5, 0.9, 0.7], 101: [0.8, 0.6, None]}  # None: diverged


@pytest.fixture
def tuned(tmp_path):
    """Tables of a study with these rows of tuning.csv: `tuned(rows)`."""

    def write(rows):
        axes = ["scheme", "workers", "training.rate", "seed"]
        runs = [make_run(**{"training.rate": rate}, key=rate) for rate in ("by_rule", "tuned")]
        return read_tables(write_reports(tmp_path / "made", runs, rows, axes=axes))

    return write


def trials(workers=4, edge="", searches=SEARCHES):
    """Rows of a configuration; test top-1 is half that of validation, the last is chosen."""
    rows = [
        {
            "key": f"{workers}-{seed}-{index}",
            "scheme": "gossip",
            "workers": workers,
            "seed": seed,
            "lr": 0.1 + index,
            "momentum": 0.5,
            "top1": top1,
            "test_top1": top1 and top1 / 2,
            "status": "diverged" if top1 is None else "finished",
            "chance": 0.1,
            "chosen": "false",
            "at_edge": "",
        }
        for seed, scores in searches.items()
        for index, top1 in enumerate(scores)
    ]
    rows[-1] |= {"chosen": "true", "at_edge": edge}
    return rows


def test_nothing_is_said_against_a_configuration_whose_best_lies_at_an_edge(tuned):
    waits = [row | {"chosen": "false"} for row in trials(workers=16)]
    tables = tuned([*trials(), *trials(workers=8, edge="lowest learning rate"), *waits])
    said = {
        (rate, workers): edge_of(
            tables, {"scheme": "gossip", "workers": workers, "training.rate": rate}
        )
        for rate in ("tuned", "by_rule")
        for workers in (4, 8, 16)
    }
    assert {key: edge for key, edge in said.items() if edge} == {
        ("tuned", 8): "lowest learning rate",
        ("tuned", 16): "tuning has not ended",
    }


def test_without_tuning_there_is_no_edge(tuned):
    tables = tuned([])
    assert edge_of(tables, {"scheme": "gossip", "workers": 4}) == ""
    assert best_trials(tables).empty
