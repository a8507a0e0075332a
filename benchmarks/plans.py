"""Whether any plan for this machine is faster than the one that `paceline plan` chooses.

The choice is measured again beside the other feasible plans of its batch size, in rounds of their
own, because the fastest of many measured plans was also lucky. `ours` is the median of whole steps
by the choice, `theirs` the smallest of all medians.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.row import row
from paceline.cluster.launcher import call_in_processes
from paceline.prediction.plan import plan_batches
from paceline.prediction.race import (
    by_turns,
    choice_of,
    compare,
    difference,
    feasible_plans,
    on_steps,
)
from paceline.record.point import Point
from paceline.study.compose import composed

ROOT = Path(__file__).parents[1]
ROUNDS, SECONDS = 15, 100.0
CASES = {  # settings, batch sizes, and the limit of memory [bytes]
    "small CNN, Fashion-MNIST": (["model=small_cnn"], (16, 32, 64, 128, 256, 512), 2e9),
    "ResNet-18, 3x32x32, 200 MB": (
        ["model=resnet18", "data=synthetic", "data.image_shape=[3,32,32]"],
        (4, 8, 16, 32, 64, 128),
        200e6,
    ),
    "NiN, 3x67x67, 110 MB": (
        ["model=nin", "data=synthetic", "data.image_shape=[3,67,67]"],
        (4, 8, 16, 32, 64, 128),
        110e6,
    ),
}


def rows() -> Iterator[dict[str, Any]]:
    for name, case in CASES.items():
        seconds = measured(*case)
        own, best = median(seconds[0]), min(map(median, seconds))
        num_faster = sum(difference(seconds[0], each).faster for each in seconds[1:])
        what = f"plan for {name} / the fastest of {len(seconds)} plans"
        yield row(what, 1e3 * own, 1e3 * best, "ms", own / best, "shown", True)
        what = f"  significantly faster, by 95 % intervals of {len(seconds[0])} rounds"
        yield row(what, num_faster, 0, "plans", num_faster, "0", num_faster == 0)


def measured(settings: Sequence[str], sizes: Sequence[int], memory: float) -> list[list[float]]:
    """Return the seconds of whole steps by plan and round, those of the choice first."""
    points = [Point.of(composed([*settings, f"batch_size={size}"], ROOT)) for size in sizes]
    planned = plan_batches(points, memory, ROUNDS)
    chosen = compare(points, planned, memory, ROUNDS, SECONDS)[0]
    programme, point = chosen.planned.measured.programme, points[planned.index(chosen.planned)]
    others = [plan for plan in feasible_plans(programme, memory) if plan != chosen.plan]
    steps = [(point, choice_of(programme, plan)) for plan in (chosen.plan, *others)]
    return call_in_processes(on_steps, by_turns, steps, ROUNDS, SECONDS, Random(1))[0]
