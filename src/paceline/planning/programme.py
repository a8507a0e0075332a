"""The choice of an alternative for each block as an integer programme (Zou 2017, doi
10.1007/978-3-319-69179-4_2).

    minimise    sum_k sum_a x_ka seconds_ka + sum_k z_k conversion_k
    subject to  sum_a x_ka = 1 for each block k; x_ka in {0, 1}
                bytes at each moment <= memory
                z_k >= |layout of block k - layout of block k - 1|

Zou bounds the sum of all workspaces. Here each block has two moments, its forward and its backward,
which need its own bytes, what earlier blocks keep, and in backward the gradients of later blocks.
That is linear as well, and counts a workspace only while it exists.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from paceline.planning.alternative import PLAIN, Alternative

_MOMENTS = ("forward", "backward")  # of a block


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

    def fastest(self, memory: float, most: int) -> list[Plan]:
        """Return up to `most` plans within `memory` [bytes], the fastest first."""
        found = list[Plan]()
        while len(found) < most and (plan := self._solved(memory, found)) is not None:
            found.append(plan)
        return found

    def smallest(self) -> Plan:
        """Return a plan that needs the least memory."""
        found = self._solved(None, ())
        assert found is not None  # nothing bounds it
        return found

    def _solved(self, memory: float | None, excluded: Sequence[Plan]) -> Plan | None:
        """Return the best plan, not one of `excluded`; with `memory` None, the smallest.

        The last column is the memory that is needed, in units of the largest number of bytes.
        """
        scale = float(np.abs(self._matrix).max() + np.abs(self._constant).max())
        costs, most = self._costs, np.ones(self._width)
        if memory is None:
            costs, most[-1] = np.arange(self._width) == self._width - 1, np.inf
        else:
            most[-1] = memory / scale
        in_use = self._matrix / scale
        in_use[:, -1] = -1
        rules = [
            LinearConstraint(in_use, ub=-self._constant / scale),  # pyright: ignore[reportArgumentType]
            LinearConstraint(self._one_each, 1, 1),
            LinearConstraint(self._changes, ub=0),
        ]
        is_option = np.arange(self._width) < self._num_options
        for plan in excluded:
            taken = self._vector(plan.options) * is_option
            rules.append(LinearConstraint(taken[None], ub=len(self.blocks) - 1))
        found = milp(
            costs,
            constraints=rules,
            integrality=is_option,
            bounds=Bounds(0, most),  # pyright: ignore[reportArgumentType]
            options={"mip_rel_gap": 0},
        )
        if found.x is None:
            return None
        pairs = zip(self.blocks, self._places, strict=True)
        return self.plan([block.options[int(found.x[place].argmax())] for block, place in pairs])

    @cached_property
    def _num_options(self) -> int:
        return sum(len(block.options) for block in self.blocks)

    @property
    def _width(self) -> int:
        """Number of columns: options of all blocks, changes of layout before them, and memory."""
        return self._num_options + len(self.blocks) + 1

    @cached_property
    def _places(self) -> list[slice]:
        """Columns of each block's options."""
        ends = np.cumsum([len(block.options) for block in self.blocks])
        starts = np.append(0, ends[:-1])
        return [slice(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]

    @cached_property
    def _costs(self) -> np.ndarray:
        of_options = [option.seconds for block in self.blocks for option in block.options]
        return np.array([*of_options, *(block.conversion_seconds for block in self.blocks), 0.0])

    @cached_property
    def _one_each(self) -> np.ndarray:
        rows = np.zeros((len(self.blocks), self._width))
        for row, place in zip(rows, self._places, strict=True):
            row[place] = 1
        return rows

    @cached_property
    def _changes(self) -> np.ndarray:
        """Two rows for each block: +-(its layout - that before it) - its change <= 0."""
        rows, before = list[np.ndarray](), np.zeros(self._width)  # images come contiguous
        for index, (block, place) in enumerate(zip(self.blocks, self._places, strict=True)):
            layout = np.zeros(self._width)
            layout[place] = [o.alternative.layout == "channels_last" for o in block.options]
            for sign in (1, -1):
                row = sign * (layout - before)
                row[self._num_options + index] = -1
                rows.append(row)
            before = layout
        return np.array(rows)

    @cached_property
    def _moments(self) -> list[str]:
        names = [f"{moment} of {block.name}" for moment in _MOMENTS for block in self.blocks]
        return ["the update of weights", *names]

    @cached_property
    def _matrix(self) -> np.ndarray:
        """Bytes of each moment by column, besides `_constant`."""
        forward, backward = list[np.ndarray](), list[np.ndarray]()
        kept = np.zeros(self._width)
        for index, (block, place) in enumerate(zip(self.blocks, self._places, strict=True)):
            kept[self._num_options + index] = block.conversion_bytes
            for rows, moment in zip((forward, backward), _MOMENTS, strict=True):
                rows.append(kept.copy())
                rows[-1][place] = [getattr(option, moment) for option in block.options]
            kept[place] = [option.kept for option in block.options]
        return np.array([np.zeros(self._width), *forward, *backward])

    @cached_property
    def _constant(self) -> np.ndarray:
        gradients = np.array([block.gradients for block in self.blocks], float)
        later = gradients.sum() - np.cumsum(gradients)
        present = np.full(len(gradients), gradients.sum())
        in_backward = present if self.keeps_gradients else later
        return np.concatenate([[self.update_bytes], self.bytes + present, self.bytes + in_backward])

    def _vector(self, options: Sequence[Option]) -> np.ndarray:
        chosen, before = np.zeros(self._width), "contiguous"
        for index, (block, place) in enumerate(zip(self.blocks, self._places, strict=True)):
            chosen[place][list(block.options).index(options[index])] = 1
            layout = options[index].alternative.layout
            chosen[self._num_options + index] = layout != before
            before = layout
        return chosen
