"""Anybody's Trainer on a virtual cluster: loops, callbacks, schedulers; and what it refuses."""

import warnings
from functools import partial

import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import (
    BackboneFinetuning,
    EMAWeightAveraging,
    LearningRateMonitor,
    StochasticWeightAveraging,
)
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.testing import assert_close
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import VirtualStrategy, draw_from
from paceline.data.order import SampleStream
from paceline.errors import SettingError
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.rule import AbstractScheme, Apply
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync
from paceline.timing.step_times import StepTimes
from tests.clock.virtual.trained import trainer_of
from tests.clock.wall.test_standalone import Anybodys, loader

SCHEMES = [SyncAllReduce(), SyncParameterServer(2), AsyncParameterServer(2), LocalSGD(3)]
SEED = 1
JITTERED = StepTimes(jitter=1, seed=3)


class Sets(Callback):
    """The rate of the group, to what follows from the number of steps before."""

    def __init__(self, rate_of):
        self._rate_of = rate_of

    def on_train_batch_start(self, trainer, module, *_):
        trainer.optimizers[0].param_groups[0]["lr"] = self._rate_of(trainer.global_step)


class Warming(Anybodys):
    """The idiom of Lightning's own pages."""

    def optimizer_step(self, epoch, batch_idx, optimizer, closure):
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step(closure=closure)


class Scheduled(Anybodys):
    def __init__(self, make, interval="step", optimizer=torch.optim.SGD):
        super().__init__()
        self._make, self._interval = make, interval
        self._optimizer = optimizer

    def configure_optimizers(self):
        optimizer = self._optimizer(self.parameters(), lr=0.1)
        chosen = {"scheduler": self._make(optimizer), "interval": self._interval}
        return {"optimizer": optimizer, "lr_scheduler": chosen}


def fit(module, scheme, workers, callbacks=(), epochs=2, validation=(), data=None, **options):
    """The strategy, and all weights after so many passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = RunSpec(num_workers=workers, seed=SEED)
        strategy = VirtualStrategy(scheme, run, step_times=JITTERED)
        trainer = trainer_of(strategy, max_epochs=epochs, callbacks=[*callbacks], **options)
        trainer.fit(module, loader() if data is None else data, *validation)
    return strategy, torch.cat([each.detach().flatten() for each in module.parameters()])


def made(module, *arguments, **options):
    torch.manual_seed(5)
    return module(*arguments, **options)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda each: type(each).__name__)
def test_a_rate_of_0_moves_nothing(scheme):
    for module, callbacks in ((Anybodys, [Sets(lambda _: 0.0)]), (Warming, [])):
        before = torch.cat([each.detach().flatten() for each in made(module).parameters()])
        _, after = fit(made(module), scheme, 3, callbacks)
        assert torch.equal(before, after)


@pytest.mark.parametrize("kind", [partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW])
def test_one_worker_is_plain_lightning(kind):
    """With a scheduler that cycles the rate and the momentum, or beta."""

    def cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=16)

    _, weights = fit(made(Scheduled, cycle, optimizer=kind), AsyncParameterServer(2), 1)
    expected = bare(made(Scheduled, cycle, optimizer=kind))
    assert_close(weights, expected, rtol=1e-12, atol=1e-14)


def bare(module):
    """The same batches in a loop without Lightning."""
    found = module.configure_optimizers()
    optimizer, scheduler = found["optimizer"], found["lr_scheduler"]["scheduler"]
    draw, _ = draw_from(loader(), RunSpec(1, seed=SEED))
    for n in range(16):
        optimizer.zero_grad()
        inputs, targets = draw(0, n)
        nn.functional.mse_loss(module.line(inputs), targets).backward()
        optimizer.step()
        if n < 15:
            scheduler.step()
    return torch.cat([each.detach().flatten() for each in module.parameters()])


def halved(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5 ** (n // 4))


def test_the_monitor_shows_the_rates_that_are_applied(tmp_path):
    options = {"logger": CSVLogger(tmp_path, name=""), "log_every_n_steps": 1}
    module = made(Scheduled, halved)
    fit(module, SyncAllReduce(), 4, [LearningRateMonitor()], epochs=1, **options)
    lines = (tmp_path / "version_0/metrics.csv").read_text().split()
    column = lines[0].split(",").index("lr-SGD")
    logged = [line.split(",")[column] for line in lines[1:]]
    assert [float(each) for each in logged if each] == [0.1] * 4 + [0.05] * 4


class Frozen(Anybodys):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(2, 2, dtype=torch.float64)

    def configure_optimizers(self):
        trained = [each for each in self.parameters() if each.requires_grad]
        return torch.optim.SGD(trained, lr=0.1)


def test_weights_that_come_later_are_refused_by_name():
    with pytest.raises(SettingError, match=r"^model: the optimizer received weights during"):
        fit(Frozen(), SyncAllReduce(), 2, [BackboneFinetuning(1, lambda _: 1.0, verbose=False)])


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
    module = made(Validated)
    strategy, _ = fit(module, scheme, 4, epochs=20, validation=[loader()], num_sanity_val_steps=0)
    assert len(module.held) == 20
    run = strategy.execution
    # of 160 steps some may be under way when the last epoch ends
    assert 160 - 4 < sum(worker.num_steps for worker in run.workers) <= 160
    line = [*module.line.weight.detach().flatten().tolist(), float(module.line.bias.detach())]
    assert line == pytest.approx([2.0, -1.0, 0.5], abs=0.05)
    held = torch.cat([each.detach().flatten() for each in strategy.held_weights])
    assert_close(held, run.shared().weights[0])
    if not scheme.servers:
        means = torch.stack([worker.statistics for worker in run.workers]).mean(0)
        normalised = module.normalised
        assert_close(torch.cat([normalised.running_mean, normalised.running_var]), means)


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


class Choosing(AbstractScheme):
    def step(self, worker):
        if worker.gradient.norm() >= 0:
            yield Apply(worker.gradient)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([])


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
        fit(module(), SyncAllReduce(), 2, **options)


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


def test_a_rule_that_chooses_by_values_is_refused():
    """What happens when is decided before any value is known."""
    with pytest.raises(SettingError, match=r"^scheme: its rule chooses by the values"):
        fit(Anybodys(), Choosing(), 2)


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
