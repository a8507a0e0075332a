"""Ranks the schemes of one situation by their time to the target, as one family."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval, interval_of
from paceline.analysis.statistics.estimate import LEVEL, Array, success_rate
from paceline.analysis.statistics.holm import holm, unadjusted
from paceline.analysis.statistics.ratio import family_of, fastest, p_value, ratio_of_means
from paceline.analysis.statistics.restricted_mean import RestrictedMean
from paceline.analysis.target_times import Crossings, OneWorker, target_times

BEST, TIED, BEHIND, NEVER = "best", "tied", "behind", "never"
Pair = tuple[int, int]


def no_times(members: Sequence[Frame]) -> list[Row]:
    """Return the columns on time of each member where there is no target: they are empty."""
    return [_row(None, NONE, NONE, "", "") | _counts_of(None) for _ in members]


def family_times(
    members: Sequence[Frame],
    found: Crossings,
    horizon: float,
    alone: OneWorker | None,
    reference: int | None,
) -> list[Row]:
    """Return the columns on time of each member.

    Speed-ups are against the runs of one worker `alone`, and against the member at the place
    `reference`. There is none where a run of either did not reach the target: it would be a number
    of the horizon.
    """
    times = [target_times(own, found, horizon) for own in members]
    one, baseline = (alone.time, alone.name) if alone else (None, "")
    centre = None if reference is None else times[reference]
    return [
        _row(own, _speedup(one, own), _speedup(centre, own), baseline, tier) | _counts_of(one)
        for own, tier in zip(times, tiers(times), strict=True)
    ]


def _counts_of(one: RestrictedMean | None) -> Row:
    known = one is not None
    return {
        "baseline_n": one.n if known else None,
        "baseline_reached": one.reached if known else None,
    }


def tiers(times: Sequence[RestrictedMean]) -> list[str]:
    """Return the tier of each scheme of a family.

    All pairs are tested, with Holm's p-values, so that it may be the data which say what is best.
    Schemes whose runs all reach the target have one relative variance, those with failures their
    own. Where all runs of the best reach the target, a scheme that lost one is behind without a
    test: the horizon in its mean makes that so uncertain that few seeds would call it tied.
    """
    found = [NEVER if not own.reached else TIED for own in times]
    ranked = [place for place, own in enumerate(times) if own.reached]
    if not ranked:
        return found
    best = ranked[fastest([times[place] for place in ranked])]
    pairs, p = _all_pairs(times, ranked)
    for pair, adjusted in zip(pairs, holm(p), strict=True):
        if best in pair:
            other = pair[0] if pair[1] == best else pair[1]
            unreliable = _lost(times[other]) and not _lost(times[best])
            found[other] = BEHIND if unreliable or adjusted <= 1 - LEVEL else TIED
    found[best] = BEST
    return found


def _lost(own: RestrictedMean) -> int:
    return own.n - own.reached


def _all_pairs(times: Sequence[RestrictedMean], ranked: Sequence[int]) -> tuple[list[Pair], Array]:
    """Return the pairs of `ranked` places with a p-value each, 1 where nothing tells it."""
    steady = [place for place in ranked if not _lost(times[place])]
    p = {pair: p_value(*(times[place] for place in pair)) for pair in combinations(ranked, 2)}
    if len(steady) > 1:
        own = unadjusted(family_of([times[place] for place in steady]))
        p |= dict(zip(combinations(steady, 2), own.tolist(), strict=True))
    return list(p), np.nan_to_num(list(p.values()), nan=1.0)


def _speedup(base: RestrictedMean | None, own: RestrictedMean) -> Interval:
    if base is None or not base.reached or not own.n:
        return NONE
    if own == base:  # the baseline itself
        return Interval(1.0, math.nan, math.nan, own.n)
    if _lost(base) or _lost(own):
        return NONE
    return interval_of(ratio_of_means(base, own), own.n)


def _row(
    own: RestrictedMean | None, speedup: Interval, against: Interval, baseline: str, tier: str
) -> Row:
    seconds, success, num = NONE, NONE, 0
    if own is not None and own.n:
        num = own.reached
        seconds = interval_of(own.interval(), own.n)
        success = interval_of(success_rate(own.reached, own.n), own.n)
    return (
        {"tier": tier, "n_reached": num, "baseline": baseline}
        | success.named("success")
        | seconds.named("target_seconds")
        | speedup.named("speedup")
        | against.named("reference_speedup")
    )
