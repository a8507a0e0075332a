"""Compares the accuracies of the schemes of one situation with the reference, as one family."""

import math
from collections.abc import Sequence

import numpy as np

from paceline.analysis.comparison import METRICS, reference_scheme
from paceline.analysis.configuration import Configuration
from paceline.analysis.draw_of_images import variance_of_draw
from paceline.analysis.intervals import NONE, Interval, interval_of
from paceline.analysis.tables import Frame, Row, Tables
from paceline.analysis.tuned import tuning_variance
from paceline.inference.against_reference import against_reference, for_equivalence
from paceline.inference.equivalence import judge
from paceline.inference.estimate import Array
from paceline.inference.pooled import intervals_of_means, pooled
from paceline.inference.space import POINTS, POSITIVE


def accuracies(
    tables: Tables, members: Sequence[Frame], configurations: Sequence[Configuration]
) -> list[Row]:
    """Return the columns on accuracy of each member, which has the runs of a configuration.

    Groups have the variance of all finished runs of the situation; where searches for the rate were
    repeated, also that by which their luck moves a mean; and where records tell which test images
    were right, that of their draw. There is no difference for the reference
    itself, without it, or with several settings of it.
    """
    reference, margin = reference_scheme(tables.runs), tables.margin
    schemes = [each["scheme"] for each in configurations]
    metric = _metric(members)
    values = [_finished(own, metric) for own in members]
    known = [place for place, own in enumerate(values) if len(own)]
    rows = [_row(reference, NONE) for _ in members]
    centre = [place for place in known if schemes[place] == reference]
    if len(centre) != 1 or len(known) < 2:
        return rows
    family = pooled([values[place] for place in known], POINTS)
    tuned = [configurations[place] for place in known]
    luck = tuning_variance(tables, tuned, metric, float(family.variance))
    others = [place for place in known if place != centre[0]]
    draws = np.zeros(len(others))
    if metric == METRICS[1]:
        kept = [own[own["status"] == "finished"] for own in members]
        draws += [variance_of_draw(tables, kept[place], kept[centre[0]]) for place in others]
    sides = [
        find(family, known.index(centre[0]), extra_variance=2 * luck + draws)
        for find in (against_reference, for_equivalence)
    ]
    judgement = judge(*sides, margin=(-margin, margin))
    for index, place in enumerate(others):
        difference = interval_of(sides[0].at(index), len(values[place]))
        deviations = {"tuning_sd": math.sqrt(luck), "draw_sd": math.sqrt(draws[index])}
        row = _row(reference, difference) | deviations
        if not np.isnan(difference.low):
            row["accuracy"] = str(judgement.verdict[index])
            row["within_margin"] = int(judgement.within[index])
        rows[place] = row
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


def _row(reference: str, difference: Interval) -> Row:
    row: Row = {"reference": reference, **difference.named("top1_difference")}
    return row | {"accuracy": "", "within_margin": "", "tuning_sd": "", "draw_sd": ""}
