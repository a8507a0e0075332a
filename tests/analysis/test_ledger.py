"""Claims of papers: worlds in which each statistic's claim is true or false, and its verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from paceline.analysis.claim_tests import STATISTICS, Observed, read_study, select
from paceline.analysis.claims import Claim, read_claims, read_published
from paceline.analysis.ledger import FAILS, HOLDS, OPEN, judge, ledger
from paceline.errors import SettingError
from tests.made_reports import make_run, write_reports, write_rows

ROOT = Path(__file__).parents[2]
WORLDS, SEEDS = 200, 5
BOUNDS = {  # claimed range, and what is true where the claim is true, false, and just false
    "ratio": ((1.8, 2.6), 2.2, 3.5, 1.8),
    "difference": ((-0.01, 0.01), 0, 0.03, 0.01),
    "distance": ((0.005, None), -0.02, 0, 0.005),
    "slope": ((0.9, 1.1), 1, 2, 1.1),
}
ONE, OTHER = ({"scheme": scheme, "workers": 8} for scheme in ("gossip", "sync_allreduce"))
TEXTS = {"id": "made", "paper": "a", "says": "It holds.", "source": "Table 1", "runs": "made"}
RATIO = {"statistic": "ratio", "of": "seconds", "left": {"workers": 1}, "right": {"workers": 2}}
RATIO |= {"claimed": [1.8, 2.2]}
EQUAL = {"statistic": "difference", "of": "test_top1", "claimed": [-0.01, 0.01]}


def made_claim(**changes):
    return Claim(**TEXTS | RATIO | {"along": "workers"} | changes)


def share_that_holds(claim, worlds):
    found = (STATISTICS[claim.statistic](claim, seen) for seen in worlds)
    return np.mean([judge(each.low, each.high, claim.claimed) == HOLDS for each in found])


def worlds_of(statistic, true):
    """Tables of five seeds, whose effects the groups of a table share."""
    random, along = np.random.default_rng(0), np.array([2.0, 4.0, 8.0])
    is_log, effect = statistic in ("ratio", "slope"), np.array([true, 0.0])
    if is_log:
        effect = np.log([true, 1]) if statistic == "ratio" else true * np.log(along)
    for _ in range(WORLDS):
        noise = random.standard_normal((len(effect), SEEDS)) + random.standard_normal(SEEDS)
        values = effect[:, None] + (0.02 if is_log else 0.001) * noise
        yield Observed(np.exp(values) if is_log else values, along)


@pytest.mark.parametrize("statistic", BOUNDS)
def test_true_claims_hold_and_false_ones_do_not(statistic):
    claimed, true, false, edge = BOUNDS[statistic]
    claim = made_claim(statistic=statistic, claimed=claimed)
    assert share_that_holds(claim, worlds_of(statistic, true)) >= 0.95
    assert share_that_holds(claim, worlds_of(statistic, false)) == 0
    assert share_that_holds(claim, worlds_of(statistic, edge)) <= 0.05 + 3 * 0.016  # three errors


def curves(curve, along):
    random = np.random.default_rng(0)
    for _ in range(WORLDS):
        noise = 0.02 * random.standard_normal((len(along), SEEDS))
        yield Observed(np.exp(np.log(curve)[:, None] + noise), along)


@pytest.mark.parametrize("allowed", [0, 0.1])
@pytest.mark.parametrize("least", [True, False])
def test_a_knee_is_inside_of_its_axis(allowed, least):
    """Flat and monotone curves have none; a curve that stays level has one if that is allowed."""
    along = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    claim = made_claim(statistic="knee", claimed=(2, 8), least=least, allowed=allowed)
    for power in (0, -0.03, 0.03, -1, 1):
        assert share_that_holds(claim, curves(along**power, along)) <= 0.05
    peak = np.exp(-(np.log(along / 4) ** 2)) ** (-1 if least else 1)
    assert share_that_holds(claim, curves(peak, along)) >= 0.95
    level = np.minimum(along, 4) ** (-1.0 if least else 1.0)
    assert (share_that_holds(claim, curves(level, along)) >= 0.95) == (allowed > 0)


def test_three_equal_seeds_of_a_flat_curve_are_no_knee():
    """Their places are equal by chance in one of some dozens of such studies."""
    values = np.ones((4, 3))
    values[1] = 1.001, 1.01, 1.1
    claim = made_claim(statistic="knee", claimed=(2, 8))
    found = STATISTICS["knee"](claim, Observed(values, np.array([1.0, 2.0, 4.0, 16.0])))
    assert (found.mean, found.low, found.high) == (pytest.approx(2), 1, 16)


def test_a_verdict_follows_from_interval_and_range():
    ends = {HOLDS: [(1.9, 2.5), (1.8, 2.6)], FAILS: [(2.7, 3), (0.5, 0.8)]}
    ends[OPEN] = [(1.7, 2.5), (0.5, 3), (math.nan, math.nan)]
    for verdict, intervals in ends.items():
        assert {judge(*each, (1.8, 2.6)) for each in intervals} == {verdict}
    assert judge(0.5, 0.9, (None, 1)) == HOLDS
    assert judge(1.1, 9, (1, None)) == HOLDS


@pytest.fixture
def root(tmp_path):
    (tmp_path / "papers").mkdir()
    return tmp_path


def row_of(root, **claim):
    (root / "papers/claims.yaml").write_text(yaml.safe_dump([TEXTS | claim]))
    (row,) = ledger(root)
    return row


def verdict_of(root, **claim):
    row = row_of(root, **claim)
    return row["verdict"], row["reason"]


def write_study(root, factor=2.0, seeds=4, last=None, **about):
    runs = [
        make_run(workers=w, seed=seed, seconds=(1 + seed / 100) * factor ** (w == 1), test_top1=0.8)
        for w in (1, 2)
        for seed in range(seeds)
    ]
    runs[-1] |= last or {}
    return write_reports(root / "reports/made", runs, **about)


def test_verdicts_on_runs_and_what_leaves_a_claim_open(root):
    write_study(root)
    assert verdict_of(root, **RATIO)[0] == HOLDS
    reason = "Cores are shared (by its interval alone: holds)."
    assert verdict_of(root, **RATIO, limit="Cores are shared.") == (OPEN, reason)
    assert "not made yet: paceline sweep other" in verdict_of(root, **RATIO | {"runs": "other"})[1]
    write_study(root, factor=3.0)
    assert verdict_of(root, **RATIO)[0] == FAILS
    write_study(root, seeds=2)
    assert verdict_of(root, **RATIO) == (OPEN, "It has runs of 2 seeds, and a test needs 3.")


def test_lost_runs_count(root):
    """A run that did not train has an accuracy of 0; one that failed or was late tells nothing."""
    equal = EQUAL | {"left": {"workers": 2}, "right": {"workers": 1}}
    write_study(root)
    assert verdict_of(root, **equal)[0] == HOLDS
    write_study(root, last={"status": "diverged", "test_top1": None})
    verdict, reason = verdict_of(root, **equal)
    assert (verdict, "1 failed" in reason) == (OPEN, False)
    late = {"samples": 2496.0, "dropped_samples": 64.0, "batch_size": 8, "late_steps": 4}
    for last in ({"status": "failed", "test_top1": None}, late, {"seed": 7}):
        write_study(root, last=last)
        lost = 2 if "seed" in last else 1
        assert f" {lost} failed, are missing" in verdict_of(root, **equal)[1]


def test_a_selection_that_is_wrong_is_named(root):
    write_study(root)
    for changes, told in (
        ({"left": {"workers": 7}}, "no run .group 1"),
        ({"left": {"scheme": "sync_allreduce"}}, "several runs of a seed .group 1"),
        ({"left": {"nothing": 7}}, "no setting nothing"),
        ({"statistic": "spread"}, "too few groups"),
        ({"statistic": "knee", "along": "workers", "left": {"seed": [0, 1, 2]}}, "too few groups"),
        ({"left": {}}, "ratio needs left"),
        ({"statistic": "slope"}, "slope needs along"),
        ({"value": 2}, r"claim\.value"),
    ):
        with pytest.raises(SettingError, match=told):
            verdict_of(root, **RATIO | changes)


def test_null_selects_a_setting_that_is_not_set_or_is_gone(root):
    write_study(root, settings={"model.width": 4})
    study, claim = read_study("made", root), made_claim()
    assert len(select(claim, study, {"gone": ["own", None], "workers": 1})) == 4
    assert not len(select(claim, study, {"model.width": [None, 8]}))
    study.runs["gone"] = ["own", "", None, "first"] * 2
    assert len(select(claim, study, {"gone": ["own", None]})) == 6


def write_searched(root, chosen="true", edge=""):
    """Two schemes with 2 and 8 workers and four seeds, at the last of six trials of each."""
    runs, trials = [], []
    for scheme, workers in [(s, w) for s in ("sync_allreduce", "gossip") for w in (2, 8)]:
        cost = 0.02 * (scheme == "gossip")
        for seed in range(4):
            own = {"test_top1": 0.88 - cost + seed / 1000, "lr": 0.4 / workers, "momentum": 0.5}
            runs.append(make_run(scheme, workers, 32, seed, **own))
        for number in range(6):
            lr, is_last = 0.4 / workers * 2.0 ** (5 - number), number == 5
            own = {"key": f"{scheme}-{workers}-{number}", "scheme": scheme, "workers": workers}
            own |= {"seed": 100, "lr": lr, "momentum": 0.5, "status": "finished", "chance": 0.1}
            own |= {"chosen": chosen if is_last else "false", "at_edge": edge if is_last else ""}
            trials.append(own | {"top1": 0.88 - cost + 0.004 * number, "test_top1": 0.88})
    about = {"axes": ["scheme", "workers", "seed"], "settings": {"training.rate": "tuned"}}
    write_reports(root / "reports/made", runs, trials, **about)


def test_a_search_that_says_nothing_leaves_a_claim_open(root):
    sides = EQUAL | {"left": ONE, "right": OTHER, "claimed": [-0.1, 0.1]}
    write_searched(root)
    assert verdict_of(root, **sides)[0] == HOLDS
    assert verdict_of(root, **sides | {"statistic": "ratio", "of": "images_per_second"})[0] == FAILS
    write_searched(root, edge="lowest learning rate")
    reason = "The best trial of a search is at the edge of its range (lowest learning rate)."
    assert verdict_of(root, **sides) == (OPEN, reason)
    write_searched(root, chosen="false")
    assert "tuning has not ended" in verdict_of(root, **sides)[1]


def test_a_prediction_of_which_a_part_is_assumed_or_fitted_decides_nothing(root):
    claim = {"statistic": "predicted", "published": ["two"], "claimed": [1.7, None]}
    assert "not predicted yet" in verdict_of(root, **claim)[1]
    path = root / "reports/predictions/predictions.csv"
    path.parent.mkdir(parents=True)
    for kind, low, expected in (
        ("judged", 1.8, HOLDS),
        ("judged", 1.6, OPEN),
        ("judged", "", OPEN),
        ("settings assumed", 1.8, OPEN),
    ):
        row = {"row": "two", "predicted": 2, "low": low, "high": 2.4, "verdict": kind}
        write_rows(path, list(row), [row, row | {"row": "other"}])
        assert verdict_of(root, **claim)[0] == expected


def test_claims_name_numbers_papers_and_runs_that_exist():
    published = read_published(ROOT)
    deps = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["papers"]["deps"]
    for claim in read_claims(ROOT):
        assert (ROOT / f"papers/{claim.paper}.md").is_file()
        for name in claim.published:
            assert published[name]["verified"] == "yes"
            assert published[name]["value"] in claim.says
        table = claim.runs if claim.runs.endswith(".csv") else f"reports/{claim.runs}/runs.csv"
        assert not claim.runs or ((ROOT / table).is_file() and table in deps)
