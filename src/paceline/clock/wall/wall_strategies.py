"""Choice of the strategy that trains a scheme on real processes."""

import torch

from paceline.clock.reports import TrainingClock
from paceline.clock.run_spec import RunSpec
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.wall.ddp import OneWorkerStrategy, SplitAllReduceStrategy, SyncAllReduceStrategy
from paceline.clock.wall.own_weights_strategy import OwnWeightsStrategy
from paceline.clock.wall.parameter_server_strategy import ParameterServerStrategy
from paceline.clock.wall.rule_strategy import ShardStrategy, most_steps
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.pace import Pace


def wall_strategy(
    scheme: AbstractScheme,
    run: RunSpec,
    *,
    device: torch.device,
    clock: TrainingClock,
    pace: Pace | None,
    split: SplitWorker | None,
) -> AbstractWallStrategy:
    """Return the strategy that trains `scheme`: Lightning's own DDP if that is equivalent and the
    worker is not split. AbstractRuleStrategy documents the arguments.
    """
    if scheme.carried_out_by_ddp:
        if split is not None:
            strategy = SplitAllReduceStrategy(device)
        elif run.num_workers == 1:
            strategy = OneWorkerStrategy(device)
        else:
            how, paced = (scheme.collective, scheme.compression), pace is not None
            strategy = SyncAllReduceStrategy(run.timeout_seconds, *how, paced=paced)
        strategy.prepare(run, clock=clock, pace=pace, split=split)
        return strategy
    accounting = Accounting(scheme, run.num_workers)
    if split is not None and not split.is_first:
        num_batches = most_steps(accounting, run)
        return ShardStrategy(split, run, num_batches=num_batches, device=device, pace=pace)
    kind = OwnWeightsStrategy if accounting.own_weights else ParameterServerStrategy
    return kind(scheme, run, device=device, clock=clock, pace=pace, split=split)
