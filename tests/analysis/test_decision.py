"""Decisions on planted tables: schemes at 4 workers, with one worker beside them."""

import numpy as np
import pytest

from paceline.analysis.decision import Timed, decision, is_faster, tiers
from paceline.analysis.statistics.times import NEVER, Crossing, restricted_mean
from paceline.analysis.tables import read_tables
from paceline.analysis.time_to_target import targets
from tests.made_decisions import AXES, arm, made_family, write_decided
from tests.made_reports import fail, make_run, write_points, write_reports


def decided(folder, runs, **about):
    return decision(read_tables(write_decided(folder, runs, **about)))


def unexplained(unturned):
    """Standard deviation of accuracies that seeds do not explain: `unturned` arms, three others."""
    rows = np.array([np.roll(np.arange(4), -turn) for turn in (*[0] * unturned, 1, 2, 3)]) / 1000
    rest = rows - rows.mean(axis=0) - rows.mean(axis=1, keepdims=True) + rows.mean()
    return np.sqrt((rest**2).sum() / (len(rows) - 1) / 3)


@pytest.fixture
def family(tmp_path):
    table = decided(tmp_path / "made", made_family())
    return table[table["workers"] == 4].set_index("scheme")


def test_tiers_are_by_the_time_to_the_target(family):
    assert dict(family["tier"]) == {
        "sync_allreduce": "behind",
        "gossip": "best",
        "local_sgd": "tied",
        "mixed": "behind",
        "async_parameter_server": "never",
    }


def test_speed_ups_are_against_the_best_one_worker_runs(family):
    """They cross at 705 to 735 s, gossip's of 4 workers at 205 to 235 s."""
    row = family.loc["gossip"]
    assert row["baseline"] == "scheme=gossip batch_size=32"
    assert (row["target_seconds_mean"], row["worker_seconds"]) == (220, 880)
    assert row["speedup_mean"] == pytest.approx(720 / 220)
    assert row["speedup_low"] < 720 / 220 < row["speedup_high"]


def test_speed_ups_are_against_the_reference_too(family):
    """All-reduce of 4 workers crosses at 305 to 335 s."""
    row = family.loc["gossip"]
    assert row["reference_speedup_mean"] == pytest.approx(320 / 220)
    assert row["reference_speedup_low"] < 320 / 220 < row["reference_speedup_high"]
    assert family.loc["sync_allreduce", "reference_speedup_mean"] == 1
    assert np.isnan(family.loc["sync_allreduce", "reference_speedup_low"])


def test_a_reference_that_never_gets_there_is_no_measure_of_speed(tmp_path):
    runs = [*arm("sync_allreduce", 801, 0.9, workers=1), *arm("sync_allreduce", None, 0.9)]
    table = decided(tmp_path / "made", [*runs, *arm("gossip", 201, 0.9)])
    assert table["reference_speedup_mean"].isna().tolist() == [False, True, True]
    assert table["speedup_mean"].isna().tolist() == [False, True, False]


def test_a_lost_run_leaves_no_speed_up_and_none_is_shown(tmp_path):
    """Its time would be that of the horizon, which says nothing of the scheme."""
    one = arm("sync_allreduce", 801, 0.9, workers=1)
    losing = arm("gossip", 201, 0.9)
    losing[0]["crossing"] = None
    (_, first) = decided(tmp_path / "made", [*one, *losing]).to_dict("records")
    assert (first["tier"], first["n_reached"]) == ("best", 3)
    assert np.isnan(first["speedup_mean"])
    assert not is_faster(first)
    (alone,) = decided(tmp_path / "alone", losing).to_dict("records")  # held to no one worker
    assert is_faster(alone)


def test_the_baseline_is_once_as_fast_as_itself_without_doubt(tmp_path):
    table = decided(tmp_path / "made", made_family()).set_index(["scheme", "workers"])
    row = table.loc[("gossip", 1)]
    assert row["speedup_mean"] == 1
    assert np.isnan(row["speedup_low"])


def test_a_scheme_that_never_gets_there_has_the_horizon_for_a_time(family):
    row = family.loc["async_parameter_server"]
    assert (row["n_reached"], row["target_seconds_mean"]) == (0, 1000)
    assert np.isnan(row["speedup_low"])


def test_accuracies_are_judged_against_the_reference_with_the_margin(family):
    verdicts = dict(family["accuracy"])
    assert verdicts.pop("sync_allreduce") == ""
    assert verdicts == {
        "gossip": "equivalent",
        "local_sgd": "worse",  # and within the margin of a point
        "mixed": "worse",
        "async_parameter_server": "worse",
    }
    assert dict(family["within_margin"])["local_sgd"] == 1
    assert dict(family["within_margin"])["mixed"] == 0
    row = family.loc["mixed"]
    assert row["top1_difference_mean"] == pytest.approx(-0.05)
    half = row["top1_difference_high"] - row["top1_difference_mean"]
    assert half / (unexplained(2) * np.sqrt(2 / 4)) == pytest.approx(2.81, abs=0.01)  # Dunnett


def test_accuracies_are_judged_against_the_runs_of_one_worker(family):
    """Those of gossip, at 90.0 %: a family of all schemes, the reference too."""
    row = family.loc["mixed"]
    assert row["one_worker_top1_difference_mean"] == pytest.approx(-0.05)
    half = row["one_worker_top1_difference_high"] - row["one_worker_top1_difference_mean"]
    assert half / (unexplained(3) * np.sqrt(2 / 4)) == pytest.approx(2.82, abs=0.01)  # Dunnett
    assert dict(family["one_worker_accuracy"]) == {
        "sync_allreduce": "equivalent",
        "gossip": "equivalent",
        "local_sgd": "worse",
        "mixed": "worse",
        "async_parameter_server": "worse",
    }


def test_one_worker_is_not_held_against_itself(tmp_path):
    table = decided(tmp_path / "made", made_family())
    alone = table[table["workers"] == 1]
    assert alone["one_worker_top1_difference_mean"].isna().all()


def test_one_run_that_fails_the_target_leaves_a_scheme_behind(tmp_path):
    runs = made_family()
    lost = next(run for run in runs if run["scheme"] == "local_sgd")
    lost |= {"crossing": None, "status": "diverged"}
    table = decided(tmp_path / "made", runs).set_index(["scheme", "workers"])
    row = table.loc[("local_sgd", 4)]
    assert (row["n"], row["n_reached"], row["n_diverged"]) == (4, 3, 1)
    assert row["tier"] == "behind"
    assert row["target_seconds_mean"] == pytest.approx((1000 + 225 + 235 + 205) / 4)


def test_situations_are_families_of_their_own(tmp_path):
    """A single run of gossip with 2 workers borrows the spread of its family, not of others."""
    runs = [*made_family(), *arm("sync_allreduce", 501, 0.9, workers=2)]
    runs += arm("gossip", 401, 0.7, workers=2)[:1]
    table = decided(tmp_path / "made", runs)
    two = table[table["workers"] == 2].set_index("scheme")
    assert two.loc["gossip", "top1_difference_mean"] == pytest.approx(-0.2015)  # the first seed's
    assert two.loc["gossip", "accuracy"] == "worse"
    four = table[(table["workers"] == 4) & (table["scheme"] == "mixed")].iloc[0]
    assert four["top1_difference_mean"] == pytest.approx(-0.05)


def test_settings_of_schemes_are_schemes_of_the_same_family(tmp_path):
    runs = made_family()
    for run in runs:
        run["scheme.period"] = 8 if run["scheme"] == "local_sgd" else ""
    longer = arm("local_sgd", 251, 0.9)
    for run in longer:
        run |= {"scheme.period": 64, "key": f"{run['key']}x"}
    axes = [*AXES, "scheme.period"]
    table = decided(tmp_path / "made", [*runs, *longer], axes=axes)
    four = table[table["workers"] == 4]
    assert list(four[four["scheme"] == "local_sgd"]["scheme.period"]) == [8, 64]
    assert list(four["tier"]).count("best") == 1


@pytest.mark.parametrize(
    ("scheme", "period", "optimizer", "listed"),
    [
        ("local_sgd", 1, "SGD", False),
        ("local_sgd", 2, "SGD", True),
        ("local_sgd", 1, "Adam", True),  # whose steps are not linear in the gradients
        ("mixed", 1, "SGD", True),
    ],
)
def test_local_sgd_with_a_mean_after_each_step_is_all_reduce(
    tmp_path, scheme, period, optimizer, listed
):
    runs = arm("sync_allreduce", 801, 0.90, workers=1)
    runs += arm("sync_allreduce", 301, 0.90, **{"scheme.period": None})
    runs += arm("gossip", 401, 0.90, **{"scheme.period": None})
    settings = {"scheme.period": period, "optimizer": optimizer}
    runs += arm(scheme, 201, 0.90, **settings)
    runs[-1] = fail(runs[-1]) | {"optimizer": None}
    found = decided(tmp_path / "made", runs, axes=[*AXES, "scheme.period"])
    rows = found[found["workers"] == 4].set_index("scheme")
    assert rows.loc[scheme, "tier"] == ("best" if listed else "")
    assert rows.loc["sync_allreduce", "tier"] == ("behind" if listed else "best")
    assert rows.loc[scheme, "one_worker_top1_difference_n"] > 0


def test_without_a_target_accuracies_are_judged_and_tiers_are_empty(tmp_path):
    runs = [*arm("sync_allreduce", 301, 0.90), *arm("mixed", 301, 0.85)]
    table = decided(tmp_path / "made", runs, target=None)
    assert list(table["tier"]) == ["", ""]
    assert list(table["accuracy"]) == ["", "worse"]


def test_one_seed_has_no_verdict(tmp_path):
    runs = [run for run in made_family() if run["seed"] == 0]
    table = decided(tmp_path / "made", runs)
    assert set(table["accuracy"]) == {""}
    assert set(table["tier"]) == {"best", "tied", "never"}


def test_runs_whose_machine_failed_are_no_outcome(tmp_path):
    runs = made_family()
    at = next(place for place, run in enumerate(runs) if run["scheme"] == "gossip")
    runs[at] = fail(runs[at])
    row = decided(tmp_path / "made", runs).iloc[1]
    assert [row[name] for name in ("scheme", "n", "n_failed")] == ["gossip", 4, 1]
    assert (row["n_reached"], row["target_seconds_n"]) == (3, 3)


def test_ties_need_a_test_and_the_clear_are_told():
    def times(*values):
        return restricted_mean([Crossing(value, value) for value in values], horizon=1000)

    far, near, best = times(800, 810, 790), times(212, 215, 205), times(200, 210, 215)
    assert tiers([Timed(far), Timed(near), Timed(best)]) == ["behind", "tied", "best"]
    assert tiers([Timed(restricted_mean([NEVER], 1000))] * 2) == ["never", "never"]
    assert tiers([Timed(best)]) == ["best"]
    late = times(400, 410, 395)
    assert tiers([Timed(late), Timed(best)]) == ["behind", "best"]
    assert tiers([Timed(late, error=1.0), Timed(best)]) == ["tied", "best"]  # of an unsure target
    assert tiers([Timed(late, error=1.0), Timed(best, error=1.0)]) == ["behind", "best"]


def test_of_schemes_tied_in_time_the_less_accurate_name_a_more_accurate_one(tmp_path):
    """Mixed groups are behind, and so are no rival, whatever they score."""
    runs = [*arm("sync_allreduce", 801, 0.90, workers=1), *arm("gossip", 200, 0.885)]
    runs += [*arm("local_sgd", 205, 0.900), *arm("async_parameter_server", 203, 0.892)]
    runs += arm("mixed", 451, 0.95)
    table = decided(tmp_path / "made", runs).query("workers == 4").set_index("scheme")
    assert dict(table["tier"]) == {
        "gossip": "best",
        "local_sgd": "tied",
        "async_parameter_server": "tied",
        "mixed": "behind",
    }
    assert dict(table["less_accurate_than"]) == {
        "gossip": "local_sgd",
        "local_sgd": "",
        "async_parameter_server": "local_sgd",
        "mixed": "",
    }


def rising(scheme, workers, seed, top1, evaluations):
    """A run and its curve, which rises by a point an evaluation from `top1`."""
    run = make_run(scheme, workers, seed=seed, seconds=1000.0, top1=top1 + evaluations / 100)
    rows = [
        {"key": run["key"], "samples": n, "updates": n, "seconds": 10.0 * n, "top1": top1 + n / 100}
        for n in range(1, evaluations + 1)
    ]
    return run, rows


def test_the_error_of_the_target_is_in_times(tmp_path):
    """Mean 0.8 of one worker, its error 1.2 points; gossip crosses 0.78 at 27.5 evaluations."""
    ends = (0.78, 0.8, 0.82)  # standard deviation 0.02, error 0.02 / sqrt(3)
    made = [rising("sync_allreduce", 1, seed, end - 0.4, 40) for seed, end in enumerate(ends)]
    made += [rising("gossip", 2, seed, 0.5 + seed / 1000, 40) for seed in range(3)]
    folder = write_reports(tmp_path / "made", [run for run, _ in made], axes=AXES)
    write_points(folder, {"curve": [row for _, rows in made for row in rows]})
    table = decision(read_tables(folder)).set_index("scheme")
    row = table.loc["gossip"]
    assert row["target"] == pytest.approx(0.78)
    assert targets(read_tables(folder))["error"].item() == pytest.approx(0.02 / np.sqrt(3))
    moved = np.log((row["target_seconds_mean"] + 10) / (row["target_seconds_mean"] - 10)) / 2
    half = np.log(row["target_seconds_high"] / row["target_seconds_mean"]) / 4.303
    assert half >= moved * 0.99
    asked = {"metric": "top1", "value": 0.78}  # a target of the study has no error
    write_reports(tmp_path / "asked", [run for run, _ in made], axes=AXES, target=asked)
    write_points(tmp_path / "asked", {"curve": [row for _, rows in made for row in rows]})
    other = decision(read_tables(tmp_path / "asked")).set_index("scheme").loc["gossip"]
    assert other["target_seconds_mean"] == pytest.approx(row["target_seconds_mean"])
    assert other["target_seconds_high"] < row["target_seconds_high"]
