"""What a virtual cluster cannot honour is said by name, before training starts."""

import warnings

import pytest
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging, StochasticWeightAveraging
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.errors import SettingError
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_then_async import SyncThenAsync
from tests.clock.virtual.trained import trainer_of
from tests.clock.wall.alone import Anybodys, loader

SIX = TensorDataset(torch.zeros(6))


@pytest.mark.parametrize("scheme", [PostLocalSGD(2, 0.5), SyncThenAsync(1, 0.5)])
def test_who_switches_in_the_middle_must_know_the_end(scheme):
    with pytest.raises(SettingError, match=r"num_steps: .* its length is needed"):
        VirtualStrategy(scheme, RunSpec(2))
    VirtualStrategy(scheme, RunSpec(2, num_steps=8))


class Manual(Anybodys):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class WithLBFGS(Anybodys):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


class TwoOptimizers(Manual):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]


class Telepathy(AbstractScheme):
    def step(self, turn):
        yield "a thought"


class Endless(IterableDataset):
    def __iter__(self):
        return iter([])


def fit(module, data=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trainer_of(VirtualStrategy(SyncAllReduce(), RunSpec(2)), **options)
        trainer.fit(module, loader() if data is None else data)


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        (Manual, {}, "model: manual optimization"),
        (TwoOptimizers, {}, "model: manual optimization"),
        (
            WithLBFGS,
            {},
            "model: the virtual clock applies one optimizer that .*, not LBFGS",
        ),
        (Anybodys, {"precision": "bf16-true"}, r"training\.precision: bf16-true"),
        (Anybodys, {"accumulate_grad_batches": 2}, "accumulate_grad_batches: "),
        (Anybodys, {"overfit_batches": 2}, "overfit_batches: "),
        (Anybodys, {"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs: "),
        (Anybodys, {"callbacks": [StochasticWeightAveraging(0.1)]}, "callbacks: Stochastic"),
        (Anybodys, {"callbacks": [EMAWeightAveraging()]}, "callbacks: EMAWeightAveraging"),
        (Anybodys, {"gradient_clip_val": 1}, r"training\.gradient_clip_val: .* SyncAllReduce"),
    ],
)
def test_modules_and_trainers(module, options, said):
    with pytest.raises(SettingError, match=said):
        fit(module(), **options)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DataLoader(Endless(), batch_size=2), "data: .* map-style data, not from DataLoader"),
        (DataLoader(SIX, 2, sampler=SubsetRandomSampler(range(4))), "data: SubsetRandomSampler"),
        (DataLoader(SIX, 2, sampler=RandomSampler(SIX, True)), "data: RandomSampler chooses"),
        (range(8), "data: .* map-style data, not from range"),
        (DataLoader(TensorDataset(torch.zeros(4)), batch_size=None), "batch_size: "),
    ],
)
def test_loaders_that_read_ahead(data, said):
    with pytest.raises(SettingError, match=said):
        fit(Anybodys(), data)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_a_whole_number(workers):
    with pytest.raises(SettingError, match=r"^workers: a whole number of at least 1 is needed"):
        VirtualStrategy(SyncAllReduce(), RunSpec(workers))


@pytest.mark.parametrize("scheme", ["sync_allreduce", Telepathy()])
def test_schemes_without_a_virtual_form(scheme):
    with pytest.raises(SettingError, match=r"^scheme: \w+ has no virtual form"):
        VirtualStrategy(scheme, RunSpec(2))


class WithTest(Anybodys):
    def test_step(self, batch, batch_idx):
        self.log("loss", self.training_step(batch, batch_idx))


def test_a_module_is_tested_before_and_after_it_trains():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer, module = trainer_of(VirtualStrategy(SyncAllReduce(), RunSpec(2))), WithTest()
        (before,) = trainer.test(module, loader(), verbose=False)
        trainer.fit(module, loader())
        (after,) = trainer.test(module, loader(), verbose=False)
    assert 0 < after["loss"] < before["loss"]


def test_a_strategy_trains_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer, module = trainer_of(VirtualStrategy(SyncAllReduce(), RunSpec(2))), Anybodys()
        trainer.fit(module, loader())
        trained = module.line.weight.detach().clone()
        with pytest.raises(SettingError, match=r"^strategy: it has trained"):
            trainer.fit(module, loader())
    assert torch.equal(module.line.weight, trained)
