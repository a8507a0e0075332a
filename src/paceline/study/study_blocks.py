"""Blocks of a study whose throughput is measured: each holds all configurations once.

A machine drifts by the minute and by the hour. Seeds that run back to back would share one minute,
and a slow minute would look like what a scheme costs. So each seed of a study is a block: its
configurations run in a random order of its own, between two runs of a reference. The second of
these trains the same again (repeat=1), and tells how far the machine has drifted meanwhile.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from paceline.errors import SettingError
from paceline.random_bits import random_permutation
from paceline.settings import Count, settings
from paceline.study.study_point import StudyPoint

REPEAT = "repeat"  # the setting; in a study with blocks, a column of runs.csv


@settings("blocks")
class Blocks:
    """Settings of the blocks of a study.

    `order`: seed of the random order. `reference`: a value for each axis but the seed, by setting.
    """

    order: Count
    reference: Mapping[str, Any] = Field(min_length=1)

    def is_reference(self, point: StudyPoint) -> bool:
        return {name: point.axes.get(name) for name in self.reference} == dict(self.reference)


def in_blocks(points: Sequence[StudyPoint]) -> list[list[StudyPoint]]:
    """Return the points of each block in the order of their runs; none for a study without blocks.

    They are the points of the study and a repeat of each reference. Raises SettingError for blocks
    that cannot be made of them.
    """
    asked = points[0].config.values["blocks"]
    if asked is None:
        return []
    blocks = _settings(asked)
    _check(points)
    by_seed: dict[int, list[StudyPoint]] = {}
    for point in points:
        by_seed.setdefault(point.config.seed, []).append(_numbered(point, 0))
    _require_alike(by_seed)
    return [_in_order(blocks, seed, members) for seed, members in by_seed.items()]


def is_repeat(point: StudyPoint) -> bool:
    return bool(point.axes.get(REPEAT))


def _settings(asked: Any) -> Blocks:
    if not isinstance(asked, Mapping):
        message = f"null or {{order, reference}} is needed, not {asked!r}"
        raise SettingError("blocks", message)
    return Blocks(**asked)


def _check(points: Sequence[StudyPoint]) -> None:
    """Raise SettingError for settings that blocks exclude."""
    for point in points:
        jobs = point.config.sweep.jobs
        if jobs != 1:
            raise SettingError("sweep.jobs", f"1 is needed in blocks, one after the other: {jobs}")
        if point.is_tuned:
            raise SettingError("blocks", "points of training.rate=tuned have no place in them")


def _require_alike(by_seed: Mapping[int, Sequence[StudyPoint]]) -> None:
    found = {seed: Counter(_configuration(p) for p in points) for seed, points in by_seed.items()}
    first = next(iter(found))
    for seed, configurations in found.items():
        if configurations != found[first]:
            message = f"seed {seed} has other configurations than seed {first}"
            raise SettingError("blocks", f"{message}, but each block needs all of them")


def _in_order(blocks: Blocks, seed: int, points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points of a block: the reference, all others in random order, its repeat."""
    reference = [point for point in points if blocks.is_reference(point)]
    if len(reference) != 1:
        message = f"{len(reference)} configurations of {len(points)} are like that; 1 is needed"
        raise SettingError("blocks.reference", message)
    others = [point for point in points if point is not reference[0]]
    order = random_permutation(len(others), "blocks", blocks.order, seed)
    return [reference[0], *(others[n] for n in order), _numbered(reference[0], 1)]


def _numbered(point: StudyPoint, repeat: int) -> StudyPoint:
    """Return the point as its run number `repeat`, from 0."""
    axes = {**point.axes, REPEAT: repeat}
    if not repeat:
        return replace(point, axes=axes)
    config = point.config.replaced(repeat=repeat)
    return replace(
        point, config=config, axes=axes, overrides=(*point.overrides, f"{REPEAT}={repeat}")
    )


def _configuration(point: StudyPoint) -> str:
    return repr({name: value for name, value in point.axes.items() if name != "seed"})
