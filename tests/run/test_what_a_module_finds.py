"""A module finds the lengths of the run over all workers, on every clock, and the other workers."""

import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import lr_scheduler
from torchmetrics.classification import MulticlassAccuracy

from tests.run.own import OwnData, OwnModule, own_point
from tests.tiny import CLOCKS, run_tiny, run_together

HERE = "tests.run.test_what_a_module_finds"
EPOCHS, WORKERS = 3, 2
STEPS = EPOCHS * 48 // 4  # of all workers


def point(model, scheme="sync_allreduce", clock="virtual", **arguments):
    named = {"_target_": f"{HERE}.{model}", "lr": 0.1, **arguments}
    data = {"_target_": f"{HERE}.WithClasses"}
    return own_point(scheme, clock, data, named, training__lr=0.1)


class WithClasses(OwnData):
    num_classes = 3


class Noted(OwnModule):
    """Writes down what it has seen when training ends."""

    def __init__(self, lr, file):
        super().__init__(lr)
        self._file, self.seen = file, []

    def on_train_end(self):
        with Path(self._file).open("a") as file:
            file.write(json.dumps([os.getpid(), self.seen]) + "\n")


class Epochs(Noted):
    def on_train_epoch_start(self):
        self.seen.append(["start", self.current_epoch])

    def training_step(self, batch, batch_idx):
        self.seen.append(["step", self.current_epoch])
        return super().training_step(batch, batch_idx)

    def on_train_epoch_end(self):
        self.logger.experiment.add_scalar("epoch", self.current_epoch)
        self.log("done", 1.0)
        self.seen.append(["end", self.current_epoch])

    def on_train_end(self):
        trainer = self.trainer
        lengths = [trainer.max_epochs, trainer.num_training_batches]
        self.seen.append([*lengths, trainer.estimated_stepping_batches])
        super().on_train_end()


class Scheduled(Noted):
    """Schedules by each length that a Trainer knows."""

    def on_train_batch_start(self, batch, batch_idx):
        self.seen.append([self.global_step, self.optimizers().param_groups[0]["lr"]])

    def configure_optimizers(self):
        optimizer, total = super().configure_optimizers(), self.trainer.estimated_stepping_batches
        assert total == self.trainer.num_training_batches * self.trainer.max_epochs
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, total, cycle_momentum=False)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Meeting(Noted):
    """Meets the other workers and measures itself, as it may where they take the same steps."""

    def __init__(self, lr, file):
        super().__init__(lr, file)
        self.accuracy = MulticlassAccuracy(3)

    def training_step(self, batch, batch_idx):
        self.accuracy(self(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)
        ones = torch.ones(1)
        dist.all_reduce(ones)
        self.seen.append([int(ones), dist.get_world_size()])
        return super().training_step(batch, batch_idx)


RUNS = {
    "virtual": [
        ("Epochs", "sync_allreduce"),
        ("Epochs", "local_sgd"),
        ("Epochs", "async_parameter_server"),
        ("Scheduled", "sync_allreduce"),
    ],
    "wall": [
        ("Epochs", "async_parameter_server"),
        ("Epochs", "sync_allreduce"),
        ("Scheduled", "sync_allreduce"),
        ("Scheduled", "local_sgd"),
        ("Meeting", "sync_allreduce"),
    ],
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_module_finds_the_lengths_of_the_run_over_all_workers(clock, tmp_path):
    files = [str(tmp_path / f"{model} {scheme}") for model, scheme in RUNS[clock]]
    configs = [point(*run, clock, file=file) for run, file in zip(RUNS[clock], files, strict=True)]
    run_together(configs, tmp_path)
    for (model, scheme), file in zip(RUNS[clock], files, strict=True):
        lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
        notes = [*dict(lines).values()]  # the last of each process, after those of its trials
        assert len(notes) == (WORKERS if clock == "wall" else 1)
        if model == "Epochs":
            check_epochs(notes, waits=scheme != "async_parameter_server", clock=clock)
        elif model == "Scheduled":
            by_all = clock == "virtual" or scheme == "local_sgd"
            check_rates(notes, ahead=0 if by_all else WORKERS)
        else:
            assert notes == [[[WORKERS, WORKERS]] * (STEPS // WORKERS)] * WORKERS


def check_epochs(notes, waits, clock):
    """Epochs are passes of all workers, in order; `waits`: workers take the same steps."""
    steps = [0] * EPOCHS
    for *events, lengths in notes:
        assert lengths == [EPOCHS, STEPS // EPOCHS, STEPS]
        marks = [each for each in events if each[0] != "step"]
        every = [[mark, n] for n in range(EPOCHS) for mark in ("start", "end")]
        others_were_faster = clock == "wall" and not waits
        assert marks == (every[: len(marks)] if others_were_faster else every)
        taken = [n for mark, n in events if mark == "step"]
        assert taken == sorted(taken)
        for n in taken:
            steps[n] += 1
    assert sum(steps) == STEPS
    assert steps == [STEPS // EPOCHS] * EPOCHS or not waits


def check_rates(notes, ahead):
    """A schedule of the run's length ends with the run."""
    reference = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = lr_scheduler.OneCycleLR(reference, 0.1, STEPS, cycle_momentum=False)
    rates = []
    for _ in range(STEPS):
        rates.append(reference.param_groups[0]["lr"])
        reference.step()
        schedule.step()
    for each in notes:
        assert (each[0][0], each[-1][0]) == (0, STEPS - WORKERS)
        for step, rate in each[1:]:
            assert rate == pytest.approx(rates[step - ahead])


class BuiltLate(OwnModule):
    """Has its weights by `setup`, `configure_model` or the first images."""

    def __init__(self, lr, by):
        super().__init__(lr)
        self.line, self.by = nn.LazyLinear(3) if by == "images" else None, by

    def setup(self, stage):
        if self.by == "setup":
            data = self.trainer.datamodule
            assert len(data.train_dataloader()) == self.trainer.num_training_batches == 12
            self.line = nn.Linear(3, data.num_classes)

    def configure_model(self):
        if self.by == "configure_model" and self.line is None:
            self.line = nn.Linear(3, 3)


def test_a_module_may_build_its_weights_late(tmp_path):
    found = []
    for by in ("setup", "configure_model", "images"):
        reports, weights = run_tiny(point("BuiltLate", by=by), tmp_path)
        assert {each.num_parameters for each in reports.training} == {12}
        found.append(weights["line.weight"])
    assert torch.equal(*found[:2])
