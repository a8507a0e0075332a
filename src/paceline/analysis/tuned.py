"""Says of tuned configurations where their best trial lies, and how much luck was in finding it."""

import math

import pandas as pd

from paceline.analysis.configuration import Configuration, groups, matching
from paceline.analysis.tables import Frame, Tables
from paceline.analysis.tuning_curve import tuning_axes, tuning_curve

_RATE = "training.rate"


def edge_of(tables: Tables, configuration: Configuration) -> str:
    """Return the edge of what was tried at which the best trial of a configuration lies, or "".

    A better one may lie beyond, so that it may not be said that the configuration fails, diverges
    or costs accuracy; nor before its tuning has ended. Of a rate by rule it may: nothing else is
    claimed.
    """
    if tables.tuning.empty or configuration.get(_RATE, "tuned") != "tuned":
        return ""
    edges = matching(best_trials(tables), _own(tables, configuration))["at_edge"]
    return str(edges.iloc[0]) if len(edges) else "tuning has not ended"


def tuning_sd(tables: Tables, configuration: Configuration) -> float:
    """Return the standard deviation of test top-1 among the bests of whole searches.

    It is what repeating the tuning, with a budget of one search, would change in a result: an upper
    bound for the best of all searches. NaN without a second search.
    """
    curve = matching(tuning_curve(tables), _own(tables, configuration))
    sds = curve["test_top1_sd"].dropna()
    return float(sds.iloc[-1]) if len(sds) else math.nan


def best_trials(tables: Tables) -> Frame:
    """Return the row of tuning.csv of each configuration's best trial.

    Tables of older code, by lists of rates alone, do not name edges: the smallest and the largest
    rate are.
    """
    tuning = tables.tuning
    if tuning.empty or "at_edge" in tuning:
        return tuning[tuning["chosen"] == "true"] if len(tuning) else tuning
    axes = tuning_axes(tables)
    rows = [trials for _, trials in groups(tuning, axes)] if axes else [tuning]
    return pd.concat([_with_edge(trials) for trials in rows])


def _with_edge(trials: Frame) -> Frame:
    """Return the chosen one of the trials of a configuration."""
    chosen = trials[trials["chosen"] == "true"]
    low, high = trials["lr"].min(), trials["lr"].max()
    names = {low: "smallest training.lr", high: "largest training.lr"} if low < high else {}
    return chosen.assign(at_edge=[names.get(lr, "") for lr in chosen["lr"]])


def _own(tables: Tables, configuration: Configuration) -> Configuration:
    names = tuning_axes(tables)
    return {name: value for name, value in configuration.items() if name in names}
