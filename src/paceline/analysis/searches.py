"""Tells how much hyperparameter searches depend on luck, and where their best trials are.

A search of a configuration consists of trials, each a run with other settings (such as the learning
rate). The best trial is chosen by its accuracy on validation images.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator
from scipy.special import comb
from scipy.stats import norm

from paceline.analysis.configuration import Configuration, groups, matching
from paceline.analysis.frames import Frame, Row
from paceline.analysis.statistics.means import LEVEL, Array
from paceline.analysis.statistics.times import crossing
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import target_metric, targets
from paceline.record.rows import OWN, TUNING
from paceline.study.surfaces import Surfaces, points_of

DRAWS, _SEED = 500, 7  # of surfaces
_FINE = 33, 17, 4  # places of the grid along each axis; half as many miss parts of the regret
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


class Luck(NamedTuple):
    """Draws of what the search of a configuration may have missed, given its trials.

    `regret` [draws]: how much more accurate the configuration would be at its best setting than at
    the chosen one, a share. `later` [draws]: logarithm of the time to the target at the best
    setting divided by that at the chosen one; 0 without a target. `faster` [draws]: logarithm of
    the effective rate, lr / (1 - momentum), at the best setting divided by that at the chosen one.
    """

    regret: Array
    later: Array
    faster: Array


NO_LUCK = Luck(np.zeros(DRAWS), np.zeros(DRAWS), np.zeros(DRAWS))


def lucks(tables: Tables, configurations: Sequence[Configuration]) -> list[Luck]:
    """Return the luck of each configuration; NO_LUCK for one without a search that has ended."""
    known, drawn = _lucks(tables)
    found: list[Luck] = []
    for each in configurations:
        tuned = drawn and each.get(RATE, "tuned") == "tuned"
        places = matching(known, _own(tables, each)).index if tuned else ()
        found.append(drawn[places[0]] if len(places) == 1 else NO_LUCK)
    return found


@lru_cache(maxsize=2)
def _lucks(tables: Tables) -> tuple[Frame, list[Luck]]:
    """Return the axes of each configuration whose search has ended, and its luck.

    Configurations that differ in their scheme only are drawn together.
    """
    axes, images = tuning_axes(tables), _images_to_target(tables)
    known, found = list[Row](), list[Luck]()
    tuning = _scored(tables).assign(images=tables.tuning["key"].map(images))
    situation = [name for name in axes if name.split(".")[0] != "scheme"]
    for number, (_, trials) in enumerate(groups(tuning.dropna(subset="momentum"), situation)):
        ended = [each for each in groups(trials, axes) if (each[1]["chosen"] == "true").any()]
        if ended:
            found += draw_luck([own for _, own in ended], np.random.default_rng([_SEED, number]))
            known += [each for each, _ in ended]
    return pd.DataFrame(known, columns=axes), found


def draw_luck(members: Sequence[Frame], rng: Generator) -> list[Luck]:
    """Return the luck of each member of a family.

    `members`: the rows of tuning.csv of each, with the columns `score` (validation top-1) and
    `images` (until the target).
    """
    trials = pd.concat(members)
    rest = 1 - trials["momentum"].to_numpy(float)
    own = np.zeros(len(trials))
    if "own_place" in trials:
        own = trials["own_place"].fillna(0).to_numpy(float)
    places = np.column_stack([np.log10(trials["lr"].to_numpy(float) / rest), np.log10(rest), own])
    member = np.repeat(np.arange(len(members)), [len(each) for each in members])
    top1 = trials["score"].where(trials["status"] == "finished").to_numpy(float)
    surfaces = Surfaces.of_top1(places, member, top1)
    images = np.log(trials["images"].to_numpy(float))
    trained = surfaces.trained
    slow = Surfaces(places, member, np.where(trained, -images, np.nan), trained)
    grid = np.vstack([surfaces.grid(_FINE), places])
    drawn = surfaces.draws(rng, grid, DRAWS)
    times = np.zeros_like(drawn)
    if not np.isnan(images).any():
        times = -slow.draws(rng, grid, DRAWS)
    first, chosen = len(grid) - len(places), (trials["chosen"] == "true").to_numpy()
    found: list[Luck] = []
    for place in range(len(members)):
        (tried,) = np.nonzero((member == place) & chosen)
        at = first + tried[0]
        if not trained[tried[0]]:
            found.append(NO_LUCK)
            continue
        on_the_way, every = surfaces.towards_cliff(grid, place), np.arange(DRAWS)
        on_the_way[at] = 0.0
        inside = on_the_way[:, None] <= (every + 0.5) / DRAWS  # the cliff lies anywhere between
        best = np.where(inside, drawn[place], -np.inf).argmax(axis=0)
        more = drawn[place][best, every] - drawn[place][at]
        later = times[place][best, every] - times[place][at]
        faster = np.log(10) * (grid[best, 0] - grid[at, 0])
        found.append(Luck(points_of(more, top1[tried[0]]), later, faster))
    return found


def _images_to_target(tables: Tables) -> dict[str, float]:
    """Return the images that each trial needed to the target; at its end, if it did not reach it.

    Empty if the study has no target, or more than one.
    """
    goals, metric = targets(tables), target_metric(tables)
    if len(goals) != 1:
        return {}
    target, found = metric.sign * float(goals["target"].iloc[0]), dict[str, float]()
    for key, curve in tables.trial_curves.groupby("key", sort=False):
        own = curve.sort_values("samples", kind="stable")
        found[str(key)] = crossing(own["samples"], metric.gain(own), target).middle
    return found


def of_best(luck: Sequence[Luck], centre: int) -> tuple[Array, Array]:
    """Return mean and variance of what members at their best gain on the `centre` at its best.

    Both are relative to the settings that were run, and have no entry for the centre. The variance
    is that of a normal distribution that reaches as far as 95 % of the draws, on the wider side.
    """
    more = np.array([own.regret - luck[centre].regret for own in luck])
    mean, ends = more.mean(axis=1), np.quantile(more, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    reach = np.abs(ends - mean).max(axis=0) / norm.ppf((1 + LEVEL) / 2)  # of skewed draws
    variance = np.maximum(more.std(axis=1), reach) ** 2
    return np.delete(mean, centre), np.delete(variance, centre)


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
