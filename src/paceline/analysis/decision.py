"""Decides which scheme to use in each situation: by the time to the target, and what it costs.

A situation is given to the user: the number of workers, and the settings that are not the scheme's.
Its schemes are one family: with probability 95 % all statements on accuracies against the reference
are true, and likewise all on times against the best.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from paceline.analysis.comparison import METRICS, reference_scheme
from paceline.analysis.configuration import (
    Configuration,
    counts,
    finished,
    groups,
    num_processes,
    situation_columns,
    size_of,
    with_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval
from paceline.analysis.searches import edge_of, tuning_variance
from paceline.analysis.statistics.means import (
    LEVEL,
    POINTS,
    POSITIVE,
    intervals_of_means,
    pooled,
    success_rate,
)
from paceline.analysis.statistics.multiple_comparisons import (
    against_reference,
    for_equivalence,
    holm,
    judge,
    unadjusted,
)
from paceline.analysis.statistics.times import (
    RestrictedMean,
    family_of,
    fastest,
    p_value,
    ratio_of_means,
    restricted_mean,
)
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import (
    OneWorker,
    best_one_worker,
    horizon_of,
    target_of,
    target_times,
)

Member = tuple[Configuration, Frame]  # of a family: a configuration with its runs
BEST, TIED, BEHIND, NEVER = "best", "tied", "behind", "never"


def decision(tables: Tables) -> Frame:
    """Return one row per situation and scheme.

    - `success`: the share of runs that reach the target; a diverged run is one that does not;
    - `target_seconds`: the mean time to it, restricted to `horizon_seconds`; `worker_seconds`:
      times the number of workers;
    - `speedup`: that of the best one-worker runs, `baseline`, over it, if all of both get there;
      `reference_speedup`: that of the scheme `reference` over it, likewise;
    - `baseline_n`, `baseline_reached`: the runs of `baseline`, and how many of them got there;
    - `tier`: best, the smallest time to the target; tied, if the difference from it is not
      significant; behind, if it is; never, if no run reached the target; empty without a target;
    - `top1_difference`: top-1 (of test, if known) less that of `reference`, a share, over finished
      runs, with simultaneous intervals; `accuracy` judges it (better, worse, equivalent, not
      told), and `within_margin` is 1 if it is shown to lie within the margin of the study;
      `tuning_sd` and `draw_sd` are the standard deviations, in the interval, by which the luck of
      repeated searches for the rate, and the draw of test images, move the difference;
    - the same five, with `one_worker_` before their names, less top-1 of the runs of `baseline`;
    - `at_edge`: the edge of the search range at which its best trial is, so that a better one may
      be beyond it: then nothing may be said against the scheme.
    """
    rows: list[Row] = []
    for situation, points in groups(with_processes(tables.runs), situation_columns(tables.axes)):
        settings = [name for name in tables.axes if name not in situation]
        members = [(situation | arm, own) for arm, own in groups(points, settings)]
        rows += _rows(tables, situation, members)
    return pd.DataFrame(rows)


def is_faster(best: Frame) -> bool:
    """Return False if a situation's best scheme is not shown to be faster than one worker.

    `best`: its row of `decision`. Without runs of one worker the result is True; their best run has
    a speed-up without an interval.
    """
    mean, low = best["speedup_mean"], best["speedup_low"]
    if pd.isna(mean):
        return best["baseline"] in ("", None) or pd.isna(best["baseline"])
    return bool(mean >= 1 if pd.isna(low) else low > 1)


def _rows(tables: Tables, situation: Configuration, members: Sequence[Member]) -> list[Row]:
    """Return the rows of one situation, scheme by scheme."""
    reference = reference_scheme(tables.runs)
    centres = [place for place, (own, _) in enumerate(members) if own["scheme"] == reference]
    centre = centres[0] if len(centres) == 1 else None  # of several settings none is the centre
    horizon = horizon_of(tables, situation)
    goal = target_of(tables, situation)
    one = best_one_worker(tables, situation, horizon) if goal and horizon == horizon else None
    columns = zip(
        members,
        family_times(tables, members, horizon, one, centre),
        accuracies(tables, members, centre),
        _against_one_worker(tables, members, one),
        means_of_family(members, "images_per_second"),
        strict=True,
    )
    return [
        {
            **configuration,
            "n": len(own),
            **counts(own),
            "target": goal["target"] if goal else math.nan,
            "horizon_seconds": horizon,
            **time,
            "worker_seconds": size_of(situation) * time["target_seconds_mean"],
            "reference": reference,
            **accuracy,
            **of_one,
            **speed,
            "at_edge": edge_of(tables, configuration),
        }
        for (configuration, own), time, accuracy, of_one, speed in columns
    ]


def _against_one_worker(
    tables: Tables, members: Sequence[Member], one: OneWorker | None
) -> list[Row]:
    """Return the columns on accuracy against runs of one worker, of those that have several."""
    several = one is not None and all(num_processes(own) > 1 for own, _ in members)
    extended = [*members, (one.configuration, one.points)] if one and several else members
    found = accuracies(tables, extended, len(members) if several else None)
    rows = [{f"one_worker_{name}": value for name, value in row.items()} for row in found]
    return rows[: len(members)]


def family_times(
    tables: Tables,
    members: Sequence[Member],
    horizon: float,
    one: OneWorker | None,
    reference: int | None,
) -> list[Row]:
    """Return the columns on time of each member; they are empty without a target and horizon.

    Speed-ups are against the runs of `one` worker, and against the member at the place `reference`.
    There is none where a run of either did not reach the target: it would depend on the horizon.
    """
    if target_of(tables, members[0][0]) is None or math.isnan(horizon):
        return [_times_row(restricted_mean([], horizon), None, None, "") for _ in members]
    times = [target_times(tables, own, horizon) for _, own in members]
    centre = None if reference is None else times[reference]
    ranked = zip(times, tiers(times), strict=True)
    return [_times_row(own, one, centre, tier) for own, tier in ranked]


def tiers(times: Sequence[RestrictedMean]) -> list[str]:
    """Return the tier of each scheme of a family.

    All pairs are tested, with Holm's p-values, since the data decide which scheme is best.
    Schemes whose runs all reach the target have one relative variance, those with failures their
    own. Where all runs of the best reach the target, a scheme that lost one is behind without a
    test: the horizon in its mean makes that so uncertain that few seeds would call it tied.
    """
    found = [NEVER if not own.reached else TIED for own in times]
    ranked = [place for place, own in enumerate(times) if own.reached]
    if not ranked:
        return found
    best = ranked[fastest([times[place] for place in ranked])]
    steady = [place for place in ranked if not times[place].lost]
    p = {pair: p_value(*(times[place] for place in pair)) for pair in combinations(ranked, 2)}
    if len(steady) > 1:
        own = unadjusted(family_of([times[place] for place in steady]))
        p |= dict(zip(combinations(steady, 2), own.tolist(), strict=True))
    adjusted = holm(np.nan_to_num(list(p.values()), nan=1.0))
    for pair, value in zip(p, adjusted, strict=True):
        if best in pair:
            other = pair[0] if pair[1] == best else pair[1]
            unreliable = times[other].lost and not times[best].lost
            found[other] = BEHIND if unreliable or value <= 1 - LEVEL else TIED
    found[best] = BEST
    return found


def _times_row(
    own: RestrictedMean, one: OneWorker | None, centre: RestrictedMean | None, tier: str
) -> Row:
    seconds, success, baseline = NONE, NONE, one.time if one else None
    if own.n:
        seconds = Interval(*own.interval().at(), own.n)
        success = Interval(*success_rate(own.reached, own.n).at(), own.n)
    return (
        {"tier": tier, "n_reached": own.reached, "baseline": one.name if one else ""}
        | success.named("success")
        | seconds.named("target_seconds")
        | _speedup(baseline, own).named("speedup")
        | _speedup(centre, own).named("reference_speedup")
        | {
            "baseline_n": baseline.n if baseline else None,
            "baseline_reached": baseline.reached if baseline else None,
        }
    )


def _speedup(base: RestrictedMean | None, own: RestrictedMean) -> Interval:
    if base is None or not base.reached or not own.n:
        return NONE
    if own == base:  # the baseline itself
        return Interval(1.0, math.nan, math.nan, own.n)
    if base.lost or own.lost:
        return NONE
    return Interval(*ratio_of_means(base, own).at(), own.n)


def accuracies(tables: Tables, members: Sequence[Member], centre: int | None) -> list[Row]:
    """Return the columns on accuracy of each member against the one at the place `centre`.

    There is no difference for the centre itself, nor for any member without a centre. Intervals
    contain the pooled variance of all finished runs, that of the luck of searches for the rate, if
    they were repeated, and that of the draw of test images, if records say which were right.
    """
    runs = [finished(own) for _, own in members]
    validation, test = METRICS
    metric = test if any(own[test].notna().any() for _, own in members) else validation
    values = [own[metric].dropna().to_numpy(float) for own in runs]
    known = [place for place, own in enumerate(values) if len(own)]
    rows = [_accuracy_row(NONE) for _ in members]
    if centre is None or centre not in known or len(known) < 2:
        return rows
    family = pooled([values[place] for place in known], POINTS)
    tuned = [members[place][0] for place in known]
    luck = tuning_variance(tables, tuned, metric, float(family.variance))
    others = [place for place in known if place != centre]
    draws = np.zeros(len(others))
    if metric == test:
        draws += [variance_of_draw(tables, runs[place], runs[centre]) for place in others]
    sides = [
        find(family, known.index(centre), extra_variance=luck + draws)
        for find in (against_reference, for_equivalence)
    ]
    judgement = judge(*sides, margin=tables.margin)
    for index, place in enumerate(others):
        difference = Interval(*sides[0].at(index), len(values[place]))
        deviations = {"tuning_sd": math.sqrt(luck), "draw_sd": math.sqrt(draws[index])}
        rows[place] = _accuracy_row(difference) | deviations
        if not np.isnan(difference.low):
            rows[place]["accuracy"] = str(judgement.verdict[index])
            rows[place]["within_margin"] = int(judgement.within[index])
    return rows


def _accuracy_row(difference: Interval) -> Row:
    row: Row = dict(difference.named("top1_difference"))
    return row | {"accuracy": "", "within_margin": "", "tuning_sd": "", "draw_sd": ""}


def means_of_family(members: Sequence[Member], metric: str) -> list[Row]:
    """Return the mean of a rate of each member, geometric, with intervals of one variance."""
    values = [finished(own)[metric].dropna().to_numpy(float) for _, own in members]
    values = [own[own > 0] for own in values]
    known = [place for place, own in enumerate(values) if len(own)]
    rows = [NONE.named(metric) for _ in members]
    if known:
        found = intervals_of_means(pooled([values[place] for place in known], POSITIVE))
        for index, place in enumerate(known):
            rows[place] = Interval(*found.at(index), len(values[place])).named(metric)
    return rows


def variance_of_draw(tables: Tables, one: Frame, other: Frame) -> float:
    """Return the variance of the difference of two mean accuracies by the draw of the images.

    `one`, `other`: rows of finished runs. 0 if records do not say which images were right. All runs
    are scored on the same images, so that the variance between seeds does not contain it. What both
    get right, or both wrong, cancels: an image counts by how much more often the one is right on it
    than the other (McNemar 1947, for means over seeds).
    """
    right = [
        [tables.right[key] for key in own["key"] if key in tables.right] for own in (one, other)
    ]
    if not all(right):
        return 0.0
    difference = np.mean(right[0], axis=0) - np.mean(right[1], axis=0)  # by image
    return float(difference.var() / len(difference))
