"""Decides which scheme to use in each situation: by the time to the target, and what it costs.

A situation is what the user cannot choose: the number of workers, and the settings that do not
belong to the scheme. The schemes of one situation are a family, whose intervals and tests are made
together: with probability 95 %, all statements on the accuracies of its schemes against the
reference are true, and likewise all statements on their times against the best scheme.
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

    - `success`: share of runs that reached the target; a diverged run counts as one that did not;
    - `target_seconds`: restricted mean of the time to the target, in which a run that did not reach
      it counts as `horizon_seconds`; `worker_seconds`: its mean times the number of workers;
    - `baseline`: the configuration of one worker that reaches the target first; `baseline_n` and
      `baseline_reached`: number of its runs, and of those that reached the target;
    - `speedup`: time of `baseline` divided by the time of the scheme; `reference_speedup`: time of
      the scheme `reference` divided by it; empty unless all compared runs reached the target;
    - `tier`: best for the smallest time to the target; tied if the difference from the best is not
      significant; behind if it is significant, or if runs of only this scheme missed the target;
      never if no run reached the target; empty without a target;
    - `top1_difference`: top-1 minus that of `reference`, as a share, over finished runs, with
      simultaneous intervals; on test images if they were scored, else on validation images;
    - `accuracy`: verdict on this difference, one of better, worse, equivalent, not told;
      `within_margin`: 1 if the difference is shown to lie within the margin of the study, else 0;
    - `tuning_sd`, `draw_sd`: standard deviations that the interval of `top1_difference` contains,
      due to the luck of the search for the learning rate (from repeated searches), and due to the
      random draw of the test images;
    - `one_worker_<column>`, for the last five columns: the same comparison of accuracy with the
      runs of `baseline` in place of `reference`;
    - `at_edge`: edge of the search range at which the best trial of the scheme is, or that its
      tuning has not ended; a better setting may then exist, so that nothing is said against the
      scheme.
    """
    rows: list[Row] = []
    for situation, points in groups(with_processes(tables.runs), situation_columns(tables.axes)):
        settings = [name for name in tables.axes if name not in situation]
        members = [(situation | arm, own) for arm, own in groups(points, settings)]
        rows += _rows(tables, situation, members)
    return pd.DataFrame(rows)


def is_faster(best: Frame) -> bool:
    """Return False if the best scheme of a situation is not shown to be faster than one worker.

    `best` is the row of this scheme in the table `decision`. Without a baseline of one worker, the
    result is True. With a baseline but an unknown speed-up, it is False. If the speed-up has no
    interval, its mean decides.
    """
    mean, low = best["speedup_mean"], best["speedup_low"]
    if pd.isna(mean):
        return best["baseline"] in ("", None) or pd.isna(best["baseline"])
    return bool(mean >= 1 if pd.isna(low) else low > 1)


def _rows(tables: Tables, situation: Configuration, members: Sequence[Member]) -> list[Row]:
    """Return the rows of one situation, one per scheme with its settings."""
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
    """Return the columns that compare the accuracy of each member with that of one worker.

    The columns are empty if a member has a single process, or if no run of one worker reached the
    target.
    """
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
    """Return for each member of a family the columns on time; empty without a target or horizon.

    Speed-ups are computed against the runs of `one` worker, and against the member at the index
    `reference`. A speed-up is empty if a run of either side did not reach the target, because it
    would then depend on the horizon.
    """
    if target_of(tables, members[0][0]) is None or math.isnan(horizon):
        return [_times_row(restricted_mean([], horizon), None, None, "") for _ in members]
    times = [target_times(tables, own, horizon) for _, own in members]
    centre = None if reference is None else times[reference]
    ranked = zip(times, tiers(times), strict=True)
    return [_times_row(own, one, centre, tier) for own, tier in ranked]


def tiers(times: Sequence[RestrictedMean]) -> list[str]:
    """Return the tier of each scheme of a family.

    All pairs are tested, with p-values adjusted by Holm's method, since the data decide which
    scheme is best. Schemes all of whose runs reach the target share one relative variance; every
    other scheme has a variance of its own. If all runs of the best scheme reach the target, a
    scheme with a run that missed it is behind without a test: the horizon, by which this run
    counts, makes the mean so uncertain that a test of few seeds would call the scheme tied.
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
    """Return the columns that compare the accuracy of each member with that of the `centre`.

    `centre` is an index of `members`. The columns are empty for this member, and for all members if
    it is None. Intervals contain three variances: that between seeds, pooled over all finished
    runs; that of the luck of the search for the learning rate, if searches were repeated; and that
    of the random draw of test images, if records say which images were classified correctly.
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
    """Return for each member the geometric mean of `metric`, a rate, with its interval.

    All intervals use the same relative variance, pooled over the members.
    """
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
    """Return the variance of the difference of two mean accuracies due to the draw of the images.

    `one` and `other` have rows of finished runs. The result is 0 if records do not say which images
    were classified correctly. All runs are scored on the same images, so that the variance between
    seeds does not contain this variance. Images that both sides classify equally often correctly
    cancel: an image counts by how much more often one side is right about it than the other
    (McNemar 1947, here for means over seeds).
    """
    right = [
        [tables.right[key] for key in own["key"] if key in tables.right] for own in (one, other)
    ]
    if not all(right):
        return 0.0
    difference = np.mean(right[0], axis=0) - np.mean(right[1], axis=0)  # by image
    return float(difference.var() / len(difference))
