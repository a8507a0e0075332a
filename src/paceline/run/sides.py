"""Which kind of worker carries out a scheme on a cluster."""

import torch

from paceline.engine.training_clock import TrainingClock
from paceline.model.learning_rate import LearningRate
from paceline.record.point import Point
from paceline.run.budget import Budget
from paceline.run.side import AbstractSide, RuleSide, SynchronousSide
from paceline.run.virtual_side import VirtualSide
from paceline.scheme.rule import AbstractScheme


def side_of(
    point: Point,
    scheme: AbstractScheme,
    budget: Budget,
    rate: LearningRate,
    clock: TrainingClock,
    device: torch.device,
) -> AbstractSide:
    if point.kind == "virtual":
        return VirtualSide(point, scheme, budget, rate, clock, device)
    if scheme.carried_out_by_ddp:
        return SynchronousSide(point, scheme, budget, rate, clock, device)
    return RuleSide(point, scheme, budget, rate, clock, device)
