"""Computes the statistics that test claims of papers, each with its 95 % interval.

Runs of the same seed are paired: a statistic is computed for each seed, and its interval is that
of the mean over seeds by Student's t.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy.stats import ttest_1samp

from paceline.analysis.claims import Claim, Selection, read_published
from paceline.analysis.configuration import NOT_TRAINED
from paceline.analysis.frames import Frame, read_table
from paceline.analysis.intervals import FEWEST, LEVEL, POSITIVE, Array, Interval, interval
from paceline.analysis.searches import RATE, edge_of
from paceline.analysis.tables import LATE, Tables, late_share, read_tables
from paceline.analysis.time_to_target import crossings
from paceline.errors import SettingError
from paceline.model.network_size import Layer, NetworkSize
from paceline.record.result import NUMBERS

ACCURACIES = {each.name for each in NUMBERS if each.unit == "share" and "top" in each.name}
_RATE_FREE = ("images_per_second", "updates_per_second", "seconds")  # rates do not change them
_COUNTS: dict[str, Callable[[NetworkSize, int], float]] = {
    "weight_size": lambda size, batch: size.weight_bytes / 1e6,
    "fwd_bwd_flop_per_batch": lambda size, batch: size.flops(batch) / 1e12,
}


class Tested(NamedTuple):
    """Interval of a statistic, why it decides nothing ("" if it may), and how numbers were made."""

    found: Interval
    doubt: str = ""
    kind: str = ""  # measured, paced, virtual, counted or predicted


class Observed(NamedTuple):
    """Numbers of runs, and for each group its place on the axis."""

    values: Array  # [groups, seeds]
    along: Array


class Study(NamedTuple):
    """Runs of a study, and all of its tables; None for a table of exchanges."""

    runs: Frame
    tables: Tables | None


def read_study(name: str, root: Path) -> Study | None:
    """Return the runs that a claim names; None if they were not made yet."""
    if name.endswith(".csv"):
        exchanges = read_table(root / name, "python -m benchmarks collectives")
        return Study(exchanges.rename(columns={"turn": "seed"}), None)
    folder = root / "reports" / name
    if not (folder / "runs.csv").is_file():
        return None
    tables = read_tables(folder)
    runs = tables.runs.assign(effective_rate=tables.runs["lr"] / (1 - tables.runs["momentum"]))
    if tables.about["target"]:
        runs = runs.assign(target_seconds=runs["key"].map(crossings(tables)).astype(float))
    return Study(runs, tables)


def tested(claim: Claim, root: Path, study: Callable[[str], Study | None]) -> Tested:
    """Return the statistic of a claim.

    Raises SettingError, which names the claim, if a selection fits no run, or several of a seed.
    """
    if claim.statistic == "count":
        return Tested(_exact(_counted(claim, root)), kind="counted")
    if claim.statistic == "predicted":
        return _predicted(claim, root)
    of = study(claim.runs)
    if of is None:
        return Tested(_NOTHING, f"Its runs were not made yet: paceline sweep {claim.runs}.")
    groups, along = _groups(claim, of)
    kind = " and ".join(sorted({kind for group in groups for kind in group["kind"]}))
    values = pd.concat([_numbers(claim, group) for group in groups], axis=1).to_numpy().T
    doubt = _edges(claim, of, groups)
    if claim.statistic != "spread" and values.shape[1] < FEWEST:
        doubt = f"It has runs of {values.shape[1]} seeds, and a test needs {FEWEST}."
    if lost := int(np.isnan(values).sum()):
        doubt = (
            f"Of {values.size} runs, {lost} failed, are missing, missed the target, or had over "
        )
        doubt += f"{100 * LATE:g} % of their steps take longer than was set."
    if doubt:
        return Tested(_NOTHING, doubt, kind)
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms of 0 tell nothing
        found = STATISTICS[claim.statistic](claim, Observed(values, along))
    return Tested(found, kind=kind)


_NOTHING = Interval(math.nan, math.nan, math.nan, 0)


def select(claim: Claim, study: Study, selection: Selection) -> Frame:
    """Return the runs that have these settings; null stands for one that is not set, or is gone."""
    runs, fixed = study.runs, study.tables.about["settings"] if study.tables else {}
    for name, value in selection.items():
        wanted = value if isinstance(value, list) else [value]
        if name in runs:
            own = runs[name].astype(object)
            runs = runs[own.where(own.notna() & (own != ""), None).isin(wanted)]
        elif name in fixed or None in wanted:
            runs = runs if fixed.get(name) in wanted else runs.iloc[:0]
        else:
            raise SettingError(f"claims.{claim.id}", f"{claim.runs} has no setting {name}")
    return runs


def _groups(claim: Claim, study: Study) -> tuple[list[Frame], Array]:
    """Return the runs of each group, and the places of the groups on the axis."""
    left, places = select(claim, study, claim.left), list[float]()
    if claim.statistic == "spread":  # each configuration is a group: the n-th runs of all seeds
        groups = [group for _, group in left.groupby(left.groupby("seed").cumcount())]
    elif claim.along:
        places = sorted(left[claim.along].dropna().unique())
        groups = [left[left[claim.along] == place] for place in places]
    else:
        groups = [left, select(claim, study, claim.right)]
    fault = "too few groups" if len(groups) < (3 if claim.statistic == "knee" else 2) else ""
    for number, group in enumerate(groups, 1):
        if group.empty or claim.of not in group:
            fault = f"no run (group {number})"
        elif group["seed"].duplicated().any():
            fault = f"several runs of a seed (group {number})"
    if fault:
        raise SettingError(f"claims.{claim.id}", f"of {claim.runs} it selects {fault}")
    return groups, np.array(places, float)


def _numbers(claim: Claim, group: Frame) -> Frame:
    """Return the number of each run by its seed; a run that did not train has an accuracy of 0."""
    usable = group["status"] == "finished"
    if "late_steps" in group:
        usable &= ~(late_share(group) > LATE)
    numbers = group[claim.of].astype(float).where(usable)
    if claim.of in ACCURACIES:
        numbers = numbers.mask(group["status"].isin(NOT_TRAINED), 0.0)
    return numbers.set_axis(group["seed"])


def _edges(claim: Claim, study: Study, groups: Sequence[Frame]) -> str:
    """Return why the search of a group decides nothing, as a sentence; "" if it may."""
    if study.tables is None or claim.of in _RATE_FREE:
        return ""
    if claim.of == "effective_rate":
        return "Each rate is the choice of one search, which has no interval."
    everywhere = study.tables.about["settings"].get(RATE)
    for group in groups:
        first = {RATE: everywhere} | group.iloc[0].to_dict()
        if first[RATE] == "tuned" and (edge := edge_of(study.tables, first)):
            return f"The best trial of a search is at the edge of its range ({edge})."
    return ""


def _ratio(claim: Claim, seen: Observed) -> Interval:
    return interval(seen.values[0] / seen.values[1], POSITIVE)


def _difference(claim: Claim, seen: Observed) -> Interval:
    return interval(seen.values[0] - seen.values[1])


def _distance(claim: Claim, seen: Observed) -> Interval:
    """Return the size of a difference, whatever its sign."""
    mean, low, high, n = _difference(claim, seen)
    return Interval(abs(mean), max(low, -high, 0.0), max(-low, high), n)


def _slope(claim: Claim, seen: Observed) -> Interval:
    """Return the log-log slope by least squares."""
    x = np.log(seen.along)[:, None]
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return interval((weights * np.log(seen.values)).sum(axis=0))


def _knee(claim: Claim, seen: Observed) -> Interval:
    """Return the smallest place on the axis that is as good as the best one, up to `allowed`.

    The interval is the whole axis unless both ends are worse than some place between them, by a
    paired t test for each of these places (Bonferroni). With `allowed`, numbers may stay level
    after the knee: then only the first end must be worse, by more than `allowed`.
    """
    worse = np.log(seen.values) * (1 if claim.least else -1)
    allowed = math.log1p(claim.allowed)
    near = worse <= worse.min(axis=0) + allowed
    found = interval(seen.along[near.argmax(axis=0)], POSITIVE)
    start, *inner, end = seen.along
    if found.low <= start * (1 + 1e-9) or found.high >= end * (1 - 1e-9):
        return found
    p = [1.0]
    for place in worse[1:-1]:
        rise = worse[[0] if allowed else [0, -1]] - place - allowed
        p.append(np.asarray(ttest_1samp(rise, 0, axis=1, alternative="greater")[1]).max())
    is_shown = np.nanmin(p) * len(inner) <= 1 - LEVEL
    return found if is_shown else Interval(found.mean, start, end, found.n)


def _spread(claim: Claim, seen: Observed) -> Interval:
    """Return the largest relative difference between configurations of a seed."""
    return _exact(np.ptp(seen.values, axis=0) / np.abs(seen.values).max(axis=0))


def _exact(numbers: Array | list[float]) -> Interval:
    """Return the largest of numbers that have no error."""
    largest = float(max(numbers))
    return Interval(largest, largest, largest, 0)


def _counted(claim: Claim, root: Path) -> list[float]:
    """Return by how much counts of the networks in conf/workload differ from the published ones."""
    published, found = read_published(root), list[float]()
    for name in claim.published:
        row = published.get(name)
        if row is None or row["metric"] not in _COUNTS:
            raise SettingError(f"claims.{claim.id}", f"nothing counts {name}")
        path = root / "conf/workload" / f"{row['model'].lower().replace('-', '')}.yaml"
        layers = [Layer(*layer) for layer in yaml.safe_load(path.read_text())["layers"]]
        count = _COUNTS[row["metric"]](NetworkSize(layers), int(row["batch_size"]))
        found.append(abs(count / float(row["value"]) - 1))
    return found


def _predicted(claim: Claim, root: Path) -> Tested:
    """Return the prediction of a published number that was no input of it."""
    path, command = root / "reports/predictions/predictions.csv", "paceline predict --published"
    if not path.is_file():
        return Tested(_NOTHING, f"It was not predicted yet: {command}.")
    rows = read_table(path, command).set_index("row")
    if claim.published[0] not in rows.index:
        raise SettingError(f"claims.{claim.id}", f"{claim.published[0]} is not predicted")
    row = rows.loc[claim.published[0]]
    is_test = row["verdict"] in ("judged", "same runs")
    doubt = "" if is_test else f"Its prediction tests nothing: {row['verdict']}."
    found = Interval(float(row["predicted"]), float(row["low"]), float(row["high"]), 0)
    return Tested(found, doubt, "predicted")


STATISTICS: dict[str, Callable[[Claim, Observed], Interval]] = {
    "ratio": _ratio,
    "difference": _difference,
    "distance": _distance,
    "slope": _slope,
    "knee": _knee,
    "spread": _spread,
}
