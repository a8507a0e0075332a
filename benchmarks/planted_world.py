"""What a planted world finds: a share of draws, and what it should be."""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np


class Aim(Enum):
    """Nominal share and target; 1,000 draws have a standard error of 0.7 points."""

    COVERAGE = (0.95, "93 to 97 %")
    AT_LEAST = (0.95, ">= 95 %")
    SIZE = (0.05, "<= 5 %")
    POWER = (1.0, "shown")
    LIMIT = (0.95, "shown")

    @property
    def nominal(self) -> float:
        return self.value[0]

    @property
    def target(self) -> str:
        return self.value[1]


@dataclass(frozen=True)
class Found:
    name: str
    share: float
    draws: int
    aim: Aim

    @property
    def holds(self) -> bool:
        """Within what chance allows: three standard errors of so many draws."""
        nominal = self.aim.nominal
        chance = 3 * math.sqrt(nominal * (1 - nominal) / self.draws)
        if self.aim is Aim.COVERAGE:
            return abs(self.share - nominal) <= 0.02
        if self.aim is Aim.AT_LEAST:
            return self.share >= nominal - chance
        return self.aim is not Aim.SIZE or self.share <= nominal + chance


def found(name: str, hits: np.ndarray, aim: Aim) -> Found:
    """`hits`: of each draw, or of each draw and interval."""
    return Found(name, float(np.mean(hits)), len(hits), aim)
