"""The parameter-server strategy outside the project's own training."""

import itertools
import os
import warnings
from dataclasses import asdict

import pytest
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
from paceline.clock.wall import rule_links
from paceline.clock.wall.rule_strategy import RuleStrategy
from paceline.clock.wall.server import serve
from paceline.errors import SettingError
from paceline.exchange.process_group import STORE, join, leave
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.sync_parameter_server import SyncParameterServer
from tests.launching import launch

STEPS, WORKERS = 40, 2


class Anybodys(LightningModule):
    """A line through points, by least squares, which logs its loss and a metric of torchmetrics."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(2, 1, dtype=torch.float64)
        self.error = MeanSquaredError()

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.line(inputs), targets)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.error(self.line(inputs).contiguous(), targets)
        self.log("error", self.error)

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


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
    """Two workers; `folder` is for the files of both."""
    torch.manual_seed(1 + dist.get_rank())  # worker 0's weights are everybody's first
    chosen, module = strategy(AsyncParameterServer(servers=1), WORKERS), Anybodys()
    run = trainer(chosen, **writing(folder))
    run.fit(module, loader())
    snapshots = [(each.updates, each.weights[0].tolist()) for each in chosen.finish()]
    return {"steps": run.global_step, "snapshots": snapshots}


def measure(folder):
    """Two workers that stop early, worker 0 before worker 1; then tests of both."""
    chosen, module = strategy(AsyncParameterServer(servers=1), WORKERS), Anybodys()
    threshold = -1.0 if dist.get_rank() == 0 else None
    stop = EarlyStopping("error", patience=1, divergence_threshold=threshold)
    run = trainer(chosen, callbacks=[stop], num_sanity_val_steps=0)
    run.fit(module, loader(), loader())
    chosen.finish()
    (found,) = run.test(module, loader(), verbose=False)
    return {"steps": run.global_step, "error": found["error"], "again": _refusal_of(run)}


def load_best(folder):
    """Two workers, of which each then tests the best checkpoint with weights that it forgot."""
    chosen, module = strategy(AsyncParameterServer(servers=1), WORKERS), Anybodys()
    kept = ModelCheckpoint(folder, every_n_train_steps=1 + dist.get_rank())
    run = trainer(chosen, enable_checkpointing=True, callbacks=[kept])
    run.fit(module, loader())
    chosen.finish()
    nn.init.zeros_(module.line.weight)
    run.test(dataloaders=loader(), verbose=False)
    return kept.best_model_path, module.line.weight.tolist()


PARTS = [train, measure, load_best]


def run_parts(folder):
    """One after the other, each by two workers and a server."""
    warnings.simplefilter("ignore")
    store, seen = os.environ[STORE], []
    for part in PARTS:
        os.environ[STORE], rule_links._runs = f"{store}.{part.__name__}", itertools.count()
        join(60, "cpu")
        serves = dist.get_rank() == WORKERS
        server = AsyncParameterServer(servers=1)
        seen.append(asdict(serve(server)) if serves else part(folder / part.__name__))
        leave()
    return seen


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


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """By part: what both workers and the server return; and the folder of its files."""
    folder = tmp_path_factory.mktemp("standalone")
    found = launch(f"{__name__}:run_parts", (folder,), workers=2, servers=1, log_folder=folder)
    by_part = zip(PARTS, zip(*found, strict=True), strict=True)
    return {part: (*each, folder / part.__name__) for part, each in by_part}


def test_it_trains_in_anybodys_trainer(seen):
    first, second, server, folder = seen[train]
    assert first["steps"] + second["steps"] == server["updates"] == STEPS
    assert [updates for updates, _ in first["snapshots"] + second["snapshots"]] == [20, 40]
    assert second["snapshots"][0][1] == pytest.approx([2.0, -1.0, 0.5], abs=0.05)
    assert sorted(path.name for path in folder.iterdir()) == ["log of worker0", "worker0.ckpt"]
    kept = torch.load(folder / "worker0.ckpt", weights_only=False)
    assert kept["global_step"] == first["steps"] // 4 * 4


def test_metrics_early_stopping_and_tests_wait_for_nobody(seen):
    """Worker 0 stops after its first pass of eight batches; its granted step holds nobody."""
    first, second, server, _ = seen[measure]
    assert first["steps"] == 8
    assert first["steps"] + second["steps"] == server["updates"] <= STEPS
    assert 0 < second["error"] < 10
    for each in (first, second):
        assert each["again"].startswith("strategy: it has trained")


def test_all_workers_test_the_checkpoint_that_was_written(seen):
    *found, _, folder = seen[load_best]
    (path,) = folder.iterdir()
    kept = torch.load(path, weights_only=False)["state_dict"]["line.weight"]
    assert found == [(str(path), kept.tolist())] * 2


def test_what_a_server_cannot_honour_is_refused_by_name(tmp_path):
    precisions = ("bf16-true", "16-true")  # 16-mixed on a CPU is bf16-mixed to Lightning
    target = f"{__name__}:refused"
    (found,) = launch(target, (precisions,), workers=1, servers=0, log_folder=tmp_path)
    *said, clipping, resuming = found
    for precision, line in zip(precisions, said, strict=True):
        assert line.startswith(f"training.precision: {precision} ")
    assert clipping.startswith("training.gradient_clip_val: workers clip their own gradients")
    assert resuming.startswith("ckpt_path: one worker's file does not contain a run")
