"""Intervals and tests of `paceline.analysis` where the truth is known, and on resampled runs.

Coverage is the share of draws in which a 95 % interval contains the truth. Size is the share of
families of schemes in which anything false is claimed; power, that something true is. No world
shares the assumption of Student's t, that errors are normal.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.row import row
from paceline.analysis.comparison import losses, one_worker
from paceline.analysis.configuration import configurations, finished
from paceline.analysis.intervals import LEVEL, holm, interval, p_above, p_differs
from paceline.analysis.tables import read_tables

DRAWS = 10_000
STUDIES = ("grid", "schemes")
REPORTS = Path(__file__).parents[1] / "reports"
MARGIN, DEVIATION = 0.01, 0.003  # shares; the latter of a run, as in these studies
Array = np.ndarray
Errors = Callable[[np.random.Generator, tuple[int, int]], Array]


class Found(NamedTuple):
    """Share of draws with a hit, and between which shares it should be (of 1,000 draws or more)."""

    name: str
    share: float
    least: float
    most: float


def skewed(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Errors of accuracies below a ceiling: most runs are near it, and some lose much."""
    return (math.exp(0.08) - rng.lognormal(0, 0.4, shape)) / 0.45 * DEVIATION


def unlike(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Errors of schemes (rows) of which one varies six times as much; a seed is shared by all."""
    scales = np.linspace(0.5, 3, shape[0])[:, None]
    return DEVIATION * (scales * rng.uniform(-1.7, 1.7, shape) + rng.standard_normal(shape[1]))


def of_images(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Errors of runs of unequal skill that are scored on 10,000 images each."""
    skill = 0.9 + DEVIATION * rng.standard_t(6, shape)
    return rng.binomial(10_000, np.minimum(skill, 1)) / 10_000 - 0.9


WORLDS: tuple[Errors, ...] = (skewed, unlike, of_images)


def covered(draws: int) -> Iterator[Found]:
    """Differences from one worker, in worlds, by the number of seeds."""
    for world in WORLDS:
        for seeds in (5, 8):
            rng, hits = np.random.default_rng(1), 0
            for _ in range(draws):
                one, *others = world(rng, (5, seeds))
                hits += sum(_covers(other - one, 0.0) for other in others) / len(others)
            yield Found(f"coverage, {world.__name__} errors, n {seeds}", hits / draws, 0.93, 0.97)


def resampled(draws: int) -> Iterator[Found]:
    """Runs of the committed studies: residuals of their configurations, drawn anew. Those of one
    number of workers are shown without a target: some are of 20 runs.
    """
    pools = _residuals()
    limits = {"all": (0.93, 0.97)} | dict.fromkeys(map(str, sorted(pools)), (0.0, 1.0))
    for workers, (least, most) in limits.items():
        residuals = pools[int(workers)] if workers != "all" else np.concatenate([*pools.values()])
        for seeds in (5, 8):
            rng = np.random.default_rng(2)
            hits = [_covers(rng.choice(residuals, seeds), 0.0) for _ in range(draws)]
            name = f"coverage, {len(residuals)} runs resampled, workers {workers}, n {seeds}"
            yield Found(name, float(np.mean(hits)), least, most)


def told(draws: int) -> Iterator[Found]:
    """Families of five schemes: all equal, all on the margin, or one worse by half a point."""
    for world in WORLDS:
        for seeds in (5, 8):
            rng, differ, within, worse = np.random.default_rng(3), 0, 0, 0
            for _ in range(draws):
                one, *others = world(rng, (6, seeds))
                gaps = [other - one for other in others]
                differ += bool((holm([p_differs(gap) for gap in gaps]) <= 1 - LEVEL).any())
                on_margin = [p_above(gap - MARGIN, -MARGIN) for gap in gaps]
                within += bool((holm(on_margin) <= 1 - LEVEL).any())
                low = holm([p_differs(gap) for gap in (gaps[0] - 0.005, *gaps[1:])])
                worse += bool(low[0] <= 1 - LEVEL)
            text = f"{world.__name__} errors, n {seeds}"
            most = 1 if world is unlike else 0.06  # a limit: bounded errors, of few seeds
            yield Found(f"any of 5 equal schemes called different, {text}", differ / draws, 0, most)
            yield Found(f"any of 5 on the margin called within, {text}", within / draws, 0, most)
            yield Found(f"a scheme worse by 0.5 points found, {text}", worse / draws, 0, 1)


def _covers(values: Array, truth: float) -> bool:
    found = interval(values)
    return found.low <= truth <= found.high


def _residuals() -> dict[int, Array]:
    """Differences of top-1 from one worker with the same seed, less their mean, by workers.

    They are enlarged so that their variance is that of single runs. Runs that are a part of several
    studies count once.
    """
    found = dict[int, dict[bytes, Array]]()
    for study in STUDIES:
        tables = read_tables(REPORTS / study)
        for configuration, points in configurations(tables.runs, ["data", *tables.axes]):
            workers, tuned = int(configuration["workers"]), configuration.get("training.rate")
            own = losses(finished(points), one_worker(tables, configuration))
            if workers > 1 and tuned != "by_rule" and len(own) > 1:
                centred = (own - own.mean()) * math.sqrt(len(own) / (len(own) - 1))
                found.setdefault(workers, {})[own.tobytes()] = centred
    return {workers: np.concatenate([*each.values()]) for workers, each in found.items()}


def rows() -> list[dict[str, Any]]:
    return [_row(found) for world in (covered, resampled, told) for found in world(DRAWS)]


def _row(found: Found) -> dict[str, Any]:
    shown = found.least == 0 and found.most == 1
    target = "shown" if shown else f"{100 * found.least:g} to {100 * found.most:g} %"
    nominal = 0.95 if found.name.startswith("coverage") else 0.05
    holds = found.least <= found.share <= found.most
    share, of = 100 * found.share, 100 * nominal
    return row(found.name, share, of, "%", share / of, target, holds)
