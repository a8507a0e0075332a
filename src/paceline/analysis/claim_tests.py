"""Tests claims of papers on tables of studies, by a closed set of tests.

Each test turns observations [..., groups, seeds] into one number with its 95 % interval. What a
claim says is a range of this number. Runs of equal seed are paired. Leading dimensions are
independent tables, so that a test can be tried on thousands of made-up tables at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.special import stdtr, stdtrit

from paceline.analysis.cautions import LATE, late_share
from paceline.analysis.claims import (
    COLLECTIVES,
    PREDICT,
    PREDICTIONS,
    WORKLOADS,
    Claim,
    Published,
    Selection,
)
from paceline.analysis.configuration import NOT_TRAINED
from paceline.analysis.frames import Frame, Row, read_tied
from paceline.analysis.searches import NO_LUCK, RATE, Luck, edge_of, lucks, of_best, tuning_axes
from paceline.analysis.statistics.means import (
    LEVEL,
    POSITIVE,
    Array,
    Estimate,
    Pooled,
    intervals_of_means,
    paired,
    pooled,
)
from paceline.analysis.statistics.multiple_comparisons import (
    against_reference,
    for_equivalence,
    holm,
    unadjusted,
)
from paceline.analysis.tables import Tables, read_about, read_tables
from paceline.analysis.time_to_target import crossings
from paceline.errors import SettingError
from paceline.model.network_size import Layer, NetworkSize
from paceline.record.numbers import NUMBERS
from paceline.record.schema import columns_of_runs
from paceline.record.tied_files import sums_of_predictions

StudyTable = tuple[Frame, Mapping[str, Any], bool, Tables | None]  # see `table_of`
_WITHOUT_POWER = ("differ", "knee", "law_of_growth")  # whose chance does not follow from a width
FEWEST = 3  # seeds or turns
_NO_TRIAL = "no trial trained with a known momentum"
_DRAWS = 2000  # of made-up experiments, for the power of a test
ACCURACIES = {each.name for each in NUMBERS if each.unit == "share" and "top" in each.name}
EFFECTIVE_RATE = "effective_rate"  # a column that tables of runs do not have: lr / (1 - momentum)
_MODELLED = ("seconds", "images_per_second", "updates_per_second")  # of virtual runs: no sample
_AT_BEST = {"equal": ACCURACIES, "differ": ACCURACIES, "slope": {EFFECTIVE_RATE}}
_OF_RATES = {each.name for each in NUMBERS if each.unit == "nats"} | ACCURACIES  # what rates change
_OF_RATES |= {EFFECTIVE_RATE, "lr", "momentum", "target_seconds"}
_COUNTS: dict[str, Callable[[NetworkSize, int], float]] = {  # columns of FireCaffe's Table 1
    "weight_size": lambda size, batch: size.weight_bytes / 1e6,
    "data_size_per_batch": lambda size, batch: size.activation_bytes(batch) / 1e6,
    "fwd_bwd_flop_per_batch": lambda size, batch: size.flops(batch) / 1e12,
}


@dataclass(frozen=True)
class Observed:
    """Numbers that a claim is tested on.

    `values` [..., groups, seeds]: NaN for a run that is missing. `along` [groups]: numbers on the
    axis of a law or of a knee. `lost`: number of runs that failed or are missing, that diverged or
    missed the target and so have no time, or that did not hold the pace of their steps. `diverged`:
    number of runs that did not train and count as an accuracy of 0. `started`: when the oldest run
    started, "" if that is not known of each; `commit`: its code. `luck`: what the search of each
    group may have missed; none where no rate was searched, or where `unknown` says why that is not
    known of a group.
    """

    values: Array
    along: Array = field(default_factory=lambda: np.zeros(0))
    lost: int = 0
    diverged: int = 0
    started: str = ""
    commit: str = ""
    luck: Sequence[Luck] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Result:
    """Result of a test: its number, `narrow` for two one-sided tests of equality, and p-values.

    `n`: number of seeds (or turns); None where nothing varies.
    """

    estimate: Estimate
    narrow: Estimate
    n: int | None
    p: Array | float = 0.0
    has_p: bool = False


def predictions(root: Path) -> Mapping[str, Row]:
    """Return the predictions of published numbers by their id; none without such a table."""
    path = root / f"reports/{PREDICTIONS}/predictions.csv"
    if not path.is_file():
        return {}
    rows = read_tied(path, PREDICT, sums=sums_of_predictions(path))
    return {row["row"]: dict(row) for _, row in rows.iterrows()}


def observed(
    claim: Claim, root: Path, published: Published, table: Callable[[str], StudyTable | None]
) -> Observed | None:
    """Select the numbers that test a claim; None if their runs were not made yet.

    `table(study)`: as `table_of`. Raises SettingError, which names the claim, for a selection that
    fits no run or several runs of a seed, and as `read_tied` does for a table that was changed.
    """
    if claim.is_predicted or claim.test == "none":
        return None
    if claim.study == WORKLOADS:
        return Observed(counted(claim, root, published))
    found = table(claim.study)
    return None if found is None else of_table(claim, *found)


def table_of(study: str, root: Path) -> StudyTable | None:
    """Return the runs of a study, the settings that they share, whether all runs were made, and all
    tables of a study that searched rates or sets a target; None without its tables. The turns of
    the benchmark of collectives have their number in the column `seed`.
    """
    folder, command = root / "reports" / study, f"paceline sweep {study}"
    if study == COLLECTIVES and (path := root / "benchmarks/collectives.csv").is_file():
        turns = pd.read_csv(path).rename(columns={"turn": "seed"})
        return turns.assign(status="finished"), {}, True, None
    if not (folder / "runs.csv").is_file():
        return None
    rows = read_tied(folder / "runs.csv", command, columns_of_runs())
    rows = rows.assign(**{EFFECTIVE_RATE: rows["lr"] / (1 - rows["momentum"])})
    about = read_about(folder, command)
    is_tuned = "tuned" in {about["settings"].get(RATE), *rows.get(RATE, ())}
    tables = read_tables(folder) if is_tuned or about["target"] else None
    if tables and about["target"]:  # of runs that went on after it as well
        reached = {k: own.high for k, own in crossings(tables, "seconds").items() if own.reached}
        rows = rows.assign(target_seconds=rows["key"].map(reached).astype(float))
    return rows, about["settings"], not about["missing"], tables


def of_table(
    claim: Claim,
    rows: Frame,
    fixed: Mapping[str, Any],
    complete: bool = True,
    tables: Tables | None = None,
) -> Observed | None:
    """Select the numbers that test a claim from a table of runs; None if too few runs were made.

    `fixed`: settings that all runs share, of which the table has no column. `complete`: False for
    a study of which runs are missing. `tables`: with the searches of their rates.
    """
    groups, along = _groups(claim, rows, fixed)
    fewest = 3 if claim.test in ("law_of_growth", "knee") else 2
    fault = f"fewer than {fewest} groups" if len(groups) < fewest else ""
    for number, group in enumerate(groups, 1):
        if group.empty or claim.of not in group:
            fault = f"{claim.of} of no run (selection {number})"
        elif group["seed"].duplicated().any():
            complete, fault = True, f"several runs of a seed (selection {number})"
    if fault and not complete:
        return None
    if fault:
        raise SettingError(f"claims.{claim.id}", f"of {claim.study} it selects {fault}")
    seeds = sorted({seed for group in groups for seed in group["seed"]})
    values = np.full((len(groups), len(seeds)), math.nan)
    diverged = 0
    for row, group in zip(values, groups, strict=True):
        held = group["status"] == "finished"
        if "late_steps" in group:
            held &= ~(late_share(group) > LATE)
        for index, run in group.iterrows():
            lost_it = run["status"] in NOT_TRAINED and claim.of in ACCURACIES
            number = run[claim.of] if held[index] else math.nan
            row[seeds.index(run["seed"])] = 0.0 if lost_it else number
            diverged += lost_it
    lost = int(np.isnan(values).sum())
    starts = [each for group in groups for each in group["started"]]
    has_starts = all(isinstance(each, str) and each for each in starts)
    started = min(starts, key=time_of) if has_starts else ""
    commits = [each for group in groups for each in group.get("commit", [""] * len(group))]
    commit = commits[starts.index(started)] if has_starts else ""
    searches = _searches(claim, groups, fixed, tables) if tables else ((), "")
    return Observed(values, np.array(along, float), lost, diverged, started, commit, *searches)


def _searches(
    claim: Claim, groups: Sequence[Frame], fixed: Mapping[str, Any], tables: Tables
) -> tuple[Sequence[Luck], str]:
    """Return what the search of each group may have missed, or why that is not known of one."""
    firsts = [{RATE: fixed.get(RATE)} | group.iloc[0].to_dict() for group in groups]
    is_tuned = ["tuned" in {fixed.get(RATE), *group.get(RATE, ())} for group in groups]
    if not any(is_tuned) or claim.of not in _OF_RATES:
        return (), ""
    if claim.of not in _AT_BEST.get(claim.test, ()):
        text = f"the test {claim.test} cannot judge {claim.of} at best settings"
        raise SettingError(f"claims.{claim.id}", f"rates of {claim.study} were searched: {text}")
    for number, group in enumerate(groups, 1):
        names = [name for name in (RATE, *tuning_axes(tables)) if name in group]
        if len(group[names].drop_duplicates()) > 1:
            text = f"of {claim.study} it selects runs of several searches (selection {number})"
            raise SettingError(f"claims.{claim.id}", text)
    luck = lucks(tables, firsts)
    for own, missed, searched in zip(firsts, luck, is_tuned, strict=True):
        if searched and (why := edge_of(tables, own) or (missed is NO_LUCK and _NO_TRIAL)):
            return (), why
    return luck, ""


def time_of(text: str) -> datetime:
    """Return a time with its zone: UTC, if the text names none."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _groups(
    claim: Claim, rows: Frame, fixed: Mapping[str, Any]
) -> tuple[list[Frame], Sequence[float]]:
    """Return the runs of each group, and the places of the groups on the axis."""
    if claim.steps:
        return [select(claim.id, rows, each, fixed) for each in claim.steps], ()
    left = select(claim.id, rows, claim.left, fixed)
    if claim.test == "exact":  # each configuration is a group: the n-th runs of all seeds
        return [own for _, own in left.groupby(left.groupby("seed").cumcount())], ()
    if not claim.along:
        return [left, select(claim.id, rows, claim.right, fixed)], ()
    if claim.along not in left:
        raise SettingError(f"claims.{claim.id}", f"{claim.study} has no axis {claim.along}")
    places = sorted(left[claim.along].dropna().unique())
    return [left[left[claim.along] == place] for place in places], places


def select(claim: str, rows: Frame, selection: Selection, fixed: Mapping[str, Any]) -> Frame:
    """Return the rows that have these settings; raise SettingError for an unknown setting."""
    for name, value in selection.items():
        wanted = value if isinstance(value, list) else [value]
        if name not in rows:
            if name not in fixed:
                raise SettingError(f"claims.{claim}", f"its study has no setting {name}")
            rows = rows if fixed[name] in wanted else rows.iloc[:0]
            continue
        fits = rows[name].isin([each for each in wanted if each is not None])
        if None in wanted:
            fits |= rows[name].isna() | (rows[name] == "")
        rows = rows[fits]
    return rows


def counted(claim: Claim, root: Path, published: Published) -> Array:
    """Return for each published count: that of the network in conf/workload, over it."""
    ratios = []
    for name in claim.published:
        row = published.row(name, claim.id)
        found = count(row, root)
        if found is None:
            raise SettingError(f"claims.{claim.id}", f"nothing counts {name}")
        ratios.append([found / float(row["value"])])
    return np.array(ratios)


def count(row: Mapping[str, str], root: Path) -> float | None:
    """Count what a row of published.csv says of a network; None for what is not counted here."""
    path = root / "conf/workload" / f"{row['model'].lower().replace('-', '')}.yaml"
    if row["metric"] not in _COUNTS or not path.is_file():
        return None
    layers = [Layer(*layer) for layer in yaml.safe_load(path.read_text())["layers"]]
    return _COUNTS[row["metric"]](NetworkSize(layers), int(row["batch_size"]))


@np.errstate(divide="ignore", invalid="ignore")  # of a time of 0, whose logarithm tells nothing
def evaluate(claim: Claim, seen: Observed) -> Result:
    """Test a claim on observations. Numbers that are equal for all seeds are exact."""
    values, n = seen.values, seen.values.shape[-1]
    if np.isnan(values).all(axis=-1).any():  # of a group nothing is known
        nothing = Estimate(*[np.full(values.shape[:-2], math.nan)] * 3)
        return Result(nothing, nothing, n)
    found = _TESTS[claim.test](claim, seen)
    found = found if isinstance(found, Result) else Result(found, found, n)
    is_exact = claim.test in ("exact", "count") or (
        n >= FEWEST and (values == values[..., :1]).all()
    )
    is_exact |= claim.kind == "virtual" and claim.of in _MODELLED
    return replace(found, n=None) if is_exact else found


def slope(claim: Claim, seen: Observed) -> Estimate | Result:
    """Log-log slope of each seed, by least squares; that of searched rates is one of each draw."""
    x = np.log(seen.along)[:, None]
    x = x - x.mean()
    slopes = (x * np.log(seen.values)).sum(axis=-2) / (x**2).sum()
    if not seen.luck:
        return _of_mean(pooled([slopes]))
    missed = (x * [own.faster for own in seen.luck]).sum(axis=0) / (x**2).sum()
    drawn = slopes.mean(axis=-1, keepdims=True) + missed
    ends = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    found = Estimate(drawn.mean(axis=-1), *ends)
    return Result(found, found, None)


def law(claim: Claim, seen: Observed) -> Estimate:
    """Largest relative residual of y = c log2 x, fitted to each seed."""
    rest = np.log(seen.values) - np.log(np.log2(seen.along))[:, None]
    rest -= rest.mean(axis=-2, keepdims=True)
    worst = np.expm1(np.abs(rest)).max(axis=-2) + np.finfo(float).eps
    return _of_mean(pooled([worst], POSITIVE))


def _knee(claim: Claim, seen: Observed) -> Result:
    """Smallest place on the axis of each seed that is within the margin of the best place.

    The p-value is that of a place inside the axis from which both ends are worse, by paired tests
    for each of these places. With a margin, curves may stay level after their knee: then only the
    first end must be worse, by more than the margin. A knee at an end is none.
    """
    worse = np.log(seen.values) * (1 if claim.least else -1)
    allowed = math.log1p(claim.margin or 0)
    near = worse <= worse.min(axis=-2, keepdims=True) + allowed
    places = np.where(near.any(axis=-2), seen.along[near.argmax(axis=-2)], math.nan)
    found, n = _of_mean(pooled([places], POSITIVE)), worse.shape[-1]
    family, inner = paired(worse), np.arange(1, len(seen.along) - 1)
    p: Array = np.zeros((*worse.shape[:-2], len(inner)))
    for end in (0,) if allowed else (0, len(seen.along) - 1):
        rise = family.means[..., [end]] - family.means[..., inner] - allowed
        error = np.sqrt(family.variance_of_differences(inner, np.full(len(inner), end)))
        p = np.maximum(p, np.nan_to_num(stdtr(family.degrees, -rise / error), nan=1.0))
    p = np.minimum(len(inner) * p.min(axis=-1), 1)
    first, last = seen.along[[0, -1]] * (1 + 1e-9, 1 - 1e-9)  # beyond errors of rounding
    is_inside = (found.low > first) & (found.high < last)
    return Result(found, found, n, np.where(is_inside, p, 1.0), has_p=True)


def power(
    claim: Claim, result: Result, low: float, high: float, true: float, at_best: bool = False
) -> tuple[float, float]:
    """Return the chance to find a claim that is exactly `true`, and the smallest effect that would
    be found four times of five, both with the number of runs and the spread of `result`.

    The first is NaN for a claim without two ends, and the second for one with both; both are,
    for tests whose chance does not follow from the width of an interval. `at_best`: the interval is
    of best settings, so that its width is mostly what the searches leave open, and the same for
    other runs.
    """
    if result.n is None or result.n < 2 or claim.test in _WITHOUT_POWER:
        return math.nan, math.nan
    into = np.log if claim.test == "ratio" else np.asarray
    degrees, (_, start, end) = result.n - 1, result.estimate.at()
    critical = stdtrit(degrees, (1 + LEVEL) / 2)
    error = float(into(end) - into(start)) / 2 / critical
    if not math.isfinite(error):
        return math.nan, math.nan
    if math.isinf(low) or math.isinf(high):
        return math.nan, float((critical + stdtrit(degrees, 0.8)) * error)
    random = np.random.default_rng(0)
    means = into(true) + error * random.standard_normal(_DRAWS)
    scatter = 1.0 if at_best else np.sqrt(random.chisquare(degrees, _DRAWS) / degrees)
    half = error * scatter * (stdtrit(degrees, LEVEL) if claim.test == "equal" else critical)
    inside = (means - half >= into(low)) & (means + half <= into(high))
    return float(inside.mean()), math.nan


def _of_mean(family: Pooled) -> Estimate:
    return _first(intervals_of_means(family))


def _first(estimate: Estimate) -> Estimate:
    return Estimate(*(np.asarray(part)[..., 0] for part in estimate))


def _differ(
    claim: Claim, seen: Observed, find: Callable[..., Estimate] = against_reference
) -> Estimate:
    """Compare the first of two groups with the second, at best settings if rates were searched."""
    shift, missed = of_best(seen.luck, 1) if seen.luck else (0.0, 0.0)
    return _first(find(paired(seen.values), 1, extra_variance=missed, shift=shift))


def _ratio(claim: Claim, seen: Observed) -> Estimate:
    return _first(against_reference(paired(seen.values, POSITIVE), 1))


def _equal(claim: Claim, seen: Observed) -> Result:
    narrow = _differ(claim, seen, for_equivalence)
    return Result(_differ(claim, seen), narrow, seen.values.shape[-1])


def _exact(claim: Claim, seen: Observed) -> Estimate:
    """Largest relative difference between configurations of a seed."""
    values = seen.values
    spread = values.max(axis=-2) - values.min(axis=-2)
    return Estimate(*[(spread / np.abs(values).max(axis=-2)).max(axis=-1)] * 3)


def _count(claim: Claim, seen: Observed) -> Estimate:
    """Largest relative difference from a published count."""
    return Estimate(*[np.abs(seen.values - 1).max(axis=(-2, -1))] * 3)


def _greater(claim: Claim, seen: Observed) -> Result:
    """Smallest rise from a step to the next, with p-values adjusted for the number of steps."""
    family, steps = paired(seen.values), seen.values.shape[-2] - 1
    pairs = [(a, b) for a in range(steps + 1) for b in range(a + 1, steps + 1)]
    places = [pairs.index((a, a + 1)) for a in range(steps)]
    p = holm(np.nan_to_num(unadjusted(family)[..., places], nan=1.0)).max(axis=-1)
    rise = np.diff(family.means, axis=-1)
    error = np.sqrt(family.variance_of_differences(np.arange(steps), np.arange(1, steps + 1)))
    half = stdtrit(max(family.degrees, 1), 1 - (1 - LEVEL) / (2 * steps)) * error
    least = rise.argmin(axis=-1)[..., None]
    ends = (np.take_along_axis(each, least, axis=-1) for each in (rise, rise - half, rise + half))
    found = _first(Estimate(*ends))
    return Result(found, found, seen.values.shape[-1], p, has_p=True)


_TESTS: dict[str, Callable[[Claim, Observed], Result | Estimate]] = {
    "equal": _equal,
    "differ": _differ,
    "greater": _greater,
    "ratio": _ratio,
    "slope": slope,
    "law_of_growth": law,
    "knee": _knee,
    "count": _count,
    "exact": _exact,
}
