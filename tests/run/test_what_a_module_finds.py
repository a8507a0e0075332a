"""Somebody's module means the same on real workers and on the virtual clock, or is refused."""

import copy
import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Subset
from torchmetrics.classification import MulticlassAccuracy

from paceline.errors import SettingError
from tests.run.own import OWN_TRAINING, Drawn, OwnData, OwnModule
from tests.tiny import CLOCKS, run_tiny, tiny_point

HERE = "tests.run.test_what_a_module_finds"
EPOCHS, BATCH, WORKERS = 3, 4, 2
STEPS = EPOCHS * 48 // BATCH  # of all workers


def point(model, folder, scheme="sync_allreduce", clock="virtual", data="Plain", **settings):
    return tiny_point(
        scheme,
        WORKERS,
        BATCH,
        data={"_target_": f"{HERE}.{data}", "folder": None},
        model={
            "_target_": f"{HERE}.{model}",
            "lr": 0.1,
            **({"folder": str(folder)} if issubclass(globals()[model], Noted) else {}),
            "shards": 1,
            "split": "auto",
        },
        **{"training__epochs": EPOCHS, **OWN_TRAINING, "training__lr": 0.1},
        **CLOCKS[clock],
        **settings,
    )


class Plain(OwnData):
    num_classes = 3


class Noted(OwnModule):
    """Writes down what it has seen when training ends."""

    def __init__(self, lr, folder):
        super().__init__(lr)
        self._folder, self.seen = folder, []

    def on_train_end(self):
        with (Path(self._folder) / "seen.jsonl").open("a") as file:
            file.write(json.dumps([os.getpid(), self.seen]) + "\n")


def seen(folder):
    """Notes of the run's processes, which each process has written after those of its trials."""
    lines = [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]
    return [*dict(lines).values()]


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


@pytest.mark.parametrize(
    ("scheme", "clock"),
    [
        ("sync_allreduce", "wall"),
        ("async_parameter_server", "wall"),
        ("sync_allreduce", "virtual"),
        ("local_sgd", "virtual"),
        ("async_parameter_server", "virtual"),
    ],
)
def test_epochs_are_passes_of_all_workers_on_every_clock(scheme, clock, tmp_path):
    run_tiny(point("Epochs", tmp_path, scheme, clock), tmp_path)
    notes = seen(tmp_path)
    assert len(notes) == (WORKERS if clock == "wall" else 1)
    steps = [0] * EPOCHS
    for *events, lengths in notes:
        assert lengths == [EPOCHS, STEPS // EPOCHS, STEPS]
        marks = [each for each in events if each[0] != "step"]
        every = [[mark, n] for n in range(EPOCHS) for mark in ("start", "end")]
        others_were_faster = scheme == "async_parameter_server" and clock == "wall"
        assert marks == (every[: len(marks)] if others_were_faster else every)
        assert [n for mark, n in events if mark == "step"] == sorted(
            n for mark, n in events if mark == "step"
        )
        for mark, n in events:
            steps[n] += mark == "step"
    assert sum(steps) == STEPS
    if scheme != "async_parameter_server":
        assert steps == [STEPS // EPOCHS] * EPOCHS


class Scheduled(Noted):
    """Schedules by each length that a Trainer knows."""

    def on_train_batch_start(self, batch, batch_idx):
        self.seen.append([self.global_step, self.optimizers().param_groups[0]["lr"]])

    def configure_optimizers(self):
        optimizer, total = super().configure_optimizers(), self.trainer.estimated_stepping_batches
        assert total == self.trainer.num_training_batches * self.trainer.max_epochs
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, total, cycle_momentum=False)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


@pytest.mark.parametrize(
    ("scheme", "clock"),
    [("sync_allreduce", "wall"), ("sync_allreduce", "virtual"), ("local_sgd", "wall")],
)
def test_a_schedule_of_the_run_s_length_ends_with_the_run(scheme, clock, tmp_path):
    run_tiny(point("Scheduled", tmp_path, scheme, clock), tmp_path)
    reference = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = lr_scheduler.OneCycleLR(reference, 0.1, STEPS, cycle_momentum=False)
    rates = []
    for _ in range(STEPS):
        rates.append(reference.param_groups[0]["lr"])
        reference.step()
        schedule.step()
    for notes in seen(tmp_path):
        assert notes[0][0] == 0
        assert notes[-1][0] == STEPS - WORKERS
        for step, rate in notes[1:]:
            before = step if clock == "virtual" or scheme == "local_sgd" else step - WORKERS
            assert rate == pytest.approx(rates[before])


class Teacher(OwnModule):
    """Evaluated by the moving average of its weights."""

    def __init__(self, lr):
        super().__init__(lr)
        self.teacher = copy.deepcopy(self.line).requires_grad_(False)

    def forward(self, points):
        return (self.line if self.training else self.teacher)(points)

    @torch.no_grad()
    def on_train_batch_end(self, outputs, batch, batch_idx):
        for old, new in zip(self.teacher.parameters(), self.line.parameters(), strict=True):
            old.lerp_(new, 0.2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.line.parameters(), lr=self._lr)


class Averaged(OwnModule):
    """The same by torch's own class, which counts its updates in a buffer."""

    def __init__(self, lr):
        super().__init__(lr)
        self.average = AveragedModel(self.line, multi_avg_fn=get_ema_multi_avg_fn(0.8))

    def forward(self, points):
        return (self.line if self.training else self.average)(points)

    def on_before_zero_grad(self, optimizer):
        self.average.update_parameters(self.line)

    def configure_optimizers(self):
        return torch.optim.SGD(self.line.parameters(), lr=self._lr)


class Queue(OwnModule):
    """Keeps the last points of its worker, as MoCo does, and learns from them."""

    def __init__(self, lr):
        super().__init__(lr)
        self.register_buffer("queue", torch.zeros(8, 3))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def training_step(self, batch, batch_idx):
        points, _ = batch
        loss = super().training_step(batch, batch_idx)["loss"]
        loss = loss + (self(points) @ self.queue.T.clone()).square().mean()
        place = int(self.place)
        self.queue[place : place + len(points)] = points.detach()
        self.place[0] = (place + len(points)) % len(self.queue)
        return loss


@pytest.mark.parametrize(
    ("model", "scheme"),
    [
        ("Teacher", "local_sgd"),
        ("Averaged", "sync_allreduce"),
        ("Queue", "sync_allreduce"),
        ("Queue", "local_sgd"),
    ],
)
def test_what_a_worker_keeps_is_evaluated_alike_on_both_clocks(model, scheme, tmp_path):
    curves = []
    for clock in CLOCKS:
        folder = tmp_path / clock
        folder.mkdir()
        exact = {"training__precision": "64-true", "measurement__evaluations": 6}
        config = point(model, folder, scheme, clock)
        for name, value in exact.items():
            group, _, key = name.partition("__")
            config[group][key] = value
        reports, _ = run_tiny(config, folder)
        scores = [score for each in reports.training for score in each.scores]
        curves.append([each.loss for each in sorted(scores, key=lambda score: score.samples)])
    assert len(set(curves[0])) == 6
    assert curves[0] == pytest.approx(curves[1], rel=1e-9)


class BuiltLate(OwnModule):
    def __init__(self, lr):
        super().__init__(lr)
        self.line = None


class BySetup(BuiltLate):
    def setup(self, stage):
        assert self.line is None
        self.line = nn.Linear(3, self.trainer.datamodule.num_classes)


class ByConfigureModel(BuiltLate):
    def configure_model(self):
        if self.line is None:
            self.line = nn.Linear(3, 3)


class ByFirstImages(BuiltLate):
    def __init__(self, lr):
        super().__init__(lr)
        self.line = nn.LazyLinear(3)


def test_a_module_may_build_its_weights_late(tmp_path):
    found = []
    for model in ("BySetup", "ByConfigureModel", "ByFirstImages"):
        folder = tmp_path / model
        folder.mkdir()
        reports, weights = run_tiny(point(model, folder), folder)
        assert {each.num_parameters for each in reports.training} == {12}
        found.append(weights["line.weight"])
    assert torch.equal(*found[:2])


class Nothing(BuiltLate):
    pass


class LateLayer(OwnModule):
    def on_fit_start(self):
        self.more = nn.Linear(3, 3)


class OneLogit(OwnModule):
    def forward(self, points):
        return self.line(points)[:, :1]

    def training_step(self, batch, batch_idx):
        points, labels = batch
        loss = nn.functional.binary_cross_entropy_with_logits
        return loss(self(points).squeeze(1), (labels > 0).float())


class TwoLogits(OneLogit):
    """Two for three classes, of which the first images have two."""

    def forward(self, points):
        return self.line(points)[:, :2]

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return nn.functional.cross_entropy(self(points), labels.clamp(max=1))


class Squeezing(OwnModule):
    """Forgets that a batch may have one image."""

    def forward(self, points):
        return self.line(points).squeeze()


class Swapping(Teacher):
    def forward(self, points):
        return self.line(points)

    def on_validation_start(self):
        self.kept = copy.deepcopy(self.line.state_dict())
        self.line.load_state_dict(self.teacher.state_dict())

    def on_validation_end(self):
        self.line.load_state_dict(self.kept)


class Flagged(Teacher):
    by_teacher = False

    def forward(self, points):
        return (self.teacher if self.by_teacher else self.line)(points)

    def on_test_epoch_start(self):
        self.by_teacher = True


class ByWorld(OwnModule):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self._lr * self.trainer.world_size)


class ByLoader(OwnModule):
    def configure_optimizers(self):
        self.trainer.fit_loop.setup_data()
        return super().configure_optimizers()


class Gathering(OwnModule):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)["loss"]
        dist.all_reduce(loss.detach())
        return loss


class GatheringBySelf(OwnModule):
    def training_step(self, batch, batch_idx):
        self.all_gather(batch[1])
        return super().training_step(batch, batch_idx)


class OfRank(OwnModule):
    def on_train_epoch_end(self):
        if dist.get_rank() == 0:
            print("epoch")


class Manual(OwnModule):
    def __init__(self, lr):
        super().__init__(lr)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx)["loss"])
        optimizer.step()


DIFFERS = "is not that of plain Lightning"
REFUSED = {
    "Nothing": "Nothing has no weights after",
    "LateLayer": "adds weights after setup",
    "OneLogit": "one logit cannot",
    "TwoLogits": "there is a label 2, and 2 logits",
    "Swapping": "hooks such as on_validation_start change what forward returns",
    "Flagged": "hooks such as on_test_start change what forward returns",
    "ByWorld": "trainer.world_size has no meaning in a run",
    "ByLoader": "trainer.fit_loop has no meaning in a run",
    "Gathering": "it calls torch.distributed.all_reduce",
    "GatheringBySelf": "it calls all_gather",
    "OfRank": "it calls torch.distributed.get_rank",
    "Manual": "manual optimization cannot be driven",
}


@pytest.mark.parametrize("model", REFUSED)
def test_what_cannot_be_honoured_is_refused_before_training(model, tmp_path):
    with pytest.raises(SettingError, match=rf"^model: .*({REFUSED[model]})"):
        run_tiny(point(model, tmp_path), tmp_path)


class LastOfOne(Plain):
    """Has one image in the last batch of its test set."""

    def test_dataloader(self):
        return DataLoader(Subset(Drawn(), range(17)), batch_size=16)


def test_the_last_batch_is_rehearsed(tmp_path):
    run_tiny(point("Squeezing", tmp_path), tmp_path)
    with pytest.raises(SettingError, match=r"maps 1 images to \[3\]"):
        run_tiny(point("Squeezing", tmp_path, data="LastOfOne"), tmp_path)


@pytest.mark.parametrize("model", ["Gathering", "Manual"])
def test_servers_and_real_workers_refuse_the_same(model, tmp_path):
    with pytest.raises(SettingError, match=rf"^model: .*({REFUSED[model]})"):
        run_tiny(point(model, tmp_path, "async_parameter_server", "wall"), tmp_path)


class Meeting(Noted):
    """Meets the other workers and measures itself, as it may where they take the same steps."""

    def __init__(self, lr, folder):
        super().__init__(lr, folder)
        self.accuracy = MulticlassAccuracy(3)

    def training_step(self, batch, batch_idx):
        self.accuracy(self(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)
        ones = torch.ones(1)
        dist.all_reduce(ones)
        self.seen.append([int(ones), dist.get_world_size()])
        return super().training_step(batch, batch_idx)


def test_a_group_of_workers_alone_can_meet(tmp_path):
    run_tiny(point("Meeting", tmp_path, "sync_allreduce", "wall"), tmp_path)
    for notes in seen(tmp_path):
        assert notes == [[WORKERS, WORKERS]] * (STEPS // WORKERS)


class Frozen(OwnModule):
    """Trains a layer only from the second epoch on."""

    def __init__(self, lr):
        super().__init__(lr)
        self.trunk = nn.Linear(3, 3)

    def forward(self, points):
        return self.line(self.trunk(points))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        features = self.trunk(points)
        if self.current_epoch == 0:
            features = features.detach()
        return nn.functional.cross_entropy(self.line(features), labels)


def test_weights_without_a_gradient_are_as_on_the_other_clock(tmp_path):
    found = []
    for clock in CLOCKS:
        config = point("Frozen", tmp_path, clock=clock)
        config["training"]["precision"] = "64-true"
        found.append(run_tiny(config, tmp_path)[1])
    for name, weight in found[0].items():
        torch.testing.assert_close(weight, found[1][name], rtol=1e-9, atol=0)
