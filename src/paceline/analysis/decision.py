"""Decides which scheme to use in each situation: by the time to the target, and what it costs.

A situation is what the user cannot choose: the number of workers, and the settings that do not
belong to the scheme. The schemes of one situation are a family, whose intervals and tests are made
together: with probability 95 %, all statements on the accuracies of its schemes against the
reference are true, and likewise all statements on their times against the best scheme.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from paceline.analysis.comparison import METRICS, is_reference, reference_scheme, variance_of_draw
from paceline.analysis.configuration import (
    OPTIMIZER,
    Configuration,
    counts,
    finished,
    groups,
    is_of_scheme,
    num_processes,
    situation_columns,
    size_of,
    with_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval, interval
from paceline.analysis.searches import edge_of, searched_setting
from paceline.analysis.statistics.means import (
    LEVEL,
    POINTS,
    POSITIVE,
    Pooled,
    paired,
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
    p_value,
    ratio_of_means,
    restricted_mean,
)
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import (
    OneWorker,
    best_one_worker,
    error_of_target,
    horizon_of,
    target_of,
    target_times,
)

Member = tuple[Configuration, Frame]  # of a family: a configuration with its runs


class Timed(NamedTuple):
    """Time of a member to the target.

    `error`: change of the logarithm of the time with a target that is one standard error higher.
    """

    time: RestrictedMean
    error: float = 0.0

    def wider(self, extra: float) -> RestrictedMean:
        """Return the time with `extra` added to the variance of its logarithm."""
        return self.time._replace(variance=self.time.variance + extra * self.time.mean**2)


BEST, TIED, BEHIND, NEVER = "best", "tied", "behind", "never"


@lru_cache(maxsize=2)
def decision(tables: Tables) -> Frame:
    """Return one row per situation and scheme.

    Beside all-reduce, local SGD with a mean after each step has no tier: it is the same scheme.

    - `n_reached`: number of runs that reached the target;
    - `target_seconds`: restricted mean of the time to the target, in which a run that did not reach
      it counts as the longest run; `worker_seconds`: its mean times the number of workers;
    - `baseline`: the configuration of one worker that reaches the target first; `baseline_n` and
      `baseline_reached`: number of its runs, and of those that reached the target;
    - `speedup`: time of `baseline` divided by the time of the scheme; `reference_speedup`: time of
      the scheme `reference` divided by it; empty unless all compared runs reached the target;
    - `tier`: best for the smallest time to the target; tied if the difference from the best is not
      significant; behind if it is significant, or if runs of only
      this scheme missed the target; never if no run reached the target; empty without a target;
    - `less_accurate_than`: for a scheme that is best or tied, the most accurate scheme among these
      that is significantly more accurate; a scheme with such a name is not recommended;
    - `top1_difference`: top-1 minus that of `reference`, as a share, over finished runs paired by
      seed, with simultaneous intervals; on test images if they were scored, else on validation
      images;
    - `accuracy`: verdict on this difference, one of better, worse, equivalent, not told;
      `within_margin`: 1 if the difference is shown to lie within the margin of the study, else 0;
    - `one_worker_<column>`, for all columns on differences of top-1: the same comparison with the
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


def best_and_faster(decided: Frame) -> Frame:
    """Return those best rows of the table `decision` that `is_faster` holds for."""
    best = decided[decided["tier"] == "best"]
    return best.loc[[index for index, row in best.iterrows() if is_faster(row)]]


def _rows(tables: Tables, situation: Configuration, members: Sequence[Member]) -> list[Row]:
    """Return the rows of one situation, one per scheme with its settings."""
    reference = reference_scheme(tables.runs)
    centres = [place for place, (own, _) in enumerate(members) if is_reference(tables.runs, own)]
    centre = centres[0] if len(centres) == 1 else None  # of several settings none is the centre
    horizon = horizon_of(tables, situation)
    goal = target_of(tables, situation)
    one = best_one_worker(tables, situation, horizon) if goal and horizon == horizon else None
    times = _times(tables, members, horizon, one, centre)
    lower = less_accurate_than(tables, members, [row["tier"] for row in times])
    columns = zip(
        members,
        [row | {"less_accurate_than": name} for row, name in zip(times, lower, strict=True)],
        accuracies(tables, members, centre),
        _against_one_worker(tables, members, one),
        strict=True,
    )
    return [
        {
            **configuration,
            "n": len(own),
            **counts(own),
            "target": goal["target"] if goal else math.nan,
            **time,
            "worker_seconds": size_of(situation) * time["target_seconds_mean"],
            "reference": reference,
            **accuracy,
            **of_one,
            **interval(finished(own)["images_per_second"], POSITIVE).named("images_per_second"),
            "at_edge": edge_of(tables, configuration),
        }
        for (configuration, own), time, accuracy, of_one in columns
    ]


def _times(
    tables: Tables,
    members: Sequence[Member],
    horizon: float,
    one: OneWorker | None,
    reference: int | None,
) -> list[Row]:
    """Return the columns on time of all members; the tier of those that are all-reduce is empty."""
    ranked = [place for place in range(len(members)) if not _is_all_reduce(tables, members, place)]
    centre = ranked.index(reference) if reference in ranked else None
    family = [members[place] for place in ranked]
    rows = dict(zip(ranked, family_times(tables, family, horizon, one, centre), strict=True))
    for place in {*range(len(members))} - {*ranked}:
        rows[place] = family_times(tables, [members[place]], horizon, one, None)[0] | {"tier": ""}
    return [rows[place] for place in range(len(members))]


def _is_all_reduce(tables: Tables, members: Sequence[Member], place: int) -> bool:
    """Return True for local SGD with a mean after each step, beside all-reduce.

    It is the same scheme by its law, if the optimizer is SGD, and gradients are sent as they are.
    """
    configuration, points = members[place]
    if configuration["scheme"] != "local_sgd" or {*finished(points).get("optimizer", ())} - {"SGD"}:
        return False
    periods = {*points.get("scheme.period", ())}
    if periods != {1} and searched_setting(tables, configuration) != "scheme.period=1":
        return False
    return any(
        own["scheme"] == "sync_allreduce"
        and own.get(OPTIMIZER, "") == configuration.get(OPTIMIZER, "")
        and own.get("scheme.compression", "none") in ("none", "", None)
        for own, _ in members
    )


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
        empty = Timed(restricted_mean([], horizon))
        return [_times_row(empty, None, None, "", "") for _ in members]
    errors = [error_of_target(tables, own, horizon) for _, own in members]
    runs = [target_times(tables, own, horizon) for _, own in members]
    times = [Timed(*each) for each in zip(runs, errors, strict=True)]
    centre = None if reference is None else times[reference]
    base = Timed(one.time, error_of_target(tables, one.points, horizon)) if one else None
    name = one.name if one else ""
    sides = zip(times, tiers(times), strict=True)
    return [_times_row(side, base, centre, tier, name) for side, tier in sides]


def tiers(family: Sequence[Timed]) -> list[str]:
    """Return the tier of each scheme of a family.

    All pairs are tested, with p-values adjusted by Holm's method, since the data decide which
    scheme is best. Schemes all of whose runs reach the target share one relative variance, of runs
    paired by seed; every other scheme has a variance of its own. The variance of a difference also
    contains what is due to the target's own error. If all runs of the best scheme reach the target,
    a scheme with a run that missed it is behind without a test: the horizon, by which this run
    counts, makes the mean so uncertain that a test of few seeds would call the scheme tied.
    """
    times = [each.time for each in family]
    found = [NEVER if not own.reached else TIED for own in times]
    ranked = [place for place, own in enumerate(times) if own.reached]
    if not ranked:
        return found
    best = min(ranked, key=lambda place: times[place].mean)
    steady = [place for place in ranked if not times[place].lost]
    p = {
        (one, other): p_value(*_sides(family[one], family[other]))
        for one, other in combinations(ranked, 2)
    }
    if len(steady) > 1:
        pairs = list(combinations(steady, 2))
        found_times = family_of([times[place] for place in steady])
        variance = np.array([_of_target(family[one], family[other]) for one, other in pairs])
        own = unadjusted(found_times, extra_variance=variance)
        p |= dict(zip(pairs, own.tolist(), strict=True))
    adjusted = holm(np.nan_to_num(list(p.values()), nan=1.0))
    for pair, value in zip(p, adjusted, strict=True):
        if best in pair:
            other = pair[0] if pair[1] == best else pair[1]
            unreliable = times[other].lost and not times[best].lost
            found[other] = BEHIND if unreliable or value <= 1 - LEVEL else TIED
    found[best] = BEST
    return found


def _of_target(one: Timed, other: Timed) -> float:
    """Return the variance of the logarithm of the ratio of two times due to the target's error."""
    return (one.error - other.error) ** 2


def _sides(one: Timed, other: Timed) -> tuple[RestrictedMean, RestrictedMean]:
    """Return two times whose variances contain that of their ratio due to the target's error.

    This error is known as well as the times: from a few seeds.
    """
    half = _of_target(one, other) / 2
    return one.wider(half), other.wider(half)


def _times_row(
    side: Timed, one: Timed | None, centre: Timed | None, tier: str, baseline: str
) -> Row:
    own, seconds = side.time, NONE
    if own.n:
        seconds = Interval(*side.wider(side.error**2).interval().at(), own.n)
    row: Row = {"tier": tier, "n_reached": own.reached, "baseline": baseline}
    row |= seconds.named("target_seconds")
    for name, base in (("speedup", one), ("reference_speedup", centre)):
        row |= _speedup(base, side).named(name)
    row["baseline_n"] = one.time.n if one else None
    row["baseline_reached"] = one.time.reached if one else None
    return row


def _speedup(base: Timed | None, side: Timed) -> Interval:
    own = side.time
    if base is None or not base.time.reached or not own.n:
        return NONE
    if own == base.time:  # the baseline itself
        return Interval(1.0, math.nan, math.nan, own.n)
    if base.time.lost or own.lost:
        return NONE
    return Interval(*ratio_of_means(*_sides(base, side)).at(), own.n)


def accuracies(tables: Tables, members: Sequence[Member], centre: int | None) -> list[Row]:
    """Return the columns that compare the accuracy of each member with that of the `centre`.

    `centre` is an index of `members`. The columns are empty for this member, and for all members if
    it is None. Intervals contain the variance between runs that their seeds do not explain, pooled
    over all finished runs, and that of the random draw of test images, if records say which images
    were classified correctly.
    """
    runs = [finished(own) for _, own in members]
    metric = _metric(runs)
    known = [place for place, own in enumerate(runs) if own[metric].notna().any()]
    rows = [_accuracy_row() for _ in members]
    if centre is None or centre not in known or len(known) < 2:
        return rows
    family = _family(runs, metric, known)
    middle = known.index(centre)
    others = [place for place in known if place != centre]
    draws = np.zeros(len(others))
    if metric == METRICS[1]:
        draws += [variance_of_draw(tables, runs[place], runs[centre]) for place in others]
    sides = [
        find(family, middle, extra_variance=draws) for find in (against_reference, for_equivalence)
    ]
    judgement = judge(*sides, margin=tables.margin)
    for index, place in enumerate(others):
        size = int(runs[place][metric].notna().sum())
        difference = Interval(*sides[0].at(index), size)
        rows[place] |= difference.named("top1_difference")
        if not np.isnan(difference.low):
            rows[place]["accuracy"] = str(judgement.verdict[index])
            rows[place]["within_margin"] = int(judgement.within[index])
    return rows


def less_accurate_than(
    tables: Tables, members: Sequence[Member], tiers: Sequence[str]
) -> list[str]:
    """Return for each member the most accurate one that is tied with it in time, or "".

    Named are only members that are significantly more accurate with the settings that were run.
    All pairs of the best member and those tied with it are tested, with p-values adjusted by Holm's
    method.
    """
    runs, names = [finished(own) for _, own in members], [""] * len(members)
    metric = _metric(runs)
    tied = [p for p, tier in enumerate(tiers) if tier in (BEST, TIED) and len(runs[p])]
    tied = [place for place in tied if runs[place][metric].notna().any()]
    if len(tied) < 2:
        return names
    family, pairs = _family(runs, metric, tied), list(combinations(range(len(tied)), 2))
    draws = np.zeros(len(pairs))
    if metric == METRICS[1]:
        draws += [variance_of_draw(tables, *(runs[tied[side]] for side in pair)) for pair in pairs]
    adjusted = holm(np.nan_to_num(unadjusted(family, extra_variance=draws), nan=1.0))
    told = [pair for pair, p in zip(pairs, adjusted, strict=True) if p <= 1 - LEVEL]
    for place in range(len(tied)):
        rivals = [other for pair in told if place in pair for other in pair]
        most = max([place, *rivals], key=lambda each: family.means[each])
        names[tied[place]] = _name(members[tied[most]]) if most != place else ""
    return names


def _name(member: Member) -> str:
    """Name a member of a family by its scheme and the settings of it."""
    own = {name: value for name, value in member[0].items() if is_of_scheme(name)}
    words = [f"{k}={value}" for k, value in own.items() if k != "scheme" and not pd.isna(value)]
    return " ".join([str(member[0]["scheme"]), *words])


def _metric(runs: Sequence[Frame]) -> str:
    """Return test_top1 if any run has it, else top1."""
    validation, test = METRICS
    return test if any(own[test].notna().any() for own in runs) else validation


def _family(runs: Sequence[Frame], metric: str, known: Sequence[int]) -> Pooled:
    """Return the accuracies of the `known` members as one family, paired by seed."""
    by_seed = [runs[place].groupby("seed")[metric].mean().dropna() for place in known]
    return paired(pd.concat(by_seed, axis=1).to_numpy(float).T, POINTS)


def _accuracy_row() -> Row:
    return NONE.named("top1_difference") | {"accuracy": "", "within_margin": math.nan}
