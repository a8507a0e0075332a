"""Which kind of worker carries out a scheme on a cluster."""

from typing import Any

import torch

from paceline.cluster.training_clock import TrainingClock
from paceline.model.learning_rate import LearningRate
from paceline.scheme.scheme import AbstractScheme
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.training.budget import Budget
from paceline.training.point import is_virtual
from paceline.training.side import AbstractSide, RuleSide, SynchronousSide
from paceline.training.virtual_side import VirtualSide


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
    if isinstance(scheme, SyncAllReduce):
        return SynchronousSide(config, scheme, budget, rate, clock, device)
    return RuleSide(config, scheme, budget, rate, clock, device)
