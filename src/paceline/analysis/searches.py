"""Tells what hyperparameter searches found, and by how many trials.

A search of a configuration consists of trials, each a run with other settings (such as the learning
rate). The best trial is chosen by its accuracy on validation images.
"""

import pandas as pd
from scipy.special import comb

from paceline.analysis.configuration import Configuration, groups, matching
from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables
from paceline.record.rows import OWN, TUNING

RATE = "training.rate"


def tuning_curve(tables: Tables) -> Frame:
    """Return one row per configuration and number `trials` of trials that a search may spend.

    `expected_best` is the mean validation top-1 of the best of `trials` trials that are drawn from
    all. A trial that did not finish has the accuracy of guessing.
    """
    axes = tuning_axes(tables)
    rows = [
        configuration | {"trials": spent, "expected_best": expected_best(trials["score"], spent)}
        for configuration, trials in groups(_scored(tables), axes)
        for spent in range(1, len(trials) + 1)
    ]
    return pd.DataFrame(rows, columns=[*axes, "trials", "expected_best"])


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
    if tables.tuning.empty or configuration.get(RATE, "tuned") != "tuned":
        return ""
    edges = _best(tables, configuration)["at_edge"]
    return str(edges.iloc[0]) if len(edges) else "tuning has not ended"


def tuning_axes(tables: Tables) -> list[str]:
    """Return the columns of tuning.csv that identify a configuration."""
    return [name for name in tables.tuning if name not in ("key", *TUNING, *OWN)]


def best_trials(tables: Tables) -> Frame:
    """Return the rows of tuning.csv of those trials that were chosen as the best."""
    return tables.tuning[tables.tuning["chosen"] == "true"]


def searched_setting(tables: Tables, configuration: Configuration) -> str:
    """Return the setting of its scheme that the search of a configuration chose, as <name>=<value>;
    "" if none was searched.
    """
    best = _best(tables, configuration)
    return str(best["own"].iloc[0]) if len(best) == 1 and "own" in best else ""


def _best(tables: Tables, configuration: Configuration) -> Frame:
    return matching(best_trials(tables), _own(tables, configuration))


def _scored(tables: Tables) -> Frame:
    """Return tuning.csv with a column `score`, the validation top-1.

    A trial that did not finish has the accuracy of guessing.
    """
    tuning = tables.tuning
    scores = tuning["top1"].where(tuning["status"] == "finished", tuning["chance"])
    return tuning.assign(score=scores.astype(float))


def _own(tables: Tables, configuration: Configuration) -> Configuration:
    names = tuning_axes(tables)
    return {name: value for name, value in configuration.items() if name in names}
