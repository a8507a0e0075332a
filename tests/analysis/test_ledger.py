"""Claims of papers: worlds in which each statistic's claim is true or false, and its verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from paceline.analysis.claim_tests import STATISTICS, Observed, read_study, select
from paceline.analysis.claims import Claim, read_claims, read_published
from paceline.analysis.ledger import FAILS, HOLDS, OPEN, judge, ledger
from paceline.analysis.searches import DRAWS, Luck, lucks
from paceline.errors import SettingError
from paceline.prediction.predict import predict
from paceline.record.rows import TUNING
from paceline.study.compose import composed
from tests.made_reports import make_run, write_reports, write_rows

ROOT = Path(__file__).parents[2]
WORLDS, SEEDS = 300, 5
BOUNDS = {  # claimed range, and what is true where the claim is true, false, and just false
    "ratio": ((1.8, 2.6), 2.2, 3.5, 1.8),
    "difference": ((-0.01, 0.01), 0, 0.03, 0.01),
    "distance": ((0.005, None), -0.02, 0, 0.005),
    "slope": ((0.9, 1.1), 1, 2, 1.1),
}
ONE, OTHER = ({"scheme": scheme, "workers": 8} for scheme in ("gossip", "sync_allreduce"))
RATIO = {"statistic": "ratio", "of": "seconds", "left": {"workers": 1}, "right": {"workers": 2}}
RATIO |= {"claimed": [1.8, 2.2]}
EQUAL = {"statistic": "difference", "of": "test_top1", "claimed": [-0.01, 0.01]}


def made_claim(**changes):
    own = {"id": "made", "paper": "a", "says": "It holds.", "source": "Table 1", "runs": "made"}
    own |= {"of": "seconds", "left": {"workers": 1}, "right": {"workers": 2}, "along": "workers"}
    return Claim(**own | {"claimed": (None, None)} | changes)


def share_that_holds(claim, worlds):
    found = (STATISTICS[claim.statistic](claim, seen) for seen in worlds)
    return np.mean([judge(each.low, each.high, claim.claimed) == HOLDS for each in found])


def worlds_of(statistic, true):
    """Tables of five seeds, whose effects both groups of a seed share."""
    random, along = np.random.default_rng(0), np.array([2.0, 4.0, 8.0])
    scale = 0.001 if statistic in ("difference", "distance") else 0.02
    for _ in range(WORLDS):
        rows = len(along) if statistic == "slope" else 2
        noise = scale * (random.standard_normal((rows, SEEDS)) + random.standard_normal(SEEDS))
        if statistic == "slope":
            yield Observed(np.exp(true * np.log(along)[:, None] + noise), along)
        elif statistic == "ratio":
            yield Observed(np.exp(np.array([[math.log(true)], [0]]) + noise), along)
        else:
            yield Observed(0.8 + np.array([[true], [0]]) + noise, along)


@pytest.mark.parametrize("statistic", BOUNDS)
def test_true_claims_hold_and_false_ones_do_not(statistic):
    claimed, true, false, edge = BOUNDS[statistic]
    claim = made_claim(statistic=statistic, claimed=claimed)
    assert share_that_holds(claim, worlds_of(statistic, true)) >= 0.95
    assert share_that_holds(claim, worlds_of(statistic, false)) == 0
    assert share_that_holds(claim, worlds_of(statistic, edge)) <= 0.05 + 3 * 0.013  # three errors


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
    inside = {"statistic": "knee", "claimed": (2, 8), "least": least, "allowed": allowed}
    claim = made_claim(**inside)
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


def test_the_spread_of_configurations_is_that_of_the_worst_seed():
    values = np.array([[1.0, 2.0], [1.0, 2.5], [0.9, 2.0]])
    found = STATISTICS["spread"](made_claim(statistic="spread"), Observed(values, np.zeros(0)))
    assert found == (pytest.approx(0.2), pytest.approx(0.2), pytest.approx(0.2), 0)


def test_a_verdict_follows_from_interval_and_range():
    for low, high, verdict in (
        (1.9, 2.5, HOLDS),
        (1.8, 2.6, HOLDS),
        (1.7, 2.5, OPEN),
        (0.5, 3, OPEN),
        (2.7, 3, FAILS),
        (0.5, 0.8, FAILS),
        (math.nan, math.nan, OPEN),
    ):
        assert judge(low, high, (1.8, 2.6)) == verdict
    assert judge(0.5, 0.9, (None, 1)) == HOLDS
    assert judge(1.1, 9, (None, 1)) == FAILS
    assert judge(1.1, 9, (1, None)) == HOLDS


@pytest.fixture
def root(tmp_path):
    (tmp_path / "papers").mkdir()
    return tmp_path


def write_claim(root, **claim):
    own = {"id": "made", "paper": "a", "says": "It holds.", "source": "Table 1", "runs": "made"}
    (root / "papers/claims.yaml").write_text(yaml.safe_dump([own | claim]))


def verdict_of(root, **claim):
    write_claim(root, **claim)
    (row,) = ledger(root)
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
    assert verdict_of(root, **RATIO, limit="Cores are shared.") == (
        OPEN,
        "Cores are shared (by its interval alone: holds).",
    )
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
        ({"statistic": "count"}, "count needs published"),
        ({"statistic": "better"}, r"claim\.statistic"),
        ({"value": 2}, r"claim\.value"),
    ):
        write_claim(root, **RATIO | changes)
        with pytest.raises(SettingError, match=told):
            ledger(root)


def test_null_selects_a_setting_that_is_not_set_or_is_gone(root):
    write_study(root, settings={"model.width": 4})
    study, claim = read_study("made", root), made_claim(statistic="ratio")
    for selection, number in (
        ({"gone": ["own", None]}, 8),
        ({"gone": None, "workers": 1}, 4),
        ({"model.width": [4, 8]}, 8),
        ({"model.width": [None, 8]}, 0),
    ):
        assert len(select(claim, study, selection)) == number
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
            own |= {"top1": 0.9 - cost - 0.004 * (5 - number), "test_top1": 0.88}
            own |= {"chosen": chosen if is_last else "false", "at_edge": edge if is_last else ""}
            trials.append(own)
    about = {"axes": ["scheme", "workers", "seed"], "settings": {"training.rate": "tuned"}}
    folder = write_reports(root / "reports/made", runs, **about)
    write_rows(folder / "tuning.csv", ["key", "scheme", "workers", *TUNING], trials)


def test_what_searches_may_have_missed_leaves_a_claim_open():
    claim, (none, much) = made_claim(**EQUAL), (np.zeros(DRAWS), np.linspace(0, 0.05, DRAWS))
    values, along = np.array([[0.9, 0.901, 0.899, 0.9], [0.93, 0.93, 0.929, 0.931]]), np.zeros(0)
    missed, ended = Luck(much, none, none), Luck(none, none, none)
    for of, luck, expected in (
        (values, (), FAILS),
        (values, [missed, missed], FAILS),  # what both miss cancels
        (values, [missed, ended], OPEN),
        (values[[0, 0]], [missed, ended], OPEN),
        (values[[0, 0]], (), HOLDS),
    ):
        found = STATISTICS["difference"](claim, Observed(of, along, luck))
        assert judge(found.low, found.high, claim.claimed) == expected


def test_a_search_that_says_nothing_leaves_a_claim_open(root):
    sides = EQUAL | {"left": ONE, "right": OTHER, "claimed": [-0.1, 0.1]}
    write_searched(root)
    assert verdict_of(root, **sides)[0] == HOLDS
    assert "does not tell what they missed" in verdict_of(root, **sides | {"statistic": "ratio"})[1]
    assert verdict_of(root, **sides | {"statistic": "ratio", "of": "images_per_second"})[0] == FAILS
    write_searched(root, edge="lowest effective_rate")
    assert verdict_of(root, **sides) == (
        OPEN,
        "A search found no best trial inside of its range (lowest effective_rate).",
    )
    write_searched(root, chosen="false")
    assert "tuning has not ended" in verdict_of(root, **sides)[1]


def test_a_slope_of_rates_is_that_of_the_draws_of_its_searches(root):
    write_searched(root)
    write_claim(
        root, statistic="slope", of="effective_rate", along="workers", left={"scheme": "gossip"},
        claimed=[None, 0],
    )  # fmt: skip
    (row,) = ledger(root)
    tables = read_study("made", root).tables
    few, many = lucks(tables, [ONE | {"workers": workers} for workers in (2, 8)])
    drawn = -1 + (many.faster - few.faster) / math.log(4)
    expected = drawn.mean(), *np.quantile(drawn, [0.025, 0.975])
    assert [row["value"], row["low"], row["high"]] == [f"{each:.3g}" for each in expected]


def test_a_prediction_of_which_a_part_is_assumed_or_fitted_decides_nothing(root):
    claim = {"statistic": "predicted", "published": ["two"], "claimed": [1.7, None]}
    assert "not predicted yet" in verdict_of(root, **claim)[1]
    path = root / "reports/predictions/predictions.csv"
    path.parent.mkdir(parents=True)
    for kind, low, expected in (
        ("judged", 1.8, HOLDS),
        ("same runs", 1.8, HOLDS),
        ("judged", 1.6, OPEN),
        ("judged", "", OPEN),
        ("settings assumed", 1.8, OPEN),
        ("calibrated", 1.8, OPEN),
    ):
        row = {"row": "two", "predicted": 2, "low": low, "high": 2.4, "verdict": kind}
        write_rows(path, list(row), [row, row | {"row": "other"}])
        assert verdict_of(root, **claim)[0] == expected


def test_what_committed_runs_decide():
    """Each verdict that runs, counts or predictions reach; one that is lost or won is told."""
    verdicts = {row["claim"]: row["verdict"] for row in ledger(ROOT)}
    assert {claim for claim, verdict in verdicts.items() if verdict == HOLDS} == {
        *("firecaffe-47x", "firecaffe-20x", "firecaffe-table1", "firecaffe-linear-rule"),
        *("kumar-memory-helps", "kumar-memory-removes-stalls", "kumar-partition-keeps-accuracy"),
        *("yadan-hybrid-2.2x-paced", "yadan-same-updates", "yadan-hybrid-best-of-four"),
        *("zou-batch-in-the-middle", "zou-servers-lemma"),
    }
    assert FAILS not in verdicts.values()


def test_claims_name_numbers_papers_and_runs_that_exist():
    published = read_published(ROOT)
    for claim in read_claims(ROOT):
        assert (ROOT / f"papers/{claim.paper}.md").is_file()
        for name in claim.published:
            assert published[name]["verified"] == "yes"
            assert published[name]["value"] in claim.says
        is_study = (ROOT / f"experiments/{claim.runs}.yaml").is_file()
        assert not claim.runs or is_study or (ROOT / claim.runs).is_file()


def test_mixed_training_is_faster_in_the_model_with_as_many_images_as_theirs():
    """As the limit of a claim says."""
    settings = ["cluster=minotauro", "workload=resnet50_1200", "scheme.group_size=4", "workers=64"]
    mixed, sync = (
        predict(composed([*settings, f"scheme={s}", "batch_size=32"], ROOT), 100)
        for s in ("mixed", "sync_parameter_server")
    )
    assert mixed.run.images_per_second > 1.25 * sync.run.images_per_second
