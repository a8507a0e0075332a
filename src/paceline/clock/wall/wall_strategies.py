"""Choice of the strategy that trains a scheme on real processes."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

import torch

from paceline.clock.split_worker import SplitWorker
from paceline.clock.training_clock import TrainingClock
from paceline.clock.wall.ddp import OneWorkerStrategy, SyncAllReduceStrategy
from paceline.clock.wall.own_weights_strategy import OwnWeightsStrategy
from paceline.clock.wall.parameter_server_strategy import ParameterServerStrategy
from paceline.clock.wall.rule_strategy import most_steps
from paceline.clock.wall.shard_strategy import ShardStrategy
from paceline.clock.wall.split_all_reduce import SplitAllReduceStrategy
from paceline.clock.wall.synchronous_strategy import AbstractSynchronousStrategy
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.model.learning_rate import LearningRate
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.pace import Pace


class WallRun(TypedDict):
    """Arguments of a run for every strategy on real processes; see AbstractRuleStrategy."""

    workers: int
    batch_size: int
    num_steps: int
    snapshot_samples: Sequence[int]
    learning_rate: LearningRate | None
    clock: TrainingClock
    timeout_seconds: float
    pace: Pace | None
    sample_decay: float | None
    split: SplitWorker | None
    epoch_samples: int | None


def wall_strategy(
    scheme: AbstractScheme,
    *,
    device: torch.device,
    server_seconds: float = 0,
    seed: int = 0,
    **run: Unpack[WallRun],
) -> AbstractWallStrategy:
    """Return the strategy that trains `scheme`.

    It is Lightning's own DDP if that is equivalent, and the worker is not split.
    """
    if scheme.carried_out_by_ddp:
        return _synchronous(scheme, device, run)
    accounting, split = Accounting(scheme, run["workers"]), run["split"]
    if split is not None and not split.is_first:
        return ShardStrategy(
            split,
            workers=run["workers"],
            batch_size=run["batch_size"],
            num_batches=most_steps(accounting, run["num_steps"]),
            device=device,
            timeout_seconds=run["timeout_seconds"],
            pace=run["pace"],
        )
    kind = OwnWeightsStrategy if accounting.own_weights else ParameterServerStrategy
    return kind(scheme, device=device, server_seconds=server_seconds, seed=seed, **run)


def _synchronous(
    scheme: AbstractScheme, device: torch.device, run: WallRun
) -> AbstractSynchronousStrategy:
    if run["split"] is not None:
        strategy = SplitAllReduceStrategy(device)
    elif run["workers"] == 1:
        strategy = OneWorkerStrategy(device)
    else:
        strategy = SyncAllReduceStrategy(
            run["timeout_seconds"],
            scheme.collective,
            scheme.compression,
            paced=run["pace"] is not None,
        )
    strategy.prepare(**run)
    return strategy
