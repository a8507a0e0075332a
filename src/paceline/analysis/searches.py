"""Tells how much hyperparameter searches depend on luck, and where their best trials are.

A search of a configuration consists of trials, each a run with other settings (such as the learning
rate). The best trial is chosen by its accuracy on validation images.
"""

import math
from collections.abc import Sequence

import pandas as pd
from scipy.special import comb

from paceline.analysis.configuration import Configuration, groups, matching
from paceline.analysis.frames import Frame, Row
from paceline.analysis.statistics.tuning_luck import variance_of_difference
from paceline.analysis.tables import Tables
from paceline.record.rows import OWN, TUNING

_RATE = "training.rate"
_COLUMNS = ("trials", "of", "expected_best", "searches", "searches_median")
_COLUMNS += ("top1_sd", "test_top1_sd")


def tuning_curve(tables: Tables) -> Frame:
    """Return one row per configuration and number `trials` of trials that a search may spend.

    - `of`: number of all trials of the configuration;
    - `expected_best`: mean validation top-1 of the best of `trials` trials that are drawn from all;
    - `searches`: number of repeated searches of the configuration;
    - `searches_median`: best score among the first `trials` trials of each search, and of these the
      median over searches, as AlgoPerf reports (arXiv:2306.07179);
    - `top1_sd`, `test_top1_sd`: standard deviations over searches of the validation top-1 and the
      test top-1 of these best trials.

    The columns on searches are empty where `trials` exceeds the length of a search. A trial that
    did not finish has the accuracy of guessing.
    """
    axes = tuning_axes(tables)
    rows: list[Row] = []
    for configuration, trials in groups(_scored(tables), axes):
        searches = [search for _, search in groups(trials, ["seed"])]
        for spent in range(1, len(trials) + 1):
            row = configuration | {"trials": spent, "of": len(trials)}
            row["expected_best"] = expected_best(trials["score"], spent)
            if spent <= min(map(len, searches)):
                bests = pd.concat([_bests(search.head(spent)) for search in searches])
                row |= {"searches": len(searches), "searches_median": bests["score"].median()}
                row |= {"top1_sd": bests["score"].std(), "test_top1_sd": bests["test"].std()}
            rows.append(row)
    return pd.DataFrame(rows, columns=[*axes, *_COLUMNS])


def expected_best(scores: Frame, trials: int) -> float:
    """Return the mean, over all choices of `trials` of the `scores`, of the best chosen score.

    This is the unbiased form (Tang et al. 2020, arXiv:2004.13705) of the expected performance of
    Dodge et al. 2019 (arXiv:1909.03004): the i-th smallest of n scores is the best one in comb(i-1,
    trials-1) of the comb(n, trials) choices.
    """
    ranked = sorted(scores)
    shares = [comb(rank, trials - 1) / comb(len(ranked), trials) for rank in range(len(ranked))]
    return float(sum(share * score for share, score in zip(shares, ranked, strict=True)))


def edge_of(tables: Tables, configuration: Configuration) -> str:
    """Return the edge of the search range at which a configuration's best trial is; "" if inside.

    A better rate may lie outside the range, so the configuration must not be judged. The same holds
    before its tuning has ended; the result then says so. A learning rate that follows from a rule
    is not tuned and has no edge.
    """
    if tables.tuning.empty or configuration.get(_RATE, "tuned") != "tuned":
        return ""
    edges = matching(best_trials(tables), _own(tables, configuration))["at_edge"]
    return str(edges.iloc[0]) if len(edges) else "tuning has not ended"


def tuning_variance(
    tables: Tables, configurations: Sequence[Configuration], metric: str, noise: float
) -> float:
    """Return the variance that tuning adds to a difference of mean `metric` within a family.

    A family has the configurations that are compared with each other. `metric` is top1 or
    test_top1, and `noise` is the variance of this metric between seeds. The result is 0 if no rate
    is tuned, or if no configuration was searched twice.
    """
    tuned = [each for each in configurations if each.get(_RATE, "tuned") == "tuned"]
    searched = _scored(tables)
    if searched.empty or not tuned or not noise >= 0:
        return 0.0
    name = {"top1": "score", "test_top1": "test"}[metric]
    bests = [_bests(matching(searched, _own(tables, each))) for each in tuned]
    known = [own for own in bests if own[["score", name]].notna().all(axis=None)]
    scores, values = ([own[column].to_numpy(float) for own in known] for column in ("score", name))
    found = variance_of_difference(scores, values, noise)
    return 0.0 if math.isnan(found) else found


def tuning_axes(tables: Tables) -> list[str]:
    """Return the columns of tuning.csv that identify a configuration."""
    return [name for name in tables.tuning if name not in ("key", *TUNING, *OWN)]


def best_trials(tables: Tables) -> Frame:
    """Return the rows of tuning.csv of those trials that were chosen as the best."""
    return tables.tuning[tables.tuning["chosen"] == "true"]


def _scored(tables: Tables) -> Frame:
    """Return tuning.csv with columns `score` (validation top-1) and `test` (test top-1).

    A trial that did not finish has the accuracy of guessing.
    """
    tuning = tables.tuning
    done = tuning["status"] == "finished"
    scores = {"score": tuning["top1"], "test": tuning["test_top1"]}
    return tuning.assign(
        **{name: own.where(done, tuning["chance"]).astype(float) for name, own in scores.items()}
    )


def _bests(trials: Frame) -> Frame:
    """Return the best trial of each search."""
    return trials.loc[trials.groupby("seed")["score"].idxmax()] if len(trials) else trials


def _own(tables: Tables, configuration: Configuration) -> Configuration:
    names = tuning_axes(tables)
    return {name: value for name, value in configuration.items() if name in names}
