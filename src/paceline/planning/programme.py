"""The choice of an alternative for each block as an integer programme (Zou 2017, doi
10.1007/978-3-319-69179-4_2).

    minimise    sum_k sum_a x_ka seconds_ka + sum_k z_k conversion_k
    subject to  sum_a x_ka = 1 for each block k; x_ka in {0, 1}
                bytes at each moment <= memory
                z_k >= |layout of block k - layout of block k - 1|

Zou bounds the sum of all workspaces. Here each block has two moments, its forward and its backward:
before its own there is what the blocks before it keep, and in backward the gradients of the blocks
behind it. That is as linear, and no workspace is counted at a time when it is not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from paceline.planning.alternative import PLAIN, Alternative


class Option(NamedTuple):
    """Alternative of one block, with its measurements.

    `seconds`: of forward and backward. `kept`: bytes from the end of forward until backward.
    `forward`, `backward`: most bytes during these, above those before forward.
    """

    alternative: Alternative
    seconds: float
    kept: int
    forward: int
    backward: int


class BlockCosts(NamedTuple):
    """Measurements of a block. `gradients`: bytes of its weights' gradients.

    `conversion_seconds`, `conversion_bytes`: to bring what it is given from one layout into the
    other, and its gradient back.
    """

    name: str
    options: Sequence[Option]
    gradients: int
    conversion_seconds: float
    conversion_bytes: int

    def option(self, alternative: Alternative) -> Option | None:
        return next((each for each in self.options if each.alternative == alternative), None)

    @property
    def plain(self) -> Option:
        """Option of a block as it is, which every measured block has."""
        found = self.option(PLAIN)
        assert found is not None
        return found


class Moment(NamedTuple):
    """Time in a step, with the bytes that it needs."""

    name: str
    bytes: int


class Plan(NamedTuple):
    """Chosen option of each block, with what the step takes [seconds], and its fullest moment."""

    options: Sequence[Option]
    seconds: float
    fullest: Moment

    def __str__(self) -> str:
        return ", ".join(str(option.alternative) for option in self.options)


@dataclass(frozen=True)
class Programme:
    """Integer programme of one batch size.

    `seconds`, `bytes`: of a step, besides its blocks' and their gradients. `update_bytes`: while
    weights are updated. `keeps_gradients`: gradients are there also before they are computed.
    """

    blocks: Sequence[BlockCosts]
    seconds: float
    bytes: int
    update_bytes: int
    keeps_gradients: bool

    def plan(self, options: Sequence[Option]) -> Plan:
        """Return the plan that takes these options, one for each block."""
        chosen = self._vector(options)
        seconds = self.seconds + float(self._costs @ chosen)
        needed = np.rint(self._matrix @ chosen + self._constant)
        fullest = int(needed.argmax())
        return Plan(options, seconds, Moment(self._moments[fullest], int(needed[fullest])))

    def solve(self, memory: float, excluded: Sequence[Plan] = ()) -> Plan | None:
        """Return the fastest plan within `memory` [bytes], none of `excluded`; None without one."""
        found = self._milp(memory, excluded)
        return None if found is None else self.plan(self._options(found))

    def fastest(self, memory: float, most: int) -> list[Plan]:
        """Return up to `most` plans within `memory` [bytes], the fastest first."""
        found = list[Plan]()
        while len(found) < most and (plan := self.solve(memory, found)) is not None:
            found.append(plan)
        return found

    def smallest(self) -> Plan:
        """Return a plan that needs the least memory."""
        found = self._milp(None, ())
        assert found is not None  # nothing bounds it
        return self.plan(self._options(found))

    def _milp(self, memory: float | None, excluded: Sequence[Plan]) -> np.ndarray | None:
        """Return the columns of the best plan; with `memory` None, of the smallest one.

        One column more has the memory that is needed, in units of the largest number of bytes.
        """
        scale = float(np.abs(self._matrix).max() + np.abs(self._constant).max())
        width = len(self._costs) + 1
        costs = np.zeros(width)
        costs[: width - 1], costs[-1] = (self._costs, 0) if memory is not None else (0, 1)
        bound = np.inf if memory is None else memory / scale
        in_use = np.column_stack([self._matrix / scale, -np.ones(len(self._constant))])
        rules = [
            LinearConstraint(in_use, ub=-self._constant / scale),  # pyright: ignore[reportArgumentType]
            LinearConstraint(_wider(self._one_each), 1, 1),
            LinearConstraint(_wider(self._changes), ub=0),
        ]
        for plan in excluded:
            taken = self._vector(plan.options)[None, : self._num_options]
            row = np.pad(taken, ((0, 0), (0, width - self._num_options)))
            rules.append(LinearConstraint(row, ub=len(self.blocks) - 1))
        found = milp(
            costs,
            constraints=rules,
            integrality=np.arange(width) < self._num_options,
            bounds=Bounds(0, np.append(np.ones(width - 1), bound)),  # pyright: ignore[reportArgumentType]
            options={"mip_rel_gap": 0},
        )
        return None if found.x is None else found.x[:-1]

    @cached_property
    def _num_options(self) -> int:
        return sum(len(block.options) for block in self.blocks)

    @cached_property
    def _places(self) -> list[slice]:
        """Columns of each block's options; those of the changes of layout follow, one a block."""
        ends = np.cumsum([len(block.options) for block in self.blocks])
        starts = np.append(0, ends[:-1])
        return [slice(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]

    def _spread(self, numbers: Sequence[Sequence[float]], changes: Sequence[float]) -> np.ndarray:
        return np.concatenate([*map(np.asarray, numbers), np.asarray(changes)]).astype(float)

    @cached_property
    def _costs(self) -> np.ndarray:
        return self._spread(
            [[option.seconds for option in block.options] for block in self.blocks],
            [block.conversion_seconds for block in self.blocks],
        )

    @cached_property
    def _one_each(self) -> np.ndarray:
        rows = np.zeros((len(self.blocks), len(self._costs)))
        for row, place in zip(rows, self._places, strict=True):
            row[place] = 1
        return rows

    @cached_property
    def _changes(self) -> np.ndarray:
        """Two rows for each block: +-(its layout - that before it) - its change <= 0."""
        rows, before = list[np.ndarray](), np.zeros(len(self._costs))  # images come contiguous
        for index, (block, place) in enumerate(zip(self.blocks, self._places, strict=True)):
            layout = np.zeros(len(self._costs))
            layout[place] = [o.alternative.layout == "channels_last" for o in block.options]
            for sign in (1, -1):
                row = sign * (layout - before)
                row[self._num_options + index] = -1
                rows.append(row)
            before = layout
        return np.array(rows)

    @cached_property
    def _moments(self) -> list[str]:
        names = [block.name for block in self.blocks]
        return [
            "the update of weights",
            *(f"forward of {name}" for name in names),
            *(f"backward of {name}" for name in names),
        ]

    @cached_property
    def _matrix(self) -> np.ndarray:
        """Bytes of each moment by column, besides `_constant`."""
        zero = np.zeros(len(self._costs))
        forward, backward, kept = list[np.ndarray](), list[np.ndarray](), zero
        for index, (block, place) in enumerate(zip(self.blocks, self._places, strict=True)):
            change = self._num_options + index
            for rows, numbers in (
                (forward, [option.forward for option in block.options]),
                (backward, [option.backward for option in block.options]),
            ):
                row = kept.copy()
                row[place], row[change] = numbers, block.conversion_bytes
                rows.append(row)
            kept = kept.copy()
            kept[place] = [option.kept for option in block.options]
            kept[change] = block.conversion_bytes
        return np.array([zero, *forward, *backward])

    @cached_property
    def _constant(self) -> np.ndarray:
        gradients = np.array([block.gradients for block in self.blocks], float)
        behind = gradients.sum() - np.cumsum(gradients)
        present = np.full(len(gradients), gradients.sum())
        in_backward = present if self.keeps_gradients else behind
        return np.concatenate([[self.update_bytes], self.bytes + present, self.bytes + in_backward])

    def _vector(self, options: Sequence[Option]) -> np.ndarray:
        chosen = np.zeros(len(self._costs))
        before = "contiguous"
        for index, (block, place) in enumerate(zip(self.blocks, self._places, strict=True)):
            chosen[place][list(block.options).index(options[index])] = 1
            layout = options[index].alternative.layout
            chosen[self._num_options + index] = layout != before
            before = layout
        return chosen

    def _options(self, columns: np.ndarray) -> list[Option]:
        pairs = zip(self.blocks, self._places, strict=True)
        return [block.options[int(columns[place].argmax())] for block, place in pairs]


def _wider(rows: np.ndarray) -> np.ndarray:
    return np.pad(rows, ((0, 0), (0, 1)))
