"""The parameter-server strategy in anybody's plain Trainer: no room to the right of cluster/."""

import warnings
from dataclasses import asdict

import torch
import torch.distributed as dist
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError

from paceline.clock.run_spec import RunSpec
from paceline.clock.wall.rule_strategy import RuleStrategy
from paceline.clock.wall.server import serve
from paceline.errors import SettingError
from paceline.exchange.process_group import join, leave
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.sync_parameter_server import SyncParameterServer

STEPS, WORKERS = 40, 2


class Anybodys(LightningModule):
    """A line through points, by least squares."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(2, 1, dtype=torch.float64)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return nn.functional.mse_loss(self.line(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Logging(Anybodys):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss


def loader():
    """Its own sampler and shuffling, eight batches per epoch."""
    inputs = torch.randn(32, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = inputs @ torch.tensor([[2.0], [-1.0]], dtype=torch.float64) + 0.5
    return DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)


def strategy(scheme, workers):
    run = RunSpec(workers, batch_size=4, num_steps=STEPS, snapshot_samples=[2 * STEPS, 4 * STEPS])
    return RuleStrategy(scheme, run)


def trainer(chosen, **options):
    quiet = {"logger": False, "enable_checkpointing": False}
    return Trainer(
        strategy=chosen,
        accelerator="cpu",
        devices=1,
        plugins=[LightningEnvironment()],
        max_epochs=-1,
        enable_progress_bar=False,
        enable_model_summary=False,
        **quiet | options,
    )


def writing(folder):
    """Options of a Trainer whose files tell which worker wrote them, in one folder for all."""
    name = f"worker{dist.get_rank()}"
    kept = ModelCheckpoint(folder, filename=name, every_n_train_steps=4)
    return {
        "enable_checkpointing": True,
        "callbacks": [kept],
        "logger": CSVLogger(folder, name=f"log of {name}"),
        "log_every_n_steps": 4,
    }


def train(folder):
    """Two workers and a server; `folder` is for the files of both workers."""
    scheme = AsyncParameterServer(servers=1)
    join(20, "cpu")
    if dist.get_rank() == WORKERS:
        seen = asdict(serve(scheme))
    else:
        warnings.simplefilter("ignore")
        torch.manual_seed(1 + dist.get_rank())  # worker 0's weights are everybody's first
        chosen, module = strategy(scheme, WORKERS), Logging()
        run = trainer(chosen, **writing(folder))
        run.fit(module, loader())
        snapshots = chosen.finish()
        seen = {
            "steps": run.global_step,
            "snapshots": [(s.updates, s.weights[0].tolist()) for s in snapshots],
        }
    leave()
    return seen


class Measured(Anybodys):
    """It stops early, worker 0 before worker 1, and logs a metric of torchmetrics."""

    def __init__(self):
        super().__init__()
        self.error = MeanSquaredError()

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.error(self.line(inputs).contiguous(), targets)
        self.log("error", self.error)

    test_step = validation_step


def measure():
    """Two workers that stop early and a server, then tests of both."""
    scheme = AsyncParameterServer(servers=1)
    join(20, "cpu")
    if dist.get_rank() == WORKERS:
        seen = asdict(serve(scheme))
    else:
        warnings.simplefilter("ignore")
        chosen, module = strategy(scheme, WORKERS), Measured()
        rank = dist.get_rank()
        stop = EarlyStopping("error", patience=1, divergence_threshold=-1.0 if rank == 0 else None)
        run = trainer(chosen, callbacks=[stop], num_sanity_val_steps=0)
        run.fit(module, loader(), loader())
        chosen.finish()
        (found,) = run.test(module, loader(), verbose=False)
        seen = {"steps": run.global_step, "error": found["error"]}
        seen["again"] = _refusal_of(run)
    leave()
    return seen


def tested(folder):
    """Two workers, of which each then tests the best checkpoint with weights that it forgot."""
    join(20, "cpu")
    if dist.get_rank() == WORKERS:
        serve(AsyncParameterServer(servers=1))
        leave()
        return None
    warnings.simplefilter("ignore")
    chosen, module = strategy(AsyncParameterServer(servers=1), WORKERS), Measured()
    kept = ModelCheckpoint(folder, every_n_train_steps=1 + dist.get_rank())
    run = trainer(chosen, enable_checkpointing=True, callbacks=[kept])
    run.fit(module, loader())
    chosen.finish()
    nn.init.zeros_(module.line.weight)
    run.test(dataloaders=loader(), verbose=False)
    leave()
    return kept.best_model_path, module.line.weight.tolist()


def refused(precisions):
    """What is said of each precision, of clipping, and of a checkpoint to go on from."""
    warnings.simplefilter("ignore")
    join(20, "cpu")
    scheme, clipped = AsyncParameterServer(servers=1), SyncParameterServer(servers=1)
    return [
        *(_refusal_of(trainer(strategy(scheme, 1), precision=each)) for each in precisions),
        _refusal_of(trainer(strategy(clipped, WORKERS), gradient_clip_val=1)),
        _refusal_of(trainer(strategy(scheme, 1)), ckpt_path="one.ckpt"),
    ]


def _refusal_of(run, **options):
    try:
        run.fit(Anybodys(), loader(), **options)
    except SettingError as error:
        return str(error)
    return None
