"""The choice of an alternative for each block as an integer programme (Zou 2017, doi
10.1007/978-3-319-69179-4_2).

    minimise    sum_k sum_a x_ka seconds_ka + sum_k z_k conversion_k
    subject to  sum_a x_ka = 1 for each block k; x_ka in {0, 1}
                bytes at each moment <= memory
                z_k >= |layout of block k - layout of block k - 1|

x_ka is 1 if block k has alternative a (a way to compute the block), else 0. z_k is 1 if the memory
layout changes before block k. Zou bounds the sum of all workspaces. Here memory is bounded at two
moments per block: its forward and its backward. Both need the bytes of the block itself and those
that earlier blocks keep; backward also needs the gradients of later blocks. These bounds are linear
as well, and they count a workspace only while it exists.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from paceline.prediction.blocks import PLAIN, Alternative

_MOMENTS = ("forward", "backward")  # of a block


class Option(NamedTuple):
    """Alternative of one block, with its measurements.

    `seconds`: time of forward and backward. `kept`: bytes that are kept from the end of forward
    until backward. `forward`, `backward`: peak bytes of each, above the bytes before forward.
    """

    alternative: Alternative
    seconds: float
    kept: int
    forward: int
    backward: int


class BlockCosts(NamedTuple):
    """Measurements of a block.

    `options`: its alternatives. `gradients`: bytes of the gradients of its weights.
    `conversion_seconds`, `conversion_bytes`: what it costs to convert the block's input to the
    other memory layout, and in backward the gradient back.
    """

    name: str
    options: Sequence[Option]
    gradients: int
    conversion_seconds: float
    conversion_bytes: int

    def option(self, alternative: Alternative) -> Option:
        """Return the option with this alternative, or else the plain one."""
        by_alternative = {each.alternative: each for each in self.options}
        return by_alternative.get(alternative) or by_alternative[PLAIN]


class Moment(NamedTuple):
    """Moment of a step, such as the backward of a block, and the bytes that are needed then."""

    name: str
    bytes: int


class Plan(NamedTuple):
    """Chosen option of each block, the seconds of a step, and the moment with the most bytes."""

    options: Sequence[Option]
    seconds: float
    fullest: Moment

    def __str__(self) -> str:
        return ", ".join(str(option.alternative) for option in self.options)


@dataclass(frozen=True)
class Programme:
    """Integer programme of one batch size.

    `seconds`: time of a step outside of its blocks. `bytes`: bytes of a step, without those of its
    blocks and their gradients. `update_bytes`: bytes needed while weights are updated.
    `keeps_gradients`: True if gradients have memory during the whole step, False if they are freed
    before backward, in which each gets memory when it is computed.

    The variables of the programme are the options of all blocks, the change of layout before each
    block, and the memory, which is in units of the largest number of bytes.
    """

    blocks: Sequence[BlockCosts]
    seconds: float
    bytes: int
    update_bytes: int
    keeps_gradients: bool

    def plan(self, options: Sequence[Option]) -> Plan:
        """Return the plan that takes these options, one for each block."""
        taken = self._taken(options)
        chosen = np.concatenate([taken, np.abs(self._changes @ taken), [0]])
        needed = np.rint(self._needed @ chosen + self._constant)
        fullest = int(needed.argmax())
        moment = Moment(self._moments[fullest], int(needed[fullest]))
        return Plan(options, self.seconds + float(self._costs @ chosen), moment)

    def fastest(self, memory: float, most: int) -> list[Plan]:
        """Return up to `most` plans within `memory` [bytes], the fastest first."""
        found = list[Plan]()
        while len(found) < most and (plan := self._solved(self._costs, memory, found)) is not None:
            found.append(plan)
        return found

    def smallest(self) -> Plan:
        """Return a plan that needs the least memory."""
        is_memory = np.zeros(len(self._costs))
        is_memory[-1] = 1
        found = self._solved(is_memory, math.inf, ())
        assert found is not None  # nothing bounds it
        return found

    def _solved(self, costs: np.ndarray, memory: float, excluded: Sequence[Plan]) -> Plan | None:
        """Return the plan within `memory` with the lowest cost that is not one of `excluded`.

        `costs`: cost of each variable. Returns None if there is no such plan.
        """
        num_blocks, num_options = self._changes.shape
        others = ((0, 0), (0, num_blocks + 1))  # columns besides those of options
        scale = float(np.abs(self._needed).max() + np.abs(self._constant).max())
        in_use = self._needed / scale
        in_use[:, -1] = -1
        change = np.hstack([-np.eye(num_blocks), np.zeros((num_blocks, 1))])
        rules = [
            LinearConstraint(in_use, ub=-self._constant / scale),  # pyright: ignore[reportArgumentType]
            LinearConstraint(np.pad(self._of_block, others), 1, 1),
            LinearConstraint(np.hstack([self._changes, change]), ub=0),
            LinearConstraint(np.hstack([-self._changes, change]), ub=0),
        ]
        for plan in excluded:
            taken = np.pad(self._taken(plan.options)[None], others)
            rules.append(LinearConstraint(taken, ub=num_blocks - 1))
        most = np.ones(len(costs))
        most[-1] = memory / scale
        found = milp(
            costs,
            constraints=rules,
            integrality=np.arange(len(costs)) < num_options,
            bounds=Bounds(0, most),  # pyright: ignore[reportArgumentType]
            options={"mip_rel_gap": 0},
        )
        if found.x is None:
            return None
        chosen = (self._of_block * found.x[:num_options]).argmax(axis=1)
        return self.plan([self._options[place] for place in chosen])

    def _taken(self, options: Sequence[Option]) -> np.ndarray:
        """Return 1 for each chosen option, and 0 for the others."""
        pairs = zip(self.blocks, options, strict=True)
        taken = [each == chosen for block, chosen in pairs for each in block.options]
        return np.array(taken, float)

    @cached_property
    def _options(self) -> list[Option]:
        return [option for block in self.blocks for option in block.options]

    @cached_property
    def _of_block(self) -> np.ndarray:
        """Matrix [blocks, options] that is 1 if the option belongs to the block, else 0."""
        sizes = [len(block.options) for block in self.blocks]
        return np.repeat(np.eye(len(sizes)), sizes, axis=1)

    @cached_property
    def _changes(self) -> np.ndarray:
        """Matrix [blocks, options]; times the vector of chosen options (1 if chosen, else 0), it is
        not 0 for the blocks before which the layout changes. The images are contiguous.
        """
        is_last = [option.alternative.layout == "channels_last" for option in self._options]
        return np.diff(self._of_block * is_last, axis=0, prepend=0)

    @cached_property
    def _costs(self) -> np.ndarray:
        of_options = [option.seconds for option in self._options]
        return np.array([*of_options, *(block.conversion_seconds for block in self.blocks), 0.0])

    @cached_property
    def _moments(self) -> list[str]:
        names = [f"{moment} of {block.name}" for moment in _MOMENTS for block in self.blocks]
        return ["the update of weights", *names]

    @cached_property
    def _needed(self) -> np.ndarray:
        """Bytes that each variable adds to each moment's `_constant`: [moments, variables]."""
        of_earlier = np.cumsum(self._of_block, axis=0) - self._of_block
        kept = of_earlier * [option.kept for option in self._options]
        forward, backward = (
            kept + self._of_block * [getattr(option, moment) for option in self._options]
            for moment in _MOMENTS
        )
        converted = np.tri(len(self.blocks)) * [block.conversion_bytes for block in self.blocks]
        return np.pad(np.block([[forward, converted], [backward, converted]]), ((1, 0), (0, 1)))

    @cached_property
    def _constant(self) -> np.ndarray:
        gradients = np.array([block.gradients for block in self.blocks], float)
        later = gradients.sum() - np.cumsum(gradients)
        present = np.full(len(gradients), gradients.sum())
        in_backward = present if self.keeps_gradients else later
        return np.concatenate([[self.update_bytes], self.bytes + present, self.bytes + in_backward])
