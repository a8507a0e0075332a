"""Claims of papers: counter-worlds for each test and entry, limits, and what a verdict needs."""

import csv
import math
import re
import subprocess
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import yaml

from paceline.analysis.claim_tests import (
    Observed,
    Result,
    evaluate,
    of_table,
    power,
    predictions,
    time_of,
)
from paceline.analysis.claims import (
    NOT_JUDGED,
    TESTS,
    WORKLOADS,
    Claim,
    Published,
    TestName,
    read_papers,
)
from paceline.analysis.ledger import (
    CALIBRATED,
    CONSISTENT,
    DIRECTION,
    EXCEEDS,
    INCONSISTENT,
    MEANINGS,
    NOT_REPLICATED,
    NOT_RUN,
    REPLICATED,
    UNDECIDED,
    UNJUDGED,
    UNTESTABLE,
    claimed_range,
    judge,
    ledger,
)
from paceline.analysis.statistics.means import Estimate
from paceline.errors import SettingError
from paceline.prediction.predict import predict
from paceline.study.compose import composed
from tests.made_reports import make_run, tie, write_reports, write_rows

ROOT = Path(__file__).parents[2]
PAPERS = read_papers(ROOT)
PUBLISHED = Published(ROOT)
CLAIMS = [claim for paper in PAPERS for claim in paper.claims]
DRAWS, SEEDS = 1000, 5
TOLD = ("campos2017", "firecaffe2016")
CAPS = {None: 0, "no size is published": 1, "settings are not stated": 1}  # how much they take away
CAPS |= {"cores are shared": 2, "our scale": 2} | dict.fromkeys(NOT_JUDGED, 3)
ON_TABLES = tuple(name for name in get_args(TestName) if name != "none")
TESTABLE = [claim for claim in CLAIMS if claim.test != "none" and not claim.is_predicted]
WHERE = {"scheme": "sync_allreduce"}
KINDS = {
    "equal": {"left": WHERE, "right": WHERE, "margin": 0.01, "of": "test_top1"},
    "differ": {"left": WHERE, "right": WHERE, "margin": 0.005, "of": "test_top1"},
    "greater": {"steps": [WHERE, WHERE], "of": "test_top1"},
    "ratio": {"left": WHERE, "right": WHERE, "claimed": (1.8, 2.6), "of": "seconds"},
    "slope": {"left": WHERE, "along": "workers", "claimed": (0.9, 1.1), "of": "seconds"},
    "law_of_growth": {"left": WHERE, "along": "workers", "margin": 0.1, "of": "seconds"},
    "knee": {"left": WHERE, "along": "workers", "claimed": (4, 8), "of": "seconds"},
    "count": {"margin": 0.02},
    "exact": {"left": WHERE, "margin": 1e-12, "of": "train_loss"},
}


def made_claim(test, **changes):
    own = {"id": "made", "says": "It holds.", "in_the_way": "Nothing.", "kind": "virtual"}
    return Claim(**own | {"study": "made", "test": test} | KINDS.get(test, {}) | changes)


def world(claim, true, draws=DRAWS):
    """Observations of a world in which a claim is `true`, false, or just false (None)."""
    random = np.random.default_rng(sum(map(ord, claim.id)))
    low, high = claimed_range(claim, PUBLISHED.size(claim))
    along = np.array([2.0, 4.0, 8.0, 16.0] if claim.along else ())
    num = len(along) or max(len(claim.steps), 2)
    if claim.test in ("count", "exact"):
        off = {True: 0.5, False: 3, None: 1.01}[true] * high
        values = np.ones((draws, num, 1))
        values[:, -1] += off
        return Observed(values)
    logarithms = claim.test in ("ratio", "slope", "law_of_growth", "knee")
    noise = _noise(claim, low, high) * random.standard_normal((draws, num, SEEDS))
    shared = random.standard_normal((draws, 1, SEEDS))  # of a seed
    effect = _effect(claim, low, high, true)
    if claim.test == "law_of_growth":
        bent = math.log1p(high) * np.array([1, -1, 1, -1]) if true is None else 0
        base = (np.log(along if true is False else np.log2(along)) + bent)[:, None]
    elif claim.test == "slope":
        base = effect * np.log(along)[:, None]
    elif claim.test == "knee":
        best = math.sqrt(low * high)
        along = np.array([low / 4, low / 2, low, best, high, 2 * high])
        noise = _noise(claim, low, high) * random.standard_normal((draws, 6, SEEDS))
        curve = np.log(along / (along[-1] if true is False else best)) ** 2
        if true is None:  # one end is as good as the knee, up to the margin
            curve[0] = curve.min() + math.log1p(claim.margin or 0)
        base = (curve if claim.least else -curve)[:, None]
    elif claim.test == "ratio":
        base = np.array([math.log(effect), 0])[:, None]
    elif claim.test == "greater":
        base = effect * np.arange(num)[:, None]
    else:
        base = np.array([effect, 0])[:, None]
    values = base + noise + shared / 10
    return Observed(np.exp(values) if logarithms else values, along)


def _noise(claim, low, high):
    """A spread that a study of five seeds would be planned with."""
    if claim.test == "differ":
        return low / 20
    width = math.log(high / low) if claim.test == "ratio" and low > 0 else high - low
    if claim.test == "knee" or not math.isfinite(width):
        return 0.02
    return width / 20


def _effect(claim, low, high, true):
    ratio = claim.test == "ratio"
    if claim.test == "differ" and true is not None:
        return -3 * low if true else 0
    if true is None:  # at the end of what is claimed, where a test errs most
        return low if math.isfinite(low) and (low > 0 or not ratio) else high
    if math.isfinite(low) and math.isfinite(high):
        inner = math.sqrt(low * high) if ratio and low > 0 else (low + high) / 2
        outer = high * high / low if ratio and low > 0 else 2 * high - low
        return inner if true else outer
    if math.isfinite(low) and (low > 0 or not ratio):
        return (low * 1.3 if ratio else low + 0.3) if true else (low / 1.3 if ratio else low - 0.3)
    return (high / 1.3 if ratio else high - 0.3) if true else (high * 1.3 if ratio else high + 0.3)


def share_replicated(claim, seen):
    result = evaluate(claim, seen)
    words = judge(claim, result, *claimed_range(claim, PUBLISHED.size(claim)), result.p)
    return float((np.atleast_1d(words) == REPLICATED).mean())


@pytest.mark.parametrize("claim", [*map(made_claim, KINDS), *TESTABLE], ids=lambda each: each.id)
def test_counter_worlds(claim):
    """A true claim is found in 95 % of 1,000 tables; a false one is not, at its edge in 5 %."""
    assert share_replicated(claim, world(claim, True)) >= 0.95
    assert share_replicated(claim, world(claim, False)) == 0
    assert share_replicated(claim, world(claim, None)) <= 0.065  # 5 % and three errors


def curves(claim, along, curve):
    """Observations of a curve, with the noise of a study of five seeds."""
    random = np.random.default_rng(0)
    noise = 0.02 * random.standard_normal((DRAWS, len(along), SEEDS))
    return Observed(np.exp(np.log(curve)[:, None] + noise), along)


@pytest.mark.parametrize("power", [0, -1, 0.5, 0.6, 0.65, 0.7, 1])
def test_powers_are_not_logarithms(power):
    """Constant and falling times, and those that grow as a power of the number of workers."""
    along = np.array([2.0, 4.0, 8.0, 16.0])
    claim = made_claim("law_of_growth")
    assert share_replicated(claim, curves(claim, along, along**power)) <= 0.05


@pytest.mark.parametrize("power", [0, -0.03, 0.03, -1, 1])
@pytest.mark.parametrize("margin", [0, 0.1])
@pytest.mark.parametrize("least", [True, False])
def test_flat_and_monotone_curves_have_no_knee(power, margin, least):
    along = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    claim = made_claim("knee", claimed=(1, 16), margin=margin, least=least)
    assert share_replicated(claim, curves(claim, along, along**power)) <= 0.05


def test_a_curve_that_stays_level_has_a_knee():
    along = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    claim = made_claim("knee", margin=0.1)
    assert share_replicated(claim, curves(claim, along, np.minimum(along, 4))) >= 0.95


def test_every_kind_of_test_has_its_counter_world():
    assert set(KINDS) == set(ON_TABLES)
    assert len(CLAIMS) == 49


def frame(claim, table, **changes):
    """Rows of runs as a sweep would collect them, by the claim's own selections."""
    rows = []
    seen = world(claim, table, draws=1)
    if claim.along:
        groups = [claim.left | {claim.along: place} for place in seen.along]
    else:
        groups = claim.steps or [claim.left, claim.right]
    for place, group in enumerate(groups):
        for seed in range(SEEDS):
            own = {k: v[0] if isinstance(v, list) else v for k, v in group.items()}
            own |= {claim.of: seen.values[0, place, seed], "seed": seed}
            rows.append({"status": "finished", "started": "2030-01-01", "commit": "c"} | own)
    return pd.DataFrame(rows)


def test_entries_find_their_runs_by_their_own_selections():
    """Planted tables of studies that were not run yet, through selection, test and verdict."""
    for claim in TESTABLE:
        if claim.test in ("count", "exact"):
            continue
        if isinstance(claim.left.get(claim.along), list):
            claim = replace(claim, left={k: v for k, v in claim.left.items() if k != claim.along})
        for true in (True, False):
            seen = of_table(claim, frame(claim, true), {})
            assert seen.lost == 0
            result = evaluate(claim, seen)
            word = judge(claim, result, *claimed_range(claim, PUBLISHED.size(claim)), result.p)
            assert (word == REPLICATED) == true, claim.id


def intervals(*ends, p=0.0):
    low, high = np.array(ends, float).T
    found = Estimate((low + high) / 2, low, high)
    return Result(found, found, 5, p)


def test_verdicts_of_intervals():
    cases = {  # claim: intervals with their verdicts
        "ratio": [
            ((1.9, 2.5), REPLICATED),
            ((2.7, 3), EXCEEDS),
            ((1.1, 1.5), DIRECTION),
            ((1.1, 3), DIRECTION),
            ((0.9, 1.1), NOT_REPLICATED),
            ((0.5, 0.8), NOT_REPLICATED),
            ((0.5, 3), UNDECIDED),
        ],
        "equal": [
            ((-0.005, 0.002), REPLICATED),
            ((-0.05, -0.02), NOT_REPLICATED),
            ((0.02, 0.05), EXCEEDS),
            ((-0.02, 0.002), UNDECIDED),
        ],
        "slope": [
            ((0.95, 1.05), REPLICATED),
            ((1.3, 1.36), DIRECTION),
            ((-0.2, 0.1), NOT_REPLICATED),
            ((-0.2, 2), UNDECIDED),
        ],
        "greater": [((0.1, 0.2), REPLICATED), ((-0.2, -0.1), NOT_REPLICATED), ((-1, 1), UNDECIDED)],
        "law_of_growth": [((0.01, 0.05), REPLICATED), ((0.2, 0.5), NOT_REPLICATED)],
    }
    for test, expected in cases.items():
        claim = made_claim(test)
        result = intervals(*(ends for ends, _ in expected))
        words = judge(claim, result, *claimed_range(claim, None), 0.0)
        assert list(words) == [word for _, word in expected], test
    below = made_claim("ratio", claimed=(None, 1.0))
    words = judge(below, intervals((0.5, 0.9), (1.1, 1.2), (0.9, 1.1)), -math.inf, 1, 0.0)
    assert list(words) == [REPLICATED, NOT_REPLICATED, UNDECIDED]
    many = judge(made_claim("greater"), intervals((0.1, 0.2)), 0, math.inf, 0.2)
    assert list(many) == [UNDECIDED]  # of many tests of a page, some pass by chance


def test_lost_runs_count():
    """A diverged run has an accuracy of 0; one that failed or came late leaves a claim open."""
    claim = made_claim("equal", left={"workers": 4}, right={"workers": 1})
    runs = [
        {"status": "finished", "seed": s, "workers": w, "test_top1": 0.9 + s / 1000, "started": ""}
        for w in (1, 4)
        for s in range(4)
    ]

    def seen(**last):
        return of_table(claim, pd.DataFrame([*runs[:-1], runs[-1] | last]), {})

    def word(observed):
        result = evaluate(claim, observed)
        return judge(claim, result, -0.01, 0.01, result.p)

    assert word(seen()) == REPLICATED
    diverged = seen(status="diverged", test_top1=math.nan)
    assert (diverged.diverged, diverged.lost, diverged.values[0, 3]) == (1, 0, 0)
    assert word(diverged) == UNDECIDED
    assert seen(status="failed", test_top1=math.nan).lost == 1
    for late, lost in ((3, 0), (4, 1), (math.nan, 0)):  # of 320 steps
        steps = {"samples": 2496.0, "dropped_samples": 64.0, "batch_size": 8}
        assert seen(late_steps=late, **steps).lost == lost
    without = of_table(claim, pd.DataFrame(runs[:-1]), {})
    assert without.lost == 1
    failed = [run | {"status": "failed", "test_top1": math.nan} for run in runs[4:]]
    assert word(of_table(claim, pd.DataFrame([*runs[:4], *failed]), {})) == UNDECIDED


def test_one_step_that_does_not_help_is_enough():
    claim = made_claim("greater", steps=[WHERE] * 4)
    steps = np.array([[1.0], [2.0], [3.0], [2.5]]) + np.arange(5) / 100
    noise = np.random.default_rng(0).standard_normal((4, 5)) / 100
    for last, expected in ((2.5, NOT_REPLICATED), (3.0, UNDECIDED), (4.0, REPLICATED)):
        steps[3] += last - steps[3].mean()
        result = evaluate(claim, Observed(steps + noise))
        assert judge(claim, result, 0, math.inf, result.p) == expected


def test_power_is_the_share_of_worlds_that_are_found():
    claim = made_claim("equal")
    seen = Observed(np.array([[0.9, 0.905, 0.91, 0.9], [0.9, 0.9, 0.9, 0.905]]))
    chance, smallest = power(claim, evaluate(claim, seen), -0.01, 0.01, 0)
    wide, _ = power(claim, evaluate(claim, seen), -0.1, 0.1, 0)
    assert 0 < chance < wide == 1
    half = np.subtract(*evaluate(claim, seen).narrow.at()[:2])
    assert power(claim, evaluate(claim, seen), -half, half, 0)[0] > 0
    assert power(claim, evaluate(claim, seen), -half, half, 0, at_best=True)[0] == 0
    assert math.isnan(smallest)
    _, least = power(made_claim("greater"), evaluate(made_claim("greater"), seen), 0, math.inf, 0)
    assert 0 < least < 0.02


@pytest.fixture
def root(tmp_path):
    """A project with two claims of one paper on a made-up study, and one predicted number."""
    (tmp_path / "papers").mkdir()
    columns = list(PUBLISHED.rows[next(iter(PUBLISHED.rows))])
    known = [
        dict.fromkeys(columns, "") | {"id": name, "value": value, "unit": "x", "verified": verified}
        for name, value, verified in (("two", 2, "yes"), ("memory", 2, "no"), ("three", 3, "yes"))
    ]
    write_rows(tmp_path / "papers/published.csv", columns, known)
    return tmp_path


def write_claims(root, *claims, **paper):
    own = {"paper": "A paper", "short": "Paper", "rows": "A", "doi": "10/x", "sources": "all"}
    own |= {
        "set_up": {"data": ["theirs", "ours"]},
        "registered": datetime.fromisoformat("2026-01-02T12:00:00Z"),
        **paper,
    }
    listed = [
        {"id": f"c{number}", "says": "It holds.", "in_the_way": "Nothing."} | each
        for number, each in enumerate(claims)
    ]
    (root / "claims").mkdir(exist_ok=True)
    (root / "claims/a.yaml").write_text(yaml.safe_dump(own | {"claims": listed}))


def write_study(root, factor=2.0, seeds=4, started="2026-01-03T00:00:00+00:00", missing=(), **more):
    runs = [
        make_run(
            seed=seed,
            workers=w,
            started=started,
            seconds=(1 + seed / 100) * factor ** (w == 1),
            **more,
        )
        for w in (1, 2)
        for seed in range(seeds)
    ]
    write_reports(root / "reports/made", runs, missing=list(missing))


RATIO = {
    "kind": "measured",
    "study": "made",
    "test": "ratio",
    "of": "seconds",
    "left": {"workers": 1},
    "right": {"workers": 2},
    "size": ["two"],
    "margin": 0.1,
}


def test_a_verdict_follows_from_tables_and_limits(root):
    cases = [  # changes of the claim, of the study, verdict
        ({}, {}, REPLICATED),
        ({}, {"factor": 1.5}, DIRECTION),
        ({}, {"factor": 3.0}, EXCEEDS),
        ({}, {"factor": 0.5}, NOT_REPLICATED),
        ({}, {"seeds": 2}, UNDECIDED),
        ({"limit": "settings are not stated", "because": "so"}, {}, DIRECTION),
        ({"limit": "settings are not stated", "because": "so"}, {"factor": 0.5}, NOT_REPLICATED),
        ({"limit": "cores are shared", "because": "so"}, {"factor": 0.5}, UNDECIDED),
        ({"limit": "our scale", "because": "so"}, {}, UNDECIDED),
        ({"limit": "not a claim of the paper", "because": "so"}, {}, UNJUDGED),
        ({"published": ["memory"]}, {}, UNJUDGED),
        ({"published": ["two"], "study": "other"}, {}, NOT_RUN),
    ]
    for claim, study, expected in cases:
        write_study(root, **study)
        write_claims(root, RATIO | claim)
        (row,) = ledger(root)
        assert row["verdict"] == expected, (claim, study)
    write_claims(root, {"untestable": "no machine"})
    assert ledger(root)[0]["verdict"] == UNTESTABLE


def test_a_number_of_which_no_run_tells_is_not_shown(root):
    write_study(root, status="failed", reason="lost")
    write_claims(root, RATIO)
    (row,) = ledger(root)
    assert (row["verdict"], row["ours"], row["lost"]) == (UNDECIDED, "", 8)
    assert row["why"].endswith("took longer than was set for more than 1 % of their steps: 8")


def test_a_rise_has_the_unit_of_its_column(root):
    steps = {"test": "greater", "steps": [{"workers": 1}, {"workers": 2}]}
    write_study(root)
    for column, unit in (("images_per_second", " images/s ("), ("test_top1", " points (")):
        write_claims(root, RATIO | steps | {"of": column})
        (row,) = ledger(root)
        assert unit in row["ours"]
        assert row["smallest_text"].endswith(unit.removesuffix(" ("))


def test_a_study_of_which_runs_are_missing_was_not_run_yet(root):
    """A selection that fits no run is a mistake only where the study is complete."""
    write_claims(root, RATIO | {"left": {"workers": 7}})
    write_study(root, missing=["key"])
    assert ledger(root)[0]["verdict"] == NOT_RUN
    write_study(root)
    with pytest.raises(SettingError, match="no run"):
        ledger(root)


def test_a_margin_that_is_written_after_the_first_run_is_later(root):
    write_claims(root, RATIO)
    for started, later in (
        ("12:00:01+00:00", False),
        ("12:00:00+00:00", True),
        ("12:30:00+01:00", True),
    ):
        write_study(root, started=f"2026-01-02T{started}")
        assert ledger(root)[0]["margin_later"] is later
    write_study(root, started="")
    (row,) = ledger(root)
    assert (row["margin_later"], row["started"]) == (True, "")  # it is not known
    claim = made_claim("equal", left={"workers": 1}, right={"workers": 2})
    rows = frame(claim, True).assign(commit="new")
    rows.loc[3, ["started", "commit"]] = ["2029-01-01", "old"]
    assert of_table(claim, rows, {}).commit == "old"  # of the run that started first
    for unknown in ("", math.nan, None):
        rows = frame(claim, True)
        rows.loc[0, "started"] = unknown  # of one run of several
        assert of_table(claim, rows, {}).started == ""


def test_the_first_of_runs_is_by_time_and_not_by_text():
    starts = ["2026-01-02T12:00:01+00:00", "2026-01-02T12:30:00+01:00", "2026-01-02T11:45:00"]
    assert min(starts, key=time_of) == starts[1]


def test_claims_are_tested_as_when_they_were_registered():
    """By the history of this repository, where there is one."""
    of_test = {"study", "test", "of", "left", "right", "steps", "along", "claimed", "margin"}
    of_test |= {"least", "limit", "size"}

    def git(*arguments):
        found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return found.stdout.strip()

    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("there is no whole history")
    for paper in PAPERS:
        path = f"claims/{paper.id}.yaml"
        now = {each["id"]: each for each in yaml.safe_load((ROOT / path).read_text())["claims"]}
        for at in {claim.registered or paper.registered for claim in paper.claims}:
            commit = git("rev-list", "-1", f"--before={at.isoformat()}", "HEAD", "--", path)
            assert commit, f"{paper.id}: registered before it was there"
            then = yaml.safe_load(git("show", f"{commit}:{path}"))["claims"]
            known = {each["id"]: each for each in then}
            for claim in paper.claims:
                if (claim.registered or paper.registered) == at:
                    before, after = known.get(claim.id, {}), now[claim.id]
                    changed = {name for name in of_test if before.get(name) != after.get(name)}
                    if CAPS[before.get("limit")] <= CAPS[after.get("limit")]:
                        changed -= {"limit"}  # it may become stricter at any time
                    assert not changed, f"{claim.id}: registered needs the time of its new commit"


def test_modelled_times_of_several_seeds_are_no_sample(root):
    """Their seeds vary the order of images, and hardly the time that the model takes."""
    write_study(root)
    write_claims(root, RATIO | {"kind": "virtual"})
    (row,) = ledger(root)
    assert (row["n"], row["verdict"]) == (None, REPLICATED)
    assert math.isnan(row["power"])


def test_numbers_of_the_paper_are_tested_as_ours_are(root):
    """Where their numbers lie on an axis: 1/s of 4, 8 and 16 GPUs that fall with the square."""
    path = root / "papers/published.csv"
    with path.open(newline="") as file:
        known = list(csv.DictReader(file))
    rates = [
        known[0] | {"id": f"p{gpus}", "gpus": gpus, "value": 64 / gpus**2, "unit": "1/s"}
        for gpus in (4, 8, 16)
    ]
    write_rows(path, list(known[0]), [*known, *rates])
    write_study(root)
    own = {"kind": "paced", "study": "made", "test": "slope", "of": "seconds", "along": "workers"}
    own |= {"left": WHERE, "claimed": [0.9, 1.1], "published": ["p4", "p8", "p16"]}
    write_claims(root, own)
    assert ledger(root)[0]["theirs"] == "2 log-log slope"


def test_a_claim_that_is_left_open_says_why(root):
    write_study(root)
    write_claims(root, RATIO | {"limit": "cores are shared", "because": "so"})
    assert ledger(root)[0]["why"] == "so"
    write_study(root, factor=1.5)  # the limit hides that the size misses as well
    assert ledger(root)[0]["why"] == f"so; by its test alone: {DIRECTION}"


def test_numbers_in_texts_of_claims_are_those_of_their_commands():
    """The few that no table of a claim has."""
    texts = ((ROOT / f"claims/{name}.yaml").read_text() for name in TOLD)
    campos, firecaffe = (" ".join(text.split()) for text in texts)
    settings = ["cluster=minotauro", "workload=resnet50_1200", "scheme.group_size=4", "workers=64"]
    rates = {
        scheme: predict(
            composed([*settings, f"scheme={scheme}", "batch_size=32"], ROOT), 100
        ).run.images_per_second
        for scheme in ("mixed", "sync_parameter_server")
    }
    assert rates["mixed"] > 1.25 * rates["sync_parameter_server"]
    told = f"({rates['mixed']:,.0f} against {rates['sync_parameter_server']:,.0f} images/s by "
    told += f"paceline predict {' '.join(settings[:2])} scheme=mixed {' '.join(settings[2:])} "
    assert told + "batch_size=32" in campos
    known = predictions(ROOT)
    (speedup,) = (row for name, row in known.items() if name.startswith("A/"))
    assert f"predicted to be {speedup['predicted']:.1f} times as fast as one" in campos
    errors = [1 + row["error"] for name, row in known.items() if "gradi/parameter" in name]
    assert f"it has {min(errors):.1f} to {max(errors):.1f} times the updates/s" in firecaffe


def test_numbers_that_are_equal_for_all_seeds_are_exact():
    level = np.repeat([[1.0], [2.0], [4.0], [8.0]], 4, axis=1)
    along = np.array([2.0, 4.0, 8.0, 16.0])
    for test, values, expected in (
        ("slope", level, REPLICATED),
        ("slope", level**2, DIRECTION),
        ("equal", level[[0, 0]], REPLICATED),
        ("equal", level[:2], NOT_REPLICATED),
        ("greater", level[:2], REPLICATED),
        ("greater", level[[0, 0]], UNDECIDED),
        ("ratio", level[[1, 0]], REPLICATED),
        ("knee", level, NOT_REPLICATED),
    ):
        claim = made_claim(test)
        result = evaluate(claim, Observed(values, along))
        assert result.n is None
        assert judge(claim, result, *claimed_range(claim, None), result.p) == expected, test
    assert evaluate(made_claim("slope", kind="paced"), Observed(level[:, :2], along)).n == 2


def test_predictions_are_never_more_than_consistent(root):
    predicted = {"kind": "predicted", "study": "predictions", "published": ["two"], "margin": 0.1}
    folder = root / "reports/predictions"
    folder.mkdir(parents=True)
    for error, ends, inputs, verdict, expected in (
        (0.05, (1.9, 2.3), "three", "judged", CONSISTENT),
        (-0.2, (1.2, 2.1), "three", "judged", CONSISTENT),
        (-0.2, (1.2, 1.9), "three", "judged", INCONSISTENT),
        (0.05, (2.05, 2.2), "three", "judged", INCONSISTENT),
        (0.05, ("", ""), "three", "judged", UNDECIDED),
        (0.0, (1.9, 2.3), "three", "settings assumed", UNJUDGED),
        (-0.2, (1.2, 1.9), "three", "settings assumed", UNJUDGED),
        (0.0, (1.9, 2.3), "three two", "judged", CALIBRATED),
        (0.0, (1.9, 2.3), "three", "calibrated", CALIBRATED),
    ):
        row = {"row": "two", "unit": "x", "published": 2, "predicted": 2 * (1 + error)}
        row |= {"error": error, "inputs": inputs, "verdict": verdict}
        row |= dict(zip(("low", "high"), ends, strict=True))
        write_rows(folder / "predictions.csv", list(row), [row])
        tie(folder)
        write_claims(root, predicted)
        (found,) = ledger(root)
        assert found["verdict"] == expected
        assert ("no interval" if ends == ("", "") else f"{ends[0]} to {ends[1]}") in found["ours"]
    write_claims(root, predicted | {"published": ["three"]})
    assert ledger(root)[0]["verdict"] == NOT_RUN


def test_a_bad_claim_is_named(root):
    write_study(root)
    for changes, told in (
        ({"published": ["nowhere"]}, r"claims\.c0: .*no nowhere"),
        ({"left": {"workers": 7}}, r"claims\.c0: .*no run .selection 1"),
        ({"left": {"scheme": "sync_allreduce"}}, r"claims\.c0: .*several runs of a seed"),
        ({"left": {"workers": 1}, "test": "exact"}, "fewer than 2 groups"),
        ({"left": {"nothing": 7}}, r"claims\.c0: .*no setting nothing"),
        ({"test": "better"}, r"claim\.test: a\.yaml"),
        ({"left": {}}, r"claims\.c0: a\.yaml: it needs left"),
        ({"margin": None}, "it needs size with margin"),
        ({"margin": "0.1"}, r"claim\.margin"),
        ({"limit": "cores are shared"}, "because"),
        ({"value": 2}, r"claim\.value: a\.yaml: there is no such setting"),
        ({"untestable": "no", "study": "made"}, "study or untestable"),
        ({"test": "none"}, "a test, or untestable"),
        ({"test": "none", "study": "tests"}, "a limit of what is not judged"),
        (
            {"test": "none", "study": "tests", "limit": "cores are shared", "because": "so"},
            "a limit of what is not judged",
        ),
        ({"kind": "predicted"}, "published numbers with a margin"),
        ({"test": "knee", "along": "workers"}, "it needs claimed"),
    ):
        write_claims(root, RATIO | changes)
        with pytest.raises(SettingError, match=told):
            ledger(root)


def test_what_claims_name_exists_or_is_to_be_written():
    """Tests of the code, studies, and numbers that are predicted."""
    predicted = predictions(ROOT)
    for claim in CLAIMS:
        for path in re.findall(r"pytest (\S+)", claim.command):
            assert (ROOT / path).is_file(), claim.id
        if claim.is_predicted:
            assert set(claim.published) <= set(predicted), claim.id
        elif claim.study not in ("", TESTS, WORKLOADS):
            assert (ROOT / f"experiments/{claim.study}.yaml").is_file(), claim.id
    for claim in CLAIMS:
        if claim.study == TESTS:
            assert claim.command.startswith(("pytest ", "paceline ")), claim.id


def test_published_values_and_verdicts_are_in_no_claim():
    """Numbers come by their id, and verdicts from the one file that has their words."""
    words = re.compile(rf"\b({'|'.join(MEANINGS)})\b", re.IGNORECASE)
    texts = [field.name for field in fields(Claim) if field.name not in ("left", "right", "steps")]
    for claim in CLAIMS:
        for name in texts:
            assert not words.search(str(getattr(claim, name))), (claim.id, name)
    # answers about schemes say "not judged" too
    told = {word for word in MEANINGS if " " in word} - {UNJUDGED} | {UNDECIDED}
    pages = [path for room in ("analysis", "report", "command") for path in room_files(room)]
    for path in [*pages, ROOT / "README.md"]:
        if path.name != "ledger.py":
            assert [word for word in told if word in path.read_text()] == [], path


def room_files(room):
    folder = ROOT / "src/paceline" / room
    return [*folder.rglob("*.py"), *folder.rglob("*.j2"), *folder.rglob("*.yaml")]
