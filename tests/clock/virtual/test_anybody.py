"""The strategy in anybody's Trainer, with a DataLoader and a validation loop of its own."""

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import VirtualStrategy, draw_from
from paceline.data.order import SampleStream
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.step_times import StepTimes
from tests.clock.virtual.trained import trainer_of
from tests.clock.wall.alone import Anybodys, loader


class Validated(Anybodys):
    def __init__(self):
        super().__init__()
        self.normalised = nn.BatchNorm1d(2, dtype=torch.float64)
        self.held = []

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return nn.functional.mse_loss(self.line(inputs + 0 * self.normalised(inputs)), targets)

    def validation_step(self, batch, batch_idx):
        if batch_idx == 0:
            self.held.append(self.line.weight.detach().clone())


@pytest.mark.parametrize("scheme", [SyncAllReduce(), AsyncParameterServer(2)])
def test_it_trains_and_validates_the_shared_weights(scheme):
    strategy = VirtualStrategy(scheme, RunSpec(4), step_times=StepTimes(jitter=0.3))
    torch.manual_seed(0)
    module = Validated()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trainer_of(strategy, num_sanity_val_steps=0)
        trainer.fit_loop.max_epochs = 20
        trainer.fit(module, loader(), loader())
    assert len(module.held) == 20
    # of 160 steps some may be under way when the last epoch ends
    assert 160 - 4 < sum(worker.num_steps for worker in strategy.clock.workers) <= 160
    found = [*module.line.weight.detach().flatten().tolist(), float(module.line.bias.detach())]
    assert found == pytest.approx([2.0, -1.0, 0.5], abs=0.05)
    shared = strategy.clock.shared()
    assert_close(
        torch.cat([w.detach().flatten() for w in strategy.held_weights]), shared.weights[0]
    )
    means = torch.stack([worker.statistics.vector for worker in strategy.clock.workers]).mean(0)
    if strategy.clock.servers is None:
        assert_close(
            torch.cat([module.normalised.running_mean, module.normalised.running_var]), means
        )


def test_workers_draw_each_sample_once_in_a_pass():
    """Batch n of worker k is batch 3 n + k of the stream: two passes of 24 samples."""
    rows = torch.arange(24)
    draw, length = draw_from(DataLoader(TensorDataset(rows), batch_size=4), RunSpec(3, seed=7))
    batches = [draw(worker, n)[0].tolist() for n in range(4) for worker in range(3)]
    assert length == 6
    for number in range(2):
        drawn = [each for batch in batches[6 * number : 6 * number + 6] for each in batch]
        assert drawn == SampleStream(24, 7).indices(24 * number, 24).tolist()
        assert sorted(drawn) == rows.tolist()
