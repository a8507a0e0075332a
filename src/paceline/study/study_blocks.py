"""Blocks of a study whose throughput is measured: each holds all configurations once.

A machine drifts by the minute and by the hour. Seeds that run back to back would share one minute,
and a slow minute would look like what a scheme costs. So each seed of a study is a block: its
configurations run in a random order of its own, between two runs of a reference. The second of
these trains the same again (repeat=1), and tells how far the machine has drifted meanwhile.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from paceline.errors import SettingError
from paceline.random_bits import random_permutation
from paceline.settings import Count, settings
from paceline.study.study_point import Points, StudyPoint

REPEAT = "repeat"  # the setting; in a study with blocks, a column of runs.csv


@settings("blocks")
class Blocks:
    """Settings of the blocks of a study.

    `order`: seed of the random order. `reference`: a value for each axis but the seed, by setting.
    """

    order: Count
    reference: Mapping[str, Any] = Field(min_length=1)


def in_blocks(points: Points) -> list[list[StudyPoint]]:
    """Return the points of each block in the order of their runs; none for a study without blocks.

    They are the points of the study and a repeat of each reference. Raises SettingError for blocks
    that cannot be made of them.
    """
    asked = points[0].config.values["blocks"]
    if asked is None:
        return []
    if not isinstance(asked, Mapping):
        raise SettingError("blocks", f"null or {{order, reference}} is needed, not {asked!r}")
    blocks = Blocks(**asked)
    by_seed: dict[int, list[StudyPoint]] = {}
    for point in points:
        if (jobs := point.config.sweep.jobs) != 1:
            raise SettingError("sweep.jobs", f"1 is needed in blocks, one after the other: {jobs}")
        if point.config.is_tuned:
            raise SettingError("blocks", "points of training.rate=tuned have no place in them")
        by_seed.setdefault(point.config.seed, []).append(_numbered(point, 0))
    first, *others = {seed: _configurations(each) for seed, each in by_seed.items()}.items()
    for seed, configurations in others:
        if configurations != first[1]:
            message = f"seed {seed} has other configurations than seed {first[0]}"
            raise SettingError("blocks", f"{message}, but each block needs all of them")
    return [_in_order(blocks, seed, members) for seed, members in by_seed.items()]


def is_repeat(point: StudyPoint) -> bool:
    return bool(point.axes.get(REPEAT))


def _configurations(points: Points) -> Counter[str]:
    return Counter(repr({k: v for k, v in point.axes.items() if k != "seed"}) for point in points)


def _in_order(blocks: Blocks, seed: int, points: Points) -> list[StudyPoint]:
    """Return the points of a block: the reference, all others in random order, its repeat."""
    asked = dict(blocks.reference)
    reference = [each for each in points if {k: each.axes.get(k) for k in asked} == asked]
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
    overrides = (*point.overrides, f"{REPEAT}={repeat}")
    return replace(point, config=config, axes=axes, overrides=overrides)
