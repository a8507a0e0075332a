"""Forms in which public code of the field is written mean the same on both clocks, or are refused.

Each module is a form that is common in repositories, as small as it can be.
"""

import collections
import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
from pytorch_lightning import seed_everything
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from tests.run.own import OWN_TRAINING, Drawn, OwnData, OwnModule
from tests.tiny import CLOCKS, run_tiny, tiny_point

HERE = "tests.run.test_public_code"


def point(model, clock="virtual", scheme="sync_allreduce", data="OwnData", **settings):
    own = HERE if data in globals() and data != "OwnData" else "tests.run.own"
    exact = {**OWN_TRAINING, "training__lr": 0.1, "training__precision": "64-true"}
    return tiny_point(
        scheme,
        2,
        4,
        data={"_target_": f"{own}.{data}", "folder": None},
        model={"_target_": f"{HERE}.{model}", "lr": 0.1, "shards": 1, "split": "auto"},
        **{**exact, "measurement__evaluations": 6, **CLOCKS[clock], **settings},
    )


def curve(folder, *arguments, **settings):
    folder.mkdir()
    reports, _ = run_tiny(point(*arguments, **settings), folder)
    scores = [score for each in reports.training for score in each.scores]
    return [each.loss for each in sorted(scores, key=lambda score: score.samples)]


class Net(OwnModule):
    def __init__(self, lr):
        super().__init__(lr)
        self.line = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return cross_entropy(self(points), labels)


class Student(Net):
    """Evaluated by a teacher, which is frozen and in the optimizer with all other parameters."""

    def __init__(self, lr):
        super().__init__(lr)
        self.teacher = copy.deepcopy(self.line).requires_grad_(False)

    def forward(self, points):
        return (self.line if self.training else self.teacher)(points)

    def follow(self):
        for old, new in zip(self.teacher.parameters(), self.line.parameters(), strict=True):
            old.data = old.data * 0.8 + new.data * 0.2


class Byol(Student):
    def on_before_zero_grad(self, optimizer):
        self.follow()


class MoCo(Student):
    """Has a loss by the teacher, whose weights follow at the beginning of a step."""

    def training_step(self, batch, batch_idx):
        self.follow()
        with torch.no_grad():
            target = self.teacher(batch[0])
        loss = super().training_step(batch, batch_idx)
        return loss + (self.line(batch[0]) - target).square().mean()


class Ema(Student):
    """As packages do it, which copy whole states."""

    def on_train_batch_end(self, *_):
        pairs = zip(
            self.teacher.state_dict().values(), self.line.state_dict().values(), strict=True
        )
        for old, new in pairs:
            old.copy_(0.8 * old + 0.2 * new)


class LateEma(Ema):
    def on_train_batch_end(self, *_):
        if self.global_step >= 12:
            super().on_train_batch_end()


class Centred(Net):
    """Replaces its buffer, as DINO does."""

    def __init__(self, lr):
        super().__init__(lr)
        self.register_buffer("center", torch.zeros(3), persistent=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        logits = self(points)
        self.center = 0.9 * self.center + 0.1 * logits.detach().mean(0)
        self.steps = self.steps + 1
        return cross_entropy(logits - self.center, labels) * (self.steps / 20).clamp(max=1)


class CentredInPlace(Centred):
    def on_train_batch_start(self, *_):
        self.center.data = 0.5 * self.center


class Replaced(Student):
    """Puts new parameters in the place of the teacher's."""

    def on_before_zero_grad(self, optimizer):
        for n in (0, 2):
            mean = 0.8 * self.teacher[n].weight + 0.2 * self.line[n].weight
            self.teacher[n].weight = nn.Parameter(mean.detach(), requires_grad=False)


class Normalised(Student):
    """Its teacher has statistics of its own, which follow at once."""

    def __init__(self, lr):
        super().__init__(lr)
        self.line[1] = nn.BatchNorm1d(5)
        self.teacher[1] = nn.BatchNorm1d(5).requires_grad_(False)

    def on_train_batch_end(self, *_):
        self.follow()
        for old, new in zip(self.teacher.buffers(), self.line.buffers(), strict=True):
            old.copy_(new)


class Temperature(Net):
    """Changes a parameter by hand."""

    def __init__(self, lr):
        super().__init__(lr)
        self.temperature = nn.Parameter(torch.ones(()), requires_grad=False)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        self.temperature.data.mul_(0.99)
        return cross_entropy(self(points) * self.temperature, labels)


class Masked(Net):
    """Replaces gradients, and drops those of a layer at first."""

    def on_after_backward(self):
        for weight in self.parameters():
            weight.grad = weight.grad - weight.grad.mean()

    def on_before_optimizer_step(self, optimizer):
        if self.current_epoch < 1:
            self.line[2].weight.grad = None


class Guarding(Net):
    """Looks at its gradients, and refuses large ones."""

    def on_before_optimizer_step(self, optimizer):
        norm = sum(weight.grad.norm() for weight in self.parameters())
        self.log("norm", norm)
        assert norm < 1000


class FrozenDecay(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.line[0].requires_grad_(False)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self._lr, weight_decay=0.1)


class FrozenNorm(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.line[1] = nn.BatchNorm1d(5)

    def train(self, mode=True):
        super().train(mode)
        self.line[1].eval()
        return self


class Parametrised(Net):
    def __init__(self, lr):
        super().__init__(lr)
        nn.utils.parametrizations.spectral_norm(self.line[0])


class Groups(Net):
    """Tied weights, and no decay of biases."""

    def __init__(self, lr):
        super().__init__(lr)
        self.line = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        self.line[2].weight = self.line[0].weight

    def configure_optimizers(self):
        decayed = [weight for weight in self.parameters() if weight.ndim > 1]
        others = [weight for weight in self.parameters() if weight.ndim == 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others}]
        return torch.optim.SGD(groups, lr=self._lr)


class Chained(Net):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        warmup = lr_scheduler.LinearLR(optimizer, 0.1, 1, 9)
        rest = lr_scheduler.CosineAnnealingLR(optimizer, 27)
        by_step = lr_scheduler.SequentialLR(optimizer, [warmup, rest], [9])
        return [optimizer], [
            {"scheduler": by_step, "interval": "step", "frequency": 2},
            lr_scheduler.StepLR(optimizer, 2),
        ]


class ByItsLoader(Net):
    """Counts the steps of an epoch by the loader of its data."""

    def configure_optimizers(self):
        optimizer, trainer = super().configure_optimizers(), self.trainer
        steps = len(trainer.datamodule.train_dataloader())
        assert steps == trainer.num_training_batches
        cycle = {"max_lr": 0.1, "epochs": trainer.max_epochs, "steps_per_epoch": steps}
        schedule = lr_scheduler.OneCycleLR(optimizer, cycle_momentum=False, **cycle)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class RateByStep(Net):
    def on_train_batch_start(self, *_):
        for group in self.optimizers().param_groups:
            group["lr"] = self._lr * min(1, (self.trainer.global_step + 1) / 16)


class RateByEpoch(Net):
    def on_train_epoch_start(self):
        for group in self.optimizers().param_groups:
            group["lr"] = self._lr * 0.5**self.current_epoch


class Logging(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.mean, self.losses = MeanMetric(), []

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.mean.update(loss)
        self.losses.append(loss.detach())
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return {"loss": loss, "more": batch}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        assert outputs["more"] is not None

    def on_train_epoch_end(self):
        self.log("mean", self.mean.compute())
        self.logger.experiment.log({"losses": torch.stack(self.losses)})
        self.losses.clear()


class Own(Classifier):
    def __init__(self, lr):
        network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
        super().__init__(network, lambda weights: torch.optim.SGD(weights, lr=lr))


class OwnByEpoch(Own):
    """Trains by the number of the epoch, and is evaluated by a teacher."""

    def __init__(self, lr):
        super().__init__(lr)
        self.teacher = copy.deepcopy(self.network).requires_grad_(False)

    def forward(self, points):
        return (self.network if self.training else self.teacher)(points)

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * (1 + self.current_epoch) / self.trainer.max_epochs

    def on_train_batch_end(self, *_):
        for old, new in zip(self.teacher.parameters(), self.network.parameters(), strict=True):
            old.data = old.data * 0.8 + new.data * 0.2


class Softened(OwnData):
    """Mixes the images of a batch, so that labels are shares, and has labels of 32 bits."""

    def train_dataloader(self):
        def mixed(items):
            points, labels = torch.utils.data.default_collate(items)
            shares = nn.functional.one_hot(labels, 3).double()
            return (points + points.flip(0)) / 2, (shares + shares.flip(0)) / 2

        return DataLoader(Drawn(), batch_size=5, shuffle=True, collate_fn=mixed, drop_last=True)

    def val_dataloader(self):
        def narrow(items):
            points, labels = torch.utils.data.default_collate(items)
            return points, labels.to(torch.int32)

        return DataLoader(Drawn(), batch_size=5, collate_fn=narrow)


EQUAL = ["Byol"]
_EQUAL_TOO = """
    OwnByEpoch Replaced Normalised Guarding Centred MoCo Ema LateEma CentredInPlace Temperature
    Masked FrozenDecay FrozenNorm Parametrised Groups Chained ByItsLoader RateByStep RateByEpoch
    Logging Penalised Net:Softened"""
EQUAL_TOO = _EQUAL_TOO.split()


@pytest.mark.parametrize(
    "case", [*EQUAL, *(pytest.param(each, marks=pytest.mark.slow) for each in EQUAL_TOO)]
)
def test_it_means_the_same_on_both_clocks(case, tmp_path):
    model, _, data = case.partition(":")
    decay = {"FrozenDecay": 0.1, "Groups": 0.1}.get(model, 0)
    settings = {"data": data or "OwnData", "training__weight_decay": decay}
    settings["training__milestones"] = []
    real, virtual = (curve(tmp_path / clock, model, clock, **settings) for clock in CLOCKS)
    assert len(set(real)) >= 5  # the teacher of LateEma waits
    assert virtual == pytest.approx(real, rel=1e-9)


class Unfreezing(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.line[0].requires_grad_(False)

    def on_train_epoch_start(self):
        if self.current_epoch == self.trainer.max_epochs - 1:
            self.line[0].requires_grad_(True)


class UnfreezingInTheMiddle(Unfreezing):
    def on_train_epoch_start(self):
        if self.current_epoch == 1:
            self.line[0].requires_grad_(True)


class Stopping(Net):
    def on_train_epoch_end(self):
        self.trainer.should_stop = True


class Leaving(Net):
    def on_train_batch_start(self, batch, batch_idx):
        return -1 if batch_idx >= 1 else None


class LeavingLater(Net):
    def on_train_batch_start(self, batch, batch_idx):
        return -1 if batch_idx >= 3 else None


class Seeding(Net):
    def on_fit_start(self):
        seed_everything(42)


class CountingWorkers(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.num_workers = dist.get_world_size() if dist.is_initialized() else 1


class CountingWorkersLate(Net):
    def setup(self, stage):
        self.num_workers = dist.get_world_size()


class Remembering(Net):
    """Weighs its losses by what it has seen."""

    def weight(self, points):
        raise NotImplementedError

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * self.weight(batch[0])


class Bank(Remembering):
    def __init__(self, lr):
        super().__init__(lr)
        self.bank = []

    def weight(self, points):
        self.bank.append(points.mean())
        return torch.stack(self.bank).mean()


class BankOfFixedLength(Bank):
    def __init__(self, lr):
        super().__init__(lr)
        self.bank = collections.deque(maxlen=50)

    def weight(self, points):
        self.bank.append(points.mean())
        return torch.stack([*self.bank]).mean()


class Drawing(Remembering):
    def __init__(self, lr):
        super().__init__(lr)
        self.random = np.random.default_rng(0)

    def weight(self, points):
        return float(self.random.random())


class FirstNone(Remembering):
    def __init__(self, lr):
        super().__init__(lr)
        self.average = None

    def weight(self, points):
        now = points.mean()
        self.average = now if self.average is None else 0.9 * self.average + 0.1 * now
        return self.average


class ByMetric(Remembering):
    def __init__(self, lr):
        super().__init__(lr)
        self.mean = MeanMetric()

    def weight(self, points):
        self.mean.update(points.mean())
        return self.mean.compute()


class OfClass(Remembering):
    steps = 0

    def weight(self, points):
        type(self).steps += 1
        return self.steps / 100


class Reducing(Remembering):
    def weight(self, points):
        return self.trainer.strategy.reduce(points.mean())


class Clipping(Net):
    def on_before_optimizer_step(self, optimizer):
        nn.utils.clip_grad_norm_(self.parameters(), 1000.0)


class ClippingByHook(Net):
    def configure_gradient_clipping(self, optimizer, **_):
        self.clip_gradients(optimizer, gradient_clip_val=0.1, gradient_clip_algorithm="norm")


class Clamping(Net):
    def on_train_batch_end(self, *_):
        for weight in self.parameters():
            weight.data.clamp_(-0.1, 0.1)


class WarmupAfterStep(Net):
    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer.step(closure=optimizer_closure)
        for group in optimizer.param_groups:
            group["lr"] = self._lr * min(1, (self.trainer.global_step + 1) / 16)


class SteppingItself(Net):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [lr_scheduler.StepLR(optimizer, 5)]

    def on_train_batch_end(self, *_):
        self.lr_schedulers().step()


class ShortCycle(Net):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 20, cycle_momentum=False)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Plateau(Net):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("x", loss)
        return loss

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "x"}}


class OwnCounting(Own):
    steps = 0

    def training_step(self, batch, batch_idx):
        self.steps = self.steps + 1
        return super().training_step(batch, batch_idx) * self.steps


class OwnFailingLate(Own):
    def on_train_epoch_end(self):
        self.trainer.callback_metrics["of_validation"]


class OwnClipping(Own):
    def on_after_backward(self):
        nn.utils.clip_grad_norm_(self.parameters(), 0.01)


class Penalised(Net):
    """Adds the gradient of a penalty in a hook, and keeps a number that is no number yet."""

    best = float("nan")

    def on_after_backward(self):
        for weight in self.parameters():
            weight.grad.mul_(0.5).add_(weight.detach(), alpha=0.1)


class SwappingAtTheEnd(Student):
    """Gives the student the weights of its teacher when training ends."""

    def forward(self, points):
        return self.line(points)

    def on_train_end(self):
        self.line.load_state_dict(self.teacher.state_dict())


class ByEpoch(Net):
    def forward(self, points):
        return self.line(points) * (1 + self.current_epoch)


class LateBuffer(Remembering):
    def weight(self, points):
        if not hasattr(self, "mean"):
            self.register_buffer("mean", torch.ones(()))
        self.mean = 0.9 * self.mean + 0.1 * points.mean()
        return self.mean


REMEMBERS = "something else than buffers changes its loss"
REFUSED = {
    "Unfreezing": "begins or ends to train weights",
    "Stopping": "sets trainer.should_stop",
    "Leaving": "on_train_batch_start returned -1",
    "Seeding": "seeds the generator of torch",
    "CountingWorkers": "calls torch.distributed.get_world_size",
    "CountingWorkersLate": "calls torch.distributed.get_world_size",
    "Bank": REMEMBERS,
    "BankOfFixedLength": REMEMBERS,
    "Drawing": REMEMBERS,
    "FirstNone": REMEMBERS,
    "ByMetric": REMEMBERS,
    "OfClass": REMEMBERS,
    "Reducing": "calls reduce, which needs real workers",
    "Clipping": "its hooks limit or bend gradients",
    "OwnClipping": "its hooks limit or bend gradients",
    "ClippingByHook": "its hooks limit or bend gradients",
    "Clamping": "weights change between steps of its optimizer",
    "WarmupAfterStep": "sets options of its optimizer after a step",
    "SteppingItself": "steps its StepLR",
    "ShortCycle": "its OneCycleLR fails before the end of a run of 36 steps in 3 epochs: Tried",
    "Plateau": "needs a validation metric",
    "SwappingAtTheEnd": r"line\.0\.weight changes after the last step",
    "LateBuffer": "it adds weights after setup and configure_model, or buffers",
    "ByEpoch": "its forward depends on the epoch",
    "OwnCounting": REMEMBERS,
    "OwnFailingLate": "fails in a rehearsal of a few steps: KeyError",
}
ON_REAL_WORKERS = ["Unfreezing", "Stopping", "Leaving", "Seeding", "SteppingItself", "ShortCycle"]


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_cannot_mean_the_same_is_refused_before_training(first, tmp_path):
    """The first module of each reason, and the others."""
    firsts = {said: model for model, said in reversed(REFUSED.items())}
    for model, said in REFUSED.items():
        if (firsts[said] == model) != first:
            continue
        with pytest.raises(SettingError, match=rf"^model: .*{said}"):
            run_tiny(point(model), tmp_path)
        assert not (tmp_path / "weights.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("model", ON_REAL_WORKERS)
def test_real_workers_refuse_it_too(model, tmp_path):
    with pytest.raises(SettingError, match=rf"^model: .*{REFUSED[model]}"):
        run_tiny(point(model, "wall"), tmp_path)


@pytest.mark.parametrize("clock", ["virtual", pytest.param("wall", marks=pytest.mark.slow)])
def test_what_comes_in_the_middle_is_named_when_it_happens(clock, tmp_path):
    for model, like in (("UnfreezingInTheMiddle", "Unfreezing"), ("LeavingLater", "Leaving")):
        with pytest.raises((SettingError, ProcessFailure), match=REFUSED[like]):
            run_tiny(point(model, clock), tmp_path)


class CopyingOnce(Ema):
    def on_train_batch_end(self, *_):
        if self.global_step == 12:
            super().on_train_batch_end()


def test_a_teacher_that_changes_in_the_middle_only_keeps_the_training(tmp_path):
    with pytest.raises(ProcessFailure, match=r"teacher\.0\.weight changed, which no opti"):
        run_tiny(point("CopyingOnce"), tmp_path)
    weights = torch.load(tmp_path / "weights.pt")
    assert not torch.equal(weights["line.0.weight"], weights["teacher.0.weight"])


class SeededAlike(Net):
    """Asks for the same first weights each time; noise must differ between workers."""

    def __init__(self, lr):
        seed_everything(42, workers=True)
        super().__init__(lr)

    def training_step(self, batch, batch_idx):
        noise = torch.rand(1)
        both = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(both, noise)
        assert len(set(map(float, both))) == len(both), "the workers draw the same"
        return super().training_step(batch, batch_idx)


@pytest.mark.slow
def test_a_module_that_seeds_itself_does_not_make_workers_alike(tmp_path):
    run_tiny(point("SeededAlike", "wall"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["OwnFailingLate", "OwnByEpoch"])
def test_split_workers_are_rehearsed(model, tmp_path):
    said = "KeyError: 'of_validation'" if model == "OwnFailingLate" else "outside of the network"
    with pytest.raises(SettingError, match=said):
        run_tiny(point(model, "wall", model__shards=2), tmp_path)


def lazy_network():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.Tanh(), nn.LazyLinear(3))


def synchronised_network():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.SyncBatchNorm(3))


def network_of_size():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3 * dist.get_world_size()))


def test_networks_of_anybody_s_are_completed_or_refused(tmp_path):
    def config(network):
        named = {"model__network": {"_target_": f"{HERE}.{network}"}, "training__epochs": 1}
        return tiny_point("sync_allreduce", 2, 4, **named, **CLOCKS["virtual"])

    reports, _ = run_tiny(config("lazy_network"), tmp_path)
    assert [each.num_parameters for each in reports.training] == [16 * 5 + 5 + 5 * 3 + 3]
    for network, said in (
        ("synchronised_network", "SyncBatchNorm needs workers"),
        ("network_of_size", "calls torch.distributed.get_world_size"),
    ):
        with pytest.raises(SettingError, match=rf"^model: .*{said}"):
            run_tiny(config(network), tmp_path)


def test_a_module_that_diverges_in_its_rehearsal_is_a_result(tmp_path):
    settings = point("Penalised", training__lr=1e300)
    settings["model"]["lr"] = 1e300
    with pytest.raises(FileNotFoundError, match=r"weights\.pt"):  # which it has not saved
        run_tiny(settings, tmp_path)
    assert (tmp_path / "progress.csv").exists()
