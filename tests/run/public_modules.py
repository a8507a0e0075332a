"""Modules and data in forms that public code of the field has, as small as they can be."""

import collections
import copy
import functools
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from pytorch_lightning import seed_everything
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from paceline.model.classifier import Classifier
from tests.run.own import Drawn, OwnData, OwnModule


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


class Pruned(Net):
    """Has a mask of bools, which it makes anew in each step."""

    def __init__(self, lr):
        super().__init__(lr)
        self.register_buffer("kept", torch.ones(3, dtype=torch.bool))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        self.kept = points.mean(0) > self.kept.double().mean() / 2
        return cross_entropy(self(points * self.kept), labels)


class WithMask(Net):
    """Has a mask of bools that stays, beside a buffer of other numbers."""

    def __init__(self, lr):
        super().__init__(lr)
        self.register_buffer("kept", torch.tensor([True, True, False]))
        self.register_buffer("scale", torch.ones(3))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        self.scale = 0.9 * self.scale + 0.1 * points.mean(0)
        return cross_entropy(self(points.masked_fill(self.kept, 0) * self.scale), labels)


class WithAuxiliaryHead(Net):
    """Returns two outputs in training, of which one is of a head that is there in training only."""

    def __init__(self, lr):
        super().__init__(lr)
        self.head = nn.Linear(3, 3)

    def forward(self, points):
        logits = self.line(points)
        return (logits, self.head(points)) if self.training else logits

    def training_step(self, batch, batch_idx):
        points, labels = batch
        logits, others = self(points)
        return cross_entropy(logits, labels) + 0.3 * cross_entropy(others, labels)


class BegunAsStudent(Student):
    """Has a teacher that is a copy of the network as training begins, and stays."""

    def on_train_start(self):
        self.teacher.load_state_dict(self.line.state_dict())

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss + (self(batch[0]) - self.teacher(batch[0])).square().mean()

    def forward(self, points):
        return self.line(points)


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


class RateByPartOfEpoch(Net):
    def on_train_batch_start(self, batch, batch_idx):
        part = self.current_epoch + batch_idx / self.trainer.num_training_batches
        for group in self.optimizers().param_groups:
            group["lr"] = self._lr * (1 - part / self.trainer.max_epochs)


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


class Validating(Net):
    """Validates by what forward returns, with another loss."""

    def __init__(self, lr):
        super().__init__(lr)
        self.accuracy = MulticlassAccuracy(3)

    def scored(self, points):
        return self(points)

    def validation_step(self, batch, batch_idx):
        points, labels = batch
        logits = self.scored(points)
        self.log("val/loss", cross_entropy(logits, labels, label_smoothing=0.1))
        self.accuracy(logits, labels)
        self.log("val/acc", self.accuracy)


class HeadOutsideOfForward(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.head = nn.Linear(3, 3)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return cross_entropy(self.head(self(points)), labels)


class ValidatingByItsHead(HeadOutsideOfForward, Validating):
    def scored(self, points):
        return 1 - self.head(self(points))


class PreparingInSteps(Validating):
    def scored(self, points):
        return self((points - 0.5) / 0.3)


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


class SeedingItself(Net):
    def __init__(self, lr):
        torch.manual_seed(1)
        super().__init__(lr)


class RateByValidation(Net):
    def on_validation_end(self):
        self.optimizers().param_groups[0]["lr"] *= 0.9


class LossByValidation(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.register_buffer("shares", torch.ones(3))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return cross_entropy(self(points), labels, weight=self.shares)

    def on_validation_epoch_end(self):
        self.shares += torch.eye(3, dtype=self.shares.dtype)[0]


class PlateauByHand(Net):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        self.plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
        return optimizer

    def on_validation_epoch_end(self):
        self.plateau.step(1.0)


class LeavingTraces(Net):
    """Counts its steps for all copies of it."""

    steps = []  # noqa: RUF012

    def training_step(self, batch, batch_idx):
        self.steps.append(batch_idx)
        return super().training_step(batch, batch_idx) * min(1, len(self.steps) / 100)


class OfFirstRank(Ema):
    def on_train_batch_end(self, *_):
        if self.trainer.is_global_zero:
            super().on_train_batch_end()


class ByStrategy(Net):
    def training_step(self, batch, batch_idx):
        by_ddp = isinstance(self.trainer.strategy, DDPStrategy)
        return super().training_step(batch, batch_idx) * (1 + by_ddp)


class Accumulating(Net):
    def on_train_epoch_start(self):
        self.trainer.accumulate_grad_batches = 1 + self.current_epoch


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


def clamping_in(hook):
    """A module that limits its weights in a hook, after what Lightning does there."""

    def clamp(self, *arguments, **options):
        getattr(super(made, self), hook)(*arguments, **options)
        for weight in self.parameters():
            weight.data.clamp_(-0.1, 0.1)

    made = type(f"ClampingIn_{hook}", (Net,), {hook: clamp, "__module__": __name__})
    return made


ClampingInBatchEnd = clamping_in("on_train_batch_end")
ClampingBeforeStep = clamping_in("on_before_optimizer_step")
ClampingWhereItClips = clamping_in("configure_gradient_clipping")
ClampingInItsStep = clamping_in("optimizer_step")


class NormalisingBeforeZeroing(Net):
    """Keeps the rows of its last layer at length one, in new memory, as DINO's head does."""

    def on_before_zero_grad(self, optimizer):
        self.line[2].weight.data = nn.functional.normalize(self.line[2].weight.data)


class AveragingAtTheEndOfEpochs(Student):
    """Scored by the mean of its weights at the ends of epochs."""

    def on_train_epoch_end(self):
        self.follow()


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


class OwnTeacher(Own):
    """Moves a teacher by the only hook that it has."""

    def __init__(self, lr):
        super().__init__(lr)
        self.teacher = copy.deepcopy(self.network).requires_grad_(False)

    def forward(self, points):
        return (self.network if self.training else self.teacher)(points)

    def on_train_batch_end(self, *_):
        for old, new in zip(self.teacher.parameters(), self.network.parameters(), strict=True):
            old.data = old.data * 0.8 + new.data * 0.2


class OwnByEpoch(OwnTeacher):
    """Trains by the number of the epoch, too."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * (1 + self.current_epoch) / self.trainer.max_epochs


class OwnWithLossOfTeacher(Own):
    """Scored by its network, which learns from a teacher in a hook."""

    def __init__(self, lr):
        super().__init__(lr)
        self.fast = copy.deepcopy(self.network).requires_grad_(False)

    def on_train_batch_end(self, *_):
        for slow, new in zip(self.fast.parameters(), self.network.parameters(), strict=True):
            new.data.lerp_(slow, 0.1)


class OwnCycle(Own):
    """Asks its Trainer for the length of the run where it makes its optimizer."""

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        total = self.trainer.estimated_stepping_batches
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, total, cycle_momentum=False)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class OwnWarmup(Own):
    _lr, on_train_batch_start = 0.1, RateByStep.on_train_batch_start


class SkippingNan(Net):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        if not torch.isfinite(loss):
            return None
        return loss


def but_in_the_middle(module, loss):
    return None if 12 <= module.global_step < 18 else loss


class SkippingByFunction(Net):
    """Skips by a function that is no method, so that its own source does not show it."""

    def training_step(self, batch, batch_idx):
        return but_in_the_middle(self, super().training_step(batch, batch_idx))


def nothing(loss):
    return None


class SkippingAlways(Net):
    def training_step(self, batch, batch_idx):
        return nothing(super().training_step(batch, batch_idx))


class SkippingOften(Net):
    """Skips the images of the first batches, and never decays meanwhile."""

    def training_step(self, batch, batch_idx):
        if batch_idx % 3 == 1:
            return None
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self._lr, momentum=0.9, weight_decay=0.1)


class AllWaysReturn(Net):
    """Ends by a return in each of its branches, and has functions that do not."""

    def shared_step(self, batch, stage):
        loss = Net.training_step(self, batch, 0)
        if stage == "train":
            return loss
        self.log(stage, loss)

    def validation_step(self, batch, batch_idx):
        self.shared_step(batch, "val")

    def training_step(self, batch, batch_idx):
        def note(loss):
            self.last = loss.detach()

        total = None
        with torch.autograd.set_detect_anomaly(False):
            try:
                loss = self.added(total, batch, batch_idx)
            except ZeroDivisionError:
                raise
            if batch_idx % 2:
                note(loss)
                return {"loss": loss}
            elif batch_idx:
                return loss
            else:
                return loss * 1

    def added(self, total, batch, batch_idx):
        for part in (0.5, 0.5):
            loss = part * self.shared_step(batch, "train")
            total = loss if total is None else total + loss
        return total


class Sharing(AllWaysReturn):
    def training_step(self, batch, batch_idx):
        return self.shared_step(batch, "train")


class Around(torch.optim.Optimizer):
    """Steps by another optimizer and never becomes one itself, as Lookahead of timm does."""

    def __init__(self, inner):
        self._inner, self.param_groups, self.state = inner, inner.param_groups, inner.state
        self.defaults = inner.defaults
        self._optimizer_step_pre_hooks = collections.OrderedDict()
        self._optimizer_step_post_hooks = collections.OrderedDict()

    def step(self, closure=None):
        loss = closure()
        for weight in (each for group in self.param_groups for each in group["params"]):
            weight.data -= 0.1 * weight.grad
        return loss

    def zero_grad(self, set_to_none=True):
        self._inner.zero_grad(set_to_none)

    def state_dict(self):
        return self._inner.state_dict()


class SteppingAround(Net):
    def configure_optimizers(self):
        return Around(super().configure_optimizers())


class SteppingEverySecondBatch(Net):
    """Accumulates gradients by hand."""

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        if batch_idx % 2:
            optimizer.step(closure=optimizer_closure)
        else:
            optimizer_closure()


class SharpnessAware(Net):
    """Takes the gradient where the loss is larger, a step uphill."""

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer_closure()
        held = [weight.detach().clone() for weight in self.parameters()]
        for weight in self.parameters():
            weight.data += 0.05 * weight.grad

        def second():
            loss = optimizer_closure()
            for weight, before in zip(self.parameters(), held, strict=True):
                weight.data.copy_(before)
            return loss

        optimizer.step(closure=second)


class InTwoPasses(Net):
    def backward(self, loss, *_, **__):
        (loss / 4).backward(retain_graph=True)
        (loss * 3 / 4).backward()


class DrawingItself(Net):
    def training_step(self, dataloader_iter):
        batch, _, _ = next(dataloader_iter)
        return super().training_step(batch, 0)


class Probabilities(Net):
    """Returns the shares of classes, by which a validation loss would be another."""

    def forward(self, points):
        return self.line(points).softmax(1)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return nn.functional.nll_loss(self(points).log(), labels)


class KeepingItsActivation(Net):
    def __init__(self, lr):
        super().__init__(lr)
        self.save_hyperparameters({"activation": functools.partial(nn.functional.elu, alpha=2)})


class UsingAllCores(Net):
    def __init__(self, lr):
        super().__init__(lr)
        torch.set_num_threads(torch.get_num_threads() + 1)


class InDoublePrecision(Net):
    def __init__(self, lr):
        torch.set_default_dtype(torch.float64)
        super().__init__(lr)


class InItsFolder(Net):
    def __init__(self, lr):
        super().__init__(lr)
        os.chdir(tempfile.gettempdir())


class LeavingGradientsOff(Net):
    def on_train_end(self):
        torch.set_grad_enabled(False)


class WithoutOptimizer(Net):
    def configure_optimizers(self):
        return None


class SplitInFloat64(OwnData):
    """Data that change a setting of the process."""

    def setup(self, stage=None):
        torch.set_default_dtype(torch.float64)


class RampedNetwork(nn.Module):
    """Counts its steps, which on the virtual clock are those of all workers."""

    def __init__(self):
        super().__init__()
        self.line, self.steps = nn.Linear(16, 3), 0

    def forward(self, images):
        self.steps += self.training
        return self.line(images.flatten(1)) * min(1, self.steps / 20)


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


class CopyingOnce(Ema):
    def on_train_batch_end(self, *_):
        if self.global_step == 12:
            super().on_train_batch_end()


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


def lazy_network():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.Tanh(), nn.LazyLinear(3))


def synchronised_network():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.SyncBatchNorm(3))


def network_of_size():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3 * dist.get_world_size()))
