"""Which kind of worker carries out a scheme on a cluster."""

from typing import Any

import torch

from paceline.engine.training_clock import TrainingClock
from paceline.model.learning_rate import LearningRate
from paceline.record.point import is_virtual
from paceline.run.budget import Budget
from paceline.run.side import AbstractSide, RuleSide, SynchronousSide
from paceline.run.virtual_side import VirtualSide
from paceline.scheme.rule import AbstractScheme


def side_of(
    config: dict[str, Any],
    scheme: AbstractScheme,
    budget: Budget,
    rate: LearningRate,
    clock: TrainingClock,
    device: torch.device,
) -> AbstractSide:
    if is_virtual(config):
        return VirtualSide(config, scheme, budget, rate, clock, device)
    if scheme.carried_out_by_ddp:
        return SynchronousSide(config, scheme, budget, rate, clock, device)
    return RuleSide(config, scheme, budget, rate, clock, device)
