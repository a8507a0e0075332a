"""Claims on runs whose rates were searched are judged at the best settings of both sides."""

import csv
import math

import numpy as np
import pytest

from paceline.analysis.claim_tests import (
    ACCURACIES,
    EFFECTIVE_RATE,
    Observed,
    evaluate,
    of_table,
    table_of,
)
from paceline.analysis.decision import decision
from paceline.analysis.ledger import NOT_REPLICATED, REPLICATED, UNDECIDED, judge, ledger
from paceline.analysis.searches import DRAWS, Luck, lucks
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from paceline.record.rows import TUNING
from paceline.report.papers_page import write_papers
from tests.analysis.test_ledger import TESTABLE, made_claim, share_replicated, world, write_claims
from tests.made_reports import make_run, tie, write_reports, write_rows

ONE, OTHER = ({"scheme": scheme, "workers": 8} for scheme in ("gossip", "sync_allreduce"))
SIDES = {"left": ONE, "right": OTHER, "study": "made", "of": "test_top1"}
AT_BEST = [
    made_claim("equal"),
    made_claim("differ"),
    made_claim("slope", of=EFFECTIVE_RATE, claimed=(None, 0)),
    *(each for each in TESTABLE if each.of in ACCURACIES and each.test in ("equal", "differ")),
    *(each for each in TESTABLE if each.of == EFFECTIVE_RATE),
]


def as_searched(claim, seen):
    """The same worlds as their searches leave them: each side ran at settings below its best."""
    random = np.random.default_rng(1)
    shape = len(seen.values), seen.values.shape[-2]
    scale = 0.1 if claim.of == EFFECTIVE_RATE else (claim.margin or 0) / 20

    def missed(*shape):
        return scale * random.gamma(1, size=shape)  # as skewed as what searches miss

    true, none = missed(*shape)[..., None], np.zeros(DRAWS)
    is_rate = claim.of == EFFECTIVE_RATE
    values = seen.values[..., :1] * np.exp(-true) if is_rate else seen.values - true
    drawn = missed(shape[1], DRAWS)
    luck = [Luck(none, none, own) if is_rate else Luck(own, none, none) for own in drawn]
    return Observed(values, seen.along, luck=luck)


@pytest.mark.parametrize("claim", AT_BEST, ids=lambda each: each.id + each.test)
def test_counter_worlds_at_best_settings(claim):
    """A true claim is found in 95 % of 1,000 tables; a false one is not, at its edge in 5 %."""
    shares = [share_replicated(claim, as_searched(claim, world(claim, w))) for w in (1, 0, None)]
    assert shares[0] >= 0.95
    assert shares[1] == 0
    assert shares[2] <= 0.065  # 5 % and three errors


def test_searches_that_may_have_missed_much_leave_a_claim_open():
    claim, (none, much) = made_claim("equal"), (np.zeros(DRAWS), np.linspace(0, 0.05, DRAWS))
    values = np.array([[0.9, 0.901, 0.899, 0.9], [0.93, 0.93, 0.929, 0.931]])
    for luck, word in (((), NOT_REPLICATED), ([Luck(much, none, none)] * 2, NOT_REPLICATED)):
        assert told(claim, Observed(values, luck=luck)) == word  # what both miss cancels
    luck = [Luck(much, none, none), Luck(none, none, none)]
    assert told(claim, Observed(values, luck=luck)) == UNDECIDED
    assert told(claim, Observed(values[[0, 0]], luck=luck)) == UNDECIDED
    assert told(claim, Observed(values[[0, 0]])) == REPLICATED


def told(claim, seen):
    return judge(claim, evaluate(claim, seen), -0.01, 0.01, 0.0)


@pytest.fixture
def root(tmp_path):
    """A project without published numbers."""
    write_rows(tmp_path / "published.csv", ["id"], [])
    (tmp_path / "papers").mkdir()
    (tmp_path / "published.csv").rename(tmp_path / "papers/published.csv")
    return tmp_path


def write_study(root, chosen="true", edge="", **more):
    """Two schemes with 2 and 8 workers and four seeds, at the last of six trials of each."""
    axes = [(scheme, workers) for scheme in ("sync_allreduce", "gossip") for workers in (2, 8)]
    runs, trials = [], []
    for scheme, workers in axes:
        cost = 0.02 * (scheme == "gossip")
        for seed in range(4):
            noise = np.random.default_rng([workers, seed, len(scheme)]).normal() / 500
            own = {"test_top1": 0.88 - cost + noise, "lr": 0.4 / workers, "momentum": 0.5}
            runs.append(make_run(scheme, workers, 32, seed, **own))
        for number in range(6):
            lr, is_last = 0.4 / workers * 2.0 ** (5 - number), number == 5
            own = {"key": f"{scheme}-{workers}-{number}", "scheme": scheme, "workers": workers}
            own |= {"seed": 100, "lr": lr, "momentum": 0.5, "status": "finished", "chance": 0.1}
            own |= {"top1": 0.9 - cost - 0.004 * (5 - number), "test_top1": 0.88}
            own |= {"chosen": chosen if is_last else "false", "at_edge": edge if is_last else ""}
            trials.append(own)
    about = {"axes": ["scheme", "workers", "seed"], "settings": {"training.rate": "tuned"}}
    folder = write_reports(root / "reports/made", runs, **about | more)
    write_rows(folder / "tuning.csv", ["key", "scheme", "workers", *TUNING], trials)
    return tie(folder)


def test_an_interval_is_that_of_the_page_of_the_study(root):
    """At best settings, where the study has the same two sides."""
    decided = decision(read_tables(write_study(root))).set_index(["scheme", "workers"])
    for workers in (2, 8):
        sides = {"left": ONE | {"workers": workers}, "right": OTHER | {"workers": workers}}
        claim = made_claim("differ", **SIDES | sides)
        seen = of_table(claim, *table_of("made", root))
        row = decided.loc["gossip", workers]
        ends = [row[f"best_top1_difference_{end}"] for end in ("mean", "low", "high")]
        assert evaluate(claim, seen).estimate.at() == pytest.approx(ends, rel=1e-12)
        assert row["tuning_sd"] > 0.001


def test_the_ledger_says_what_is_at_best_settings_and_what_as_run(root):
    write_study(root)
    write_claims(root, {"kind": "virtual", "test": "differ", "margin": 0.005} | SIDES)
    (row,) = ledger(root)
    assert row["ours"].startswith("-")  # gossip less all-reduce
    assert row["ours"].endswith(", at best settings")
    assert row["as_run"].startswith("-2.")
    assert row["high"] - row["low"] > 0.01
    write_study(root, settings={"training.rate": "by_rule"})
    (row,) = ledger(root)
    assert (row["as_run"], "at best" in row["ours"]) == ("", False)


def test_the_pages_say_which_side_is_subtracted(root):
    write_study(root)
    write_claims(root, {"kind": "virtual", "test": "differ", "margin": 0.005} | SIDES)
    pages = write_papers(root).parent
    for name in ("a.html", "index.html", "README.md", "ledger.csv", "ledger.json"):
        assert "at best settings; gossip less all-reduce" in (pages / name).read_text()
    assert ", as run; " in (pages / "a.html").read_text()


def test_a_side_whose_search_says_nothing_is_not_judged(root):
    write_claims(root, {"kind": "virtual", "test": "equal", "margin": 0.1} | SIDES)
    for changes, why in (
        ({}, ""),
        ({"edge": "lowest effective_rate"}, "lowest effective_rate"),
        ({"chosen": "false"}, "tuning has not ended"),
    ):
        write_study(root, **changes)
        (row,) = ledger(root)
        assert row["verdict"] == (UNDECIDED if why else REPLICATED)
        assert row["why"].endswith(why)


def test_searched_accuracies_are_judged_by_no_other_test(root):
    write_study(root)
    claim = made_claim("ratio", **SIDES)
    with pytest.raises(SettingError, match="ratio cannot judge test_top1 at best settings"):
        of_table(claim, *table_of("made", root))
    rows, *others = table_of("made", root)
    claim = made_claim("ratio", **SIDES | {"of": "target_seconds"})
    with pytest.raises(SettingError, match="ratio cannot judge target_seconds at best settings"):
        of_table(claim, rows.assign(target_seconds=1.0), *others)
    assert of_table(made_claim("ratio", **SIDES | {"of": "seconds"}), *table_of("made", root))


def test_another_search_that_has_not_ended_does_not_matter(root):
    """Of a scheme that the claim does not name, in the same situation."""
    write_claims(root, {"kind": "virtual", "test": "equal", "margin": 0.1} | SIDES)
    path = write_study(root) / "tuning.csv"
    with path.open(newline="") as file:
        trials = list(csv.DictReader(file))
    more = [each | {"scheme": "local_sgd", "chosen": "false"} for each in trials[:12]]
    write_rows(path, list(trials[0]), [*trials, *more])
    tie(path.parent)
    (row,) = ledger(root)
    assert (row["verdict"], row["why"]) == (REPLICATED, "")


def test_a_side_with_runs_of_several_searches_is_refused(root):
    write_study(root)
    rows, *others = table_of("made", root)
    claim = made_claim("equal", **SIDES | {"left": {"scheme": "gossip"}})
    own = rows[(rows["scheme"] != "gossip") | ((rows["workers"] == 8) == (rows["seed"] < 2))]
    with pytest.raises(SettingError, match=r"several searches .selection 1"):
        of_table(claim, own, *others)


def test_a_slope_of_rates_is_that_of_the_draws_of_both_searches(root):
    claim = made_claim("slope", left={"scheme": "gossip"}, of=EFFECTIVE_RATE, claimed=(None, 0))
    tables = read_tables(write_study(root))
    rows, *others = table_of("made", root)
    seen = of_table(claim, rows[rows["seed"] == 0], *others)
    assert seen.values.ravel().tolist() == pytest.approx([0.4, 0.1])
    few, many = lucks(tables, [ONE | {"workers": workers} for workers in (2, 8)])
    drawn = -1 + (many.faster - few.faster) / math.log(4)
    found = evaluate(claim, seen)
    assert found.n is None
    expected = drawn.mean(), *np.quantile(drawn, [0.025, 0.975])
    assert found.estimate.at() == pytest.approx(expected)
    assert found.estimate.low < -1 < found.estimate.high
