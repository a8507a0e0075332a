"""Worlds of searches: five schemes, whose surfaces are drawn given the trials of a committed study.

In each draw the schemes are searched, and run with eight seeds at what their search chose. The
truth is known at all places that a search may try.
"""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import qmc

from benchmarks.planted_world import Aim, Found, found
from paceline.analysis.searches import draw_luck, of_best
from paceline.analysis.statistics.means import paired, pooled
from paceline.analysis.statistics.multiple_comparisons import against_reference
from paceline.analysis.statistics.times import Crossing, ratio_of_means, restricted_mean
from paceline.study.surface_search import SurfaceSearch
from paceline.study.surfaces import LEAST, NOISE, Surfaces
from paceline.study.trials import Bounds, SearchBox, Searched, Trial, Tried, top1_of

TRIALS = Path(__file__).parent.parent / "reports" / "scale" / "tuning.csv"
SCHEMES = ("sync_allreduce", "local_sgd", "gossip", "diloco", "async_parameter_server")
MANY_TRAIN, FEW_TRAIN = (4, 16, 64), (256,)  # numbers of workers; with 256, 12 of 30 first trials
SEEDS, OF_SEEDS, OF_RUNS = 8, 0.002, 0.002  # number, and standard deviations of effects and errors
OF_TIMES, HORIZON = 0.12, 1e9  # standard deviation of the logarithm of a run's time; no end
BOX = {"effective_rate": [0.001, 1], "one_minus_momentum": [0.03, 1]}
TURNS = 8  # of a search, each with places of its own


@cache
def surface_search(rounds: int, trials: int, turn: int) -> SurfaceSearch:
    return SurfaceSearch(rounds=rounds, trials=trials, seed=turn, **BOX)


class BestOfOneSequence:
    """The usual search, for comparison: the best of the same quasi-random trials of all schemes."""

    def __init__(self, trials: int, turn: int) -> None:
        places = qmc.Sobol(2, rng=turn).random(trials)
        box = SearchBox(*(Bounds(*ends) for ends in BOX.values()))
        self.trials = tuple(box.trial(*map(float, place), turn) for place in places)

    def tried(self, searched: Searched, family: Sequence[Searched]) -> Tried:
        top1 = [top1_of(searched.result_of(trial)) for trial in self.trials]
        return Tried(self.trials, self.trials[int(np.nanargmax(top1))], "")


best_of_one_sequence = cache(BestOfOneSequence)


class World(NamedTuple):
    """Accuracies [schemes, trials] of every trial that may be made; NaN beyond the cliff.

    `noise`: standard deviation of the gain of a trial. `later` [schemes, trials]: logarithm of the
    images to a target.
    """

    top1: np.ndarray
    noise: float
    later: np.ndarray

    @property
    def best(self) -> np.ndarray:
        """The accuracy of each scheme at its best place, wherever it is."""
        return np.nanmax(self.top1, axis=1)


class Outcome(NamedTuple):
    """What a search made: rows of tuning.csv by scheme, and the truth of the chosen trials.

    `best` [schemes] are the indices of the best places within the range that the search tried, and
    a tenth beyond.
    """

    rows: list[pd.DataFrame]
    chosen: np.ndarray
    later: np.ndarray
    best: np.ndarray


@cache
def committed(workers: int) -> Surfaces:
    table = pd.read_csv(TRIALS).query("workers == @workers and `model/optimizer` == 'sgd'")
    if workers in FEW_TRAIN:  # later rounds stay near the trials that trained
        table = table.groupby("scheme").head(6)
    rest = 1 - table["momentum"]
    own = table["own_place"].fillna(0)
    places = np.column_stack([np.log10(table["lr"] / rest), np.log10(rest), own])
    top1 = table["top1"].where(table["status"] == "finished").to_numpy(float)
    return Surfaces.of_top1(places, table["scheme"].map(SCHEMES.index).to_numpy(), top1)


@cache
def possible() -> dict[tuple[float, float], int]:
    """Learning rate and momentum of every trial that a search may make, with its index."""
    trials = list(surface_search(2, 6, 0).choice(SCHEMES[0])[0])
    for turn in range(TURNS):
        for scheme in SCHEMES:
            own = Searched(scheme, lambda _: None)
            trials += surface_search(1, 8, turn).first(own)  # 4 and 6 are the first of these
        trials += best_of_one_sequence(16, turn).trials
    return {pair: index for index, pair in enumerate(dict.fromkeys(map(of_trial, trials)))}


def of_trial(trial: Trial) -> tuple[float, float]:
    return trial.lr, trial.momentum or 0.0


@cache
def all_places() -> np.ndarray:
    rates, momenta = np.array(list(possible())).T
    rest = 1 - momenta
    return np.column_stack([np.log10(rates / rest), np.log10(rest), 0 * rest])


def worlds(workers: int, draws: int) -> list[World]:
    surfaces, places = committed(workers), all_places()
    gains = surfaces.draws(np.random.default_rng(workers), places, draws)
    inside = np.stack([surfaces.within(places, scheme) for scheme in range(len(SCHEMES))])
    top1 = np.where(inside[..., None], 1 + LEAST - np.exp(-gains), np.nan)
    noise, rng = NOISE * surfaces.scale, np.random.default_rng(workers)
    slopes = 0.15 * rng.standard_normal((draws, 1, 2))
    slopes = slopes + 0.05 * rng.standard_normal((draws, len(SCHEMES), 2))
    later = slopes @ (places[:, :2] - places[:, :2].mean(axis=0)).T
    return [World(top1[..., draw], noise, later[draw]) for draw in range(draws)]


def searched(world: World, search, rng: np.random.Generator) -> Outcome:
    size = world.top1.shape
    error = (1 + LEAST - world.top1) * np.exp(-world.noise * rng.standard_normal(size))
    seen = 1 + LEAST - error

    def of(scheme: int) -> Searched:
        def result_of(trial: Trial):
            top1 = seen[scheme, possible()[of_trial(trial)]]
            return {"status": "diverged" if np.isnan(top1) else "finished", "top1": top1}

        return Searched(SCHEMES[scheme], result_of)

    family = [of(scheme) for scheme in range(len(SCHEMES))]
    rows, chosen, late = [], [], []
    images = np.exp(world.later + OF_TIMES * rng.standard_normal(size))
    for place, each in enumerate(family):
        tried = search.tried(each, family)
        indices = [possible()[of_trial(trial)] for trial in tried.trials]
        own = {"lr": [trial.lr for trial in tried.trials]}
        own |= {"momentum": [trial.momentum for trial in tried.trials]}
        own |= {"score": seen[place, indices], "images": images[place, indices]}
        own |= {"chosen": ["true" if t == tried.best else "false" for t in tried.trials]}
        table = pd.DataFrame(own)
        table["status"] = np.where(table["score"].isna(), "diverged", "finished")
        rows.append(table)
        at = place, possible()[of_trial(tried.best)]
        chosen.append(world.top1[at])
        late.append(world.later[at])
    tried = [
        possible()[pair] for own in rows for pair in zip(own["lr"], own["momentum"], strict=False)
    ]
    low, high = (end(all_places()[tried], axis=0) for end in (np.min, np.max))
    margin = 0.1 * (high - low)
    inside = ((all_places() >= low - margin) & (all_places() <= high + margin)).all(axis=1)
    best = np.nanargmax(np.where(inside, world.top1, np.nan), axis=1)
    return Outcome(rows, np.array(chosen), np.array(late), best)


def runs_of(chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Accuracies [schemes, seeds]; all schemes share the effects of seeds."""
    errors = OF_RUNS * rng.standard_normal((len(chosen), SEEDS))
    return chosen[:, None] + OF_SEEDS * rng.standard_normal(SEEDS) + errors


def estimands(draws: int) -> list[Found]:
    """Differences from all-reduce with the settings that ran, and of schemes at their best."""
    return _estimands("12 trials in two rounds", MANY_TRAIN, (2, 6), draws)


def where_few_train(draws: int) -> list[Found]:
    """The same for the schemes at their best where few trials train, after two and three rounds."""
    two = _estimands("12 trials in two rounds, 256 workers", FEW_TRAIN, (2, 6), draws)
    three = _estimands("18 trials in three rounds, 256 workers", FEW_TRAIN, (3, 6), draws)
    return two[1:] + three[1:]


def _estimands(
    name: str, workers: Sequence[int], shape: tuple[int, int], draws: int
) -> list[Found]:
    hits = []
    for number in workers:
        rng = np.random.default_rng(number + 1)
        for turn, world in enumerate(worlds(number, draws // len(workers))):
            hits.append(_covered(world, surface_search(*shape, turn % TURNS), rng))
    here, best, times = np.array(hits).T
    return [
        found(f"all 4 differences, {name}, these settings", here, Aim.COVERAGE),
        found(f"all 4 differences, {name}, at best settings", best, Aim.AT_LEAST),
        found(f"a ratio of times, {name}, at best settings", times, Aim.AT_LEAST),
    ]


def _covered(world: World, search, rng: np.random.Generator) -> tuple[bool, ...]:
    outcome = searched(world, search, rng)
    family, luck = paired(runs_of(outcome.chosen, rng)), draw_luck(outcome.rows, rng)
    shift, variance = of_best(luck, 0)
    here = against_reference(family, 0)
    best = against_reference(family, 0, extra_variance=variance, shift=shift)
    at_best = range(len(SCHEMES)), outcome.best
    pairs = ((here, outcome.chosen), (best, world.top1[at_best]))
    told = [bool(found.covers(truth[1:] - truth[0]).all()) for found, truth in pairs]
    runs = np.exp(outcome.later[:, None] + OF_TIMES * rng.standard_normal((len(SCHEMES), SEEDS)))
    one, other = (restricted_mean([Crossing(t, t) for t in own], HORIZON) for own in runs[:2])
    change = luck[0].later - luck[1].later
    ratio = ratio_of_means(one, other, float(change.mean()), float(change.var()))
    times = world.later[at_best]
    return (*told, bool(ratio.covers(np.exp(times[0] - times[1]))))


def told(draws: int) -> list[Found]:
    """Families of equal schemes, and one of them worse by half a point, with these settings."""
    rng, rows = np.random.default_rng(3), []
    for name, analyse in (("paired by seed", paired), ("unpaired", lambda t: pooled(list(t)))):
        for size in (5, 12):
            equal, low = np.full(size, 0.9), np.full(size, 0.9)
            low[-1] -= 0.005
            ten = [against_reference(analyse(runs_of(equal, rng)), 0) for _ in range(draws)]
            any_told = np.array([not each.covers(0.0).all() for each in ten])
            worse = [against_reference(analyse(runs_of(low, rng)), 0) for _ in range(draws)]
            text = f"{size} schemes, {SEEDS} seeds, {name}"
            rows.append(found(f"any of equal schemes told apart, {text}", any_told, Aim.SIZE))
            half = np.array([each.high[-1] < 0 for each in worse])
            rows.append(found(f"a scheme worse by 0.5 points told, {text}", half, Aim.POWER))
    return rows


class Search(NamedTuple):
    """Mean regret and luck of a search [points].

    `luck`: standard deviation of a difference of two schemes between two searches.
    """

    name: str
    regret: float
    luck: float


SHAPES = (2, 4), (2, 6), (2, 8), (3, 4), (3, 6), (4, 6)  # rounds, and trials of a round


def regrets(
    workers: Sequence[int], draws: int, shapes: Sequence[tuple[int, int]] = SHAPES
) -> list[Search]:
    """Regrets of searches by surfaces, one for each shape, and of the best of one sequence."""
    kinds = [
        (f"{rounds} rounds of {trials} trials", partial(surface_search, rounds, trials))
        for rounds, trials in shapes
    ]
    kinds += [("best of 16 trials of one sequence", partial(best_of_one_sequence, 16))]
    made: list[Search] = []
    for name, search in kinds:
        missed, turns = [], []
        for number in workers:
            rng = np.random.default_rng(number)
            for draw, world in enumerate(worlds(number, draws // len(workers))):
                both = (2 * draw % TURNS, (2 * draw + 1) % TURNS)
                pair = [searched(world, search(turn), rng).chosen for turn in both]
                missed += [100 * (world.best - chosen) for chosen in pair]
                turns.append(100 * np.subtract(*[chosen[1:] - chosen[0] for chosen in pair]))
        luck = float(np.sqrt(np.mean(np.square(turns)) / 2))
        made.append(Search(name, float(np.mean(missed)), luck))
    return made


WORLDS = estimands, where_few_train, told
