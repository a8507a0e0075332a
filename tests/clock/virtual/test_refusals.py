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
from tests.clock.wall.test_standalone import Anybodys, loader


class Manual(Anybodys):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class WithLBFGS(Anybodys):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


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


SIX = TensorDataset(torch.zeros(6))


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        (Manual, {}, "model: manual optimization"),
        (WithLBFGS, {}, "model: the virtual clock applies one optimizer that .*, not LBFGS"),
        (Anybodys, {"precision": "bf16-true"}, r"training\.precision: bf16-true"),
        (Anybodys, {"accumulate_grad_batches": 2}, "accumulate_grad_batches: "),
        (Anybodys, {"overfit_batches": 2}, "overfit_batches: "),
        (Anybodys, {"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs: "),
        (Anybodys, {"callbacks": [StochasticWeightAveraging(0.1)]}, "callbacks: Stochastic"),
        (Anybodys, {"callbacks": [EMAWeightAveraging()]}, "callbacks: EMAWeightAveraging"),
        (Anybodys, {"gradient_clip_val": 1}, r"training\.gradient_clip_val: .* SyncAllReduce"),
        (Anybodys, DataLoader(Endless(), 2), "data: .* map-style data, not from DataLoader"),
        (Anybodys, DataLoader(SIX, 2, sampler=SubsetRandomSampler([0, 3])), "data: SubsetRandom"),
        (
            Anybodys,
            DataLoader(SIX, 2, sampler=RandomSampler(SIX, True)),
            "data: RandomSampler choo",
        ),
        (Anybodys, range(8), "data: .* map-style data, not from range"),
        (Anybodys, DataLoader(SIX, batch_size=None), "batch_size: "),
    ],
)
def test_modules_trainers_and_loaders(module, options, said):
    options = options if isinstance(options, dict) else {"data": options}
    with pytest.raises(SettingError, match=said):
        fit(module(), **options)


@pytest.mark.parametrize(
    ("scheme", "workers", "said"),
    [
        (PostLocalSGD(2, 0.5), 2, "num_steps: .* its length is needed"),
        (SyncThenAsync(1, 0.5), 2, "num_steps: .* its length is needed"),
        ("sync_allreduce", 2, r"scheme: \w+ has no virtual form"),
        (Telepathy(), 2, r"scheme: \w+ has no virtual form"),
        *(
            (SyncAllReduce(), k, "workers: a whole number of at least 1")
            for k in (0, -1, 1.5, True)
        ),
    ],
)
def test_schemes_and_workers(scheme, workers, said):
    with pytest.raises(SettingError, match=f"^{said}"):
        VirtualStrategy(scheme, RunSpec(workers))


class WithTest(Anybodys):
    def test_step(self, batch, batch_idx):
        self.log("loss", self.training_step(batch, batch_idx))


def test_a_module_is_tested_before_and_after_it_trains_and_trains_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer, module = trainer_of(VirtualStrategy(SyncAllReduce(), RunSpec(2))), WithTest()
        (before,) = trainer.test(module, loader(), verbose=False)
        trainer.fit(module, loader())
        (after,) = trainer.test(module, loader(), verbose=False)
        assert 0 < after["loss"] < before["loss"]
        trained = module.line.weight.detach().clone()
        with pytest.raises(SettingError, match=r"^strategy: it has trained"):
            trainer.fit(module, loader())
    assert torch.equal(module.line.weight, trained)
