"""Compares the accuracies of the schemes of one situation, as one family."""

import math
from collections.abc import Sequence

import numpy as np

from paceline.analysis.comparison import METRICS
from paceline.analysis.configuration import Configuration
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval, interval_of
from paceline.analysis.searches import tuning_variance
from paceline.analysis.statistics.against_reference import against_reference, for_equivalence
from paceline.analysis.statistics.equivalence import judge
from paceline.analysis.statistics.estimate import Array
from paceline.analysis.statistics.pooled import intervals_of_means, pooled
from paceline.analysis.statistics.space import POINTS, POSITIVE
from paceline.analysis.tables import Tables

Member = tuple[Configuration, Frame]  # of a family: a configuration with its runs


def accuracies(tables: Tables, members: Sequence[Member], centre: int | None) -> list[Row]:
    """Return the columns on accuracy of each member against the one at the place `centre`.

    There is no difference for the centre itself, nor for anybody without it.
    Groups have the variance of all finished runs of the family; where searches for the rate were
    repeated, also that by which their luck moves a difference; and where records tell which test
    images were right, that of their draw.
    """
    metric = _metric([own for _, own in members])
    values = [_finished(own, metric) for _, own in members]
    known = [place for place, own in enumerate(values) if len(own)]
    rows = [_row(NONE) for _ in members]
    if centre is None or centre not in known or len(known) < 2:
        return rows
    family = pooled([values[place] for place in known], POINTS)
    tuned = [members[place][0] for place in known]
    luck = tuning_variance(tables, tuned, metric, float(family.variance))
    others = [place for place in known if place != centre]
    draws = np.zeros(len(others))
    if metric == METRICS[1]:
        kept = [own[own["status"] == "finished"] for _, own in members]
        draws += [variance_of_draw(tables, kept[place], kept[centre]) for place in others]
    sides = [
        find(family, known.index(centre), extra_variance=luck + draws)
        for find in (against_reference, for_equivalence)
    ]
    judgement = judge(*sides, margin=(-tables.margin, tables.margin))
    for index, place in enumerate(others):
        difference = interval_of(sides[0].at(index), len(values[place]))
        deviations = {"tuning_sd": math.sqrt(luck), "draw_sd": math.sqrt(draws[index])}
        rows[place] = _row(difference) | deviations
        if not np.isnan(difference.low):
            rows[place]["accuracy"] = str(judgement.verdict[index])
            rows[place]["within_margin"] = int(judgement.within[index])
    return rows


def means_of_family(members: Sequence[Frame], metric: str) -> list[Row]:
    """Return the mean of a rate of each member, geometric, with intervals of one variance."""
    values = [_finished(own, metric) for own in members]
    values = [own[own > 0] for own in values]
    known = [place for place, own in enumerate(values) if len(own)]
    rows = [NONE.named(metric) for _ in members]
    if known:
        found = intervals_of_means(pooled([values[place] for place in known], POSITIVE))
        for index, place in enumerate(known):
            rows[place] = interval_of(found.at(index), len(values[place])).named(metric)
    return rows


def _metric(members: Sequence[Frame]) -> str:
    """Return top-1 of test, unless no run of the family has one."""
    validation, test = METRICS
    return test if any(own[test].notna().any() for own in members) else validation


def _finished(own: Frame, metric: str) -> Array:
    return own.loc[own["status"] == "finished", metric].dropna().to_numpy(float)


def _row(difference: Interval) -> Row:
    row: Row = dict(difference.named("top1_difference"))
    return row | {"accuracy": "", "within_margin": "", "tuning_sd": "", "draw_sd": ""}


def variance_of_draw(tables: Tables, one: Frame, other: Frame) -> float:
    """Return the variance of the difference of two mean accuracies by the draw of the images.

    `one`, `other`: rows of finished runs. 0 if records do not say which images were right. All runs
    are scored on the same images, so that the variance between seeds does not contain it. What both
    get right, or both wrong, cancels: an image counts by how much more often the one is right on it
    than the other (McNemar 1947, for means over seeds).
    """
    first, second = _shares_right(tables, one), _shares_right(tables, other)
    if first is None or second is None:
        return 0.0
    difference = first - second
    return float(difference.var() / len(difference))


def _shares_right(tables: Tables, own: Frame) -> Array | None:
    """Return the share of runs that were right, by image."""
    known = [right for key in own["key"] if (right := tables.right(key)) is not None]
    return np.mean(known, axis=0) if known else None
