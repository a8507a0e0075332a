"""Says of tuned configurations where their best trial lies, and how much luck was in finding it."""

import math
from collections.abc import Sequence

from paceline.analysis.configuration import Configuration, matching
from paceline.analysis.frames import Frame
from paceline.analysis.statistics.tuning_luck import variance_of_difference
from paceline.analysis.tables import Tables
from paceline.analysis.tuning_curve import scored_trials, tuning_axes

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


def tuning_variance(
    tables: Tables, configurations: Sequence[Configuration], metric: str, noise: float
) -> float:
    """Return the variance that tuning adds to a difference of mean `metric` within a family.

    It is what repeating the searches would change, whose trials are at the same points for all.
    `metric` is top1 or test_top1, `noise` its variance between seeds. 0 if their rates are not
    tuned, or none has two searches.
    """
    tuned = [each for each in configurations if each.get(_RATE, "tuned") == "tuned"]
    searched = scored_trials(tables)
    if searched.empty or not tuned or not noise >= 0:
        return 0.0
    bests = [_bests(matching(searched, _own(tables, each))) for each in tuned]
    name = {"top1": "score", "test_top1": "test"}[metric]
    known = [own for own in bests if own[["score", name]].notna().all(axis=None)]
    scores, values = ([own[column].to_numpy(float) for own in known] for column in ("score", name))
    found = variance_of_difference(scores, values, noise)
    return 0.0 if math.isnan(found) else found


def _bests(trials: Frame) -> Frame:
    """Return the best trial of each search."""
    return trials.loc[trials.groupby("seed")["score"].idxmax()] if len(trials) else trials


def best_trials(tables: Tables) -> Frame:
    """Return the row of tuning.csv of each configuration's best trial."""
    return tables.tuning[tables.tuning["chosen"] == "true"]


def _own(tables: Tables, configuration: Configuration) -> Configuration:
    names = tuning_axes(tables)
    return {name: value for name, value in configuration.items() if name in names}
