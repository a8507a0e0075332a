"""Computes the best that tuning finds, by the number of trials that it may spend."""

import pandas as pd
from scipy.special import comb

from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables
from paceline.measurement.rows import TUNING

_COLUMNS = (
    "trials",
    "of",
    "expected_best",
    "searches",
    "searches_median",
    "top1_sd",
    "test_top1_sd",
)


def tuning_curve(tables: Tables) -> Frame:
    """Return one row per configuration and number `trials` of trials that a search may spend.

    `expected_best` is the mean validation top-1 of the best of so many of its `of` trials.
    `searches_median` is the median over its searches of the best of their first trials, as
    AlgoPerf reports (arXiv:2306.07179); `top1_sd` and `test_top1_sd` are the standard deviations of
    these bests on validation and test images. They are empty where a search has no more trials. A
    trial that did not finish has the accuracy of chance.
    """
    axes = tuning_axes(tables)
    scored = scored_trials(tables)
    rows: list[Row] = []
    if len(scored):
        for configuration, trials in groups(scored, axes) if axes else [({}, scored)]:
            rows += [configuration | row for row in _curve(trials)]
    return pd.DataFrame(rows, columns=[*axes, *_COLUMNS])


def scored_trials(tables: Tables) -> Frame:
    """Return tuning.csv with a `score` on validation and one on `test` images for every trial.

    A trial that did not finish has the accuracy of chance.
    """
    tuning = tables.tuning
    if tuning.empty:
        return tuning
    return tuning.assign(score=_or_chance(tuning, "top1"), test=_or_chance(tuning, "test_top1"))


def tuning_axes(tables: Tables) -> list[str]:
    """Return the columns of tuning.csv that identify a configuration."""
    return [name for name in tables.tuning if name not in ("key", *TUNING)]


def expected_best(scores: Frame, trials: int) -> float:
    """Return the mean, over all choices of `trials` of the `scores`, of the best one.

    The unbiased form (Tang et al. 2020, arXiv:2004.13705) of the expected performance by budget of
    Dodge et al. 2019 (arXiv:1909.03004): the i-th smallest of n is the best of comb(i-1, trials-1)
    of the comb(n, trials) choices.
    """
    ranked = sorted(scores)
    shares = [comb(rank, trials - 1) / comb(len(ranked), trials) for rank in range(len(ranked))]
    return float(sum(share * score for share, score in zip(shares, ranked, strict=True)))


def _curve(trials: Frame) -> list[Row]:
    searches = [search for _, search in groups(trials, ["seed"])]
    shortest = min(map(len, searches))
    return [
        {"trials": spent, "of": len(trials), "expected_best": expected_best(trials["score"], spent)}
        | (_of_searches(searches, spent) if spent <= shortest else {})
        for spent in range(1, len(trials) + 1)
    ]


def _of_searches(searches: list[Frame], spent: int) -> Row:
    first = [search.head(spent) for search in searches]
    bests = pd.DataFrame([trials.loc[trials["score"].idxmax()] for trials in first])
    return {
        "searches": len(searches),
        "searches_median": bests["score"].median(),
        "top1_sd": bests["score"].astype(float).std(),
        "test_top1_sd": bests["test"].astype(float).std(),
    }


def _or_chance(tuning: Frame, name: str) -> Frame:
    return tuning[name].where(tuning["status"] == "finished", tuning["chance"]).astype(float)
