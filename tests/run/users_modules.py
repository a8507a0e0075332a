"""Modules and data of users, one of each kind that a run trains as Lightning does, or refuses.

The key of a module in WORKING, REFUSED and LATE names its kind.
"""

import collections
import copy
import functools
import os

import torch
import torch.distributed as dist
from pytorch_lightning import seed_everything
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, default_collate
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from paceline.errors import SettingError
from paceline.exchange.process_group import STORE, leave
from paceline.model.classifier import Classifier
from paceline.run.training_process import run
from tests.run.own import Drawn, OwnData, OwnModule


class Net(OwnModule):
    def __init__(self, lr):
        super().__init__(lr)
        self.line = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
        self.add()

    def add(self):
        """Add layers, buffers and attributes."""

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return cross_entropy(self(points), labels)

    def configure_optimizers(self):
        return self.optimizer(torch.optim.SGD)

    def optimizer(self, kind, **options):
        return kind(self.parameters(), lr=self._lr, **options)

    def set_rate(self, share):
        for group in self.optimizers().param_groups:
            group["lr"] = self._lr * share

    def clamp(self, *_):
        for weight in self.parameters():
            weight.data.clamp_(-0.1, 0.1)


def users(base=Net, **overridden):
    """A subclass of `base` that overrides these hooks, or has these attributes."""
    return type("Users", (base,), {"__module__": __name__, **overridden})


def refused(said, base=Net, **overridden):
    """What is said of a module, and the module."""
    return said, users(base, **overridden)


def weighed(weight, **more):
    """A module that multiplies its loss by `weight(module, points)`."""

    def training_step(self, batch, batch_idx):
        return Net.training_step(self, batch, batch_idx) * weight(self, batch[0])

    return users(training_step=training_step, **more)


def scheduled(make, base=Net, **options):
    """A module that returns the scheduler `make(module, optimizer)`; `options`: as interval."""

    def configure_optimizers(self):
        optimizer = base.configure_optimizers(self)
        return [optimizer], [{"scheduler": make(self, optimizer), **options}]

    return users(base, configure_optimizers=configure_optimizers)


def follow(teacher, student):
    for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
        old.data = old.data * 0.8 + new.data * 0.2


class Student(Net):
    """Evaluated by a teacher, which is frozen and in the optimizer with all other parameters."""

    def add(self):
        self.teacher = copy.deepcopy(self.line).requires_grad_(False)

    def forward(self, points):
        return (self.line if self.training else self.teacher)(points)

    def follow(self, *_):
        follow(self.teacher, self.line)

    def follow_in_place(self, *_):
        states = self.teacher.state_dict(), self.line.state_dict()
        for old, new in zip(*(each.values() for each in states), strict=True):
            old.copy_(0.8 * old + 0.2 * new)


class MovingAtFirst(Student):
    """Its teacher, which has a part in the loss, moves at the beginning of a step."""

    def training_step(self, batch, batch_idx):
        self.follow()
        with torch.no_grad():
            target = self.teacher(batch[0])
        loss = super().training_step(batch, batch_idx)
        return loss + (self.line(batch[0]) - target).square().mean()


class Replaced(Student):
    def on_before_zero_grad(self, optimizer):
        for n in (0, 2):
            mean = 0.8 * self.teacher[n].weight + 0.2 * self.line[n].weight
            self.teacher[n].weight = nn.Parameter(mean.detach(), requires_grad=False)


class Averaged(Net):
    def add(self):
        self.average = AveragedModel(self.line, multi_avg_fn=get_ema_multi_avg_fn(0.8))

    def forward(self, points):
        return (self.line if self.training else self.average)(points)

    def on_before_zero_grad(self, optimizer):
        self.average.update_parameters(self.line)

    def configure_optimizers(self):
        return torch.optim.SGD(self.line.parameters(), lr=self._lr)


class Queue(Net):
    def add(self):
        self.register_buffer("queue", torch.zeros(8, 3))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def training_step(self, batch, batch_idx):
        points, _ = batch
        loss = super().training_step(batch, batch_idx)
        loss = loss + (self(points) @ self.queue.T.clone()).square().mean()
        place = int(self.place)
        self.queue[place : place + len(points)] = points.detach()
        self.place[0] = (place + len(points)) % len(self.queue)
        return loss


class Centred(Net):
    def add(self):
        self.register_buffer("center", torch.zeros(3), persistent=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("hidden", torch.tensor([True, True, False]))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        logits = self(points.masked_fill(self.hidden, 0))
        self.center = 0.9 * self.center + 0.1 * logits.detach().mean(0)
        self.steps = self.steps + 1
        return cross_entropy(logits - self.center, labels) * (self.steps / 20).clamp(max=1)

    def on_train_batch_start(self, *_):
        self.center.data = 0.5 * self.center


class ChangingGradients(Net):
    def on_after_backward(self):
        for weight in self.line[0].parameters():
            weight.grad.mul_(0.5).add_(weight.detach(), alpha=0.1)
        for weight in self.line[2].parameters():
            weight.grad = weight.grad - weight.grad.mean()

    def on_before_optimizer_step(self, optimizer):
        if self.current_epoch < 1:
            self.line[2].weight.grad = None


class Guarding(Net):
    def on_before_optimizer_step(self, optimizer):
        norm = sum(weight.grad.norm() for weight in self.parameters())
        self.log("norm", norm)
        assert norm < 1000


class DetachedAtFirst(Net):
    def training_step(self, batch, batch_idx):
        points, labels = batch
        features = self.line[:2](points)
        features = features.detach() if self.current_epoch == 0 else features
        return cross_entropy(self.line[2](features), labels)


class WithAuxiliaryHead(Net):
    def add(self):
        self.head = nn.Linear(3, 3)

    def forward(self, points):
        logits = self.line(points)
        return (logits, self.head(points)) if self.training else logits

    def training_step(self, batch, batch_idx):
        points, labels = batch
        logits, others = self(points)
        return cross_entropy(logits, labels) + 0.3 * cross_entropy(others, labels)


class FrozenNorm(Net):
    def add(self):
        self.line[1] = nn.BatchNorm1d(5)

    def train(self, mode=True):
        super().train(mode)
        self.line[1].eval()
        return self


class Groups(Net):
    def add(self):
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


class Logging(Net):
    def add(self):
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


class Validating(Net):
    """Validates by what forward returns, with another loss."""

    def add(self):
        self.accuracy, self.head = MulticlassAccuracy(3), nn.Identity()

    def scored(self, points):
        return self(points)

    def validation_step(self, batch, batch_idx):
        points, labels = batch
        logits = self.scored(points)
        self.log("val/loss", cross_entropy(logits, labels, label_smoothing=0.1))
        self.accuracy(logits, labels)
        self.log("val/acc", self.accuracy)


class WithHead(Validating):
    """Trains a head that forward does not have."""

    def add(self):
        super().add()
        self.head = nn.Linear(3, 3)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return cross_entropy(self.head(self(points)), labels)


class Softened(OwnData):
    """Mixes the images of a batch, so that labels are shares, and has labels of 32 bits."""

    def train_dataloader(self):
        def mixed(items):
            points, labels = default_collate(items)
            shares = one_hot(labels, 3).double()
            return (points + points.flip(0)) / 2, (shares + shares.flip(0)) / 2

        return DataLoader(Drawn(), batch_size=5, shuffle=True, collate_fn=mixed, drop_last=True)

    def val_dataloader(self):
        def narrow(items):
            points, labels = default_collate(items)
            return points, labels.to(torch.int32)

        return DataLoader(Drawn(), batch_size=5, collate_fn=narrow)


class UsersClassifier(Classifier):
    def __init__(self, lr):
        network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
        super().__init__(network, lambda weights: torch.optim.SGD(weights, lr=lr))


class ClassifierWithTeacher(UsersClassifier):
    """Moves a teacher and its loss by hooks, of which a plain Classifier has none."""

    def __init__(self, lr):
        super().__init__(lr)
        self.teacher = copy.deepcopy(self.network).requires_grad_(False)

    def forward(self, points):
        return (self.network if self.training else self.teacher)(points)

    def on_train_batch_end(self, *_):
        follow(self.teacher, self.network)

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * (1 + self.current_epoch) / self.trainer.max_epochs


WORKING = {
    "a teacher replaced before gradients are cleared": users(
        Student, on_before_zero_grad=Student.follow
    ),
    "torch's average of weights": Averaged,
    "a queue of the last points": Queue,
    "gradients of no layer in the first epoch": DetachedAtFirst,
    "a Classifier with hooks": ClassifierWithTeacher,
    "a teacher that moves in place, and late": users(
        Student,
        on_train_batch_end=lambda self, *_: self.global_step >= 12 and self.follow_in_place(),
    ),
    "a teacher that moves before it is asked": MovingAtFirst,
    "new parameters in the place of a teacher's": Replaced,
    "a mask that stays beside buffers that are replaced": Centred,
    "hooks that change gradients": ChangingGradients,
    "a hook that refuses large gradients": Guarding,
    "a head that is there in training only": WithAuxiliaryHead,
    "a frozen layer, and decay": users(
        add=lambda self: self.line[0].requires_grad_(False),
        configure_optimizers=lambda self: self.optimizer(torch.optim.SGD, weight_decay=0.1),
    ),
    "BatchNorm that stays as it is": FrozenNorm,
    "a parametrization": users(
        add=lambda self: nn.utils.parametrizations.spectral_norm(self.line[0])
    ),
    "tied weights, and groups of weights": Groups,
    "schedulers by steps and by epochs": Chained,
    "a rate set in each step": users(
        on_train_batch_start=lambda self, *_: self.set_rate(
            min(1, (self.trainer.global_step + 1) / 16)
        )
    ),
    "a rate set in each epoch": users(
        on_train_epoch_start=lambda self: self.set_rate(0.5**self.current_epoch)
    ),
    "metrics, logs and a loss among other outputs": Logging,
    "a validation of its own": Validating,
    "labels that are shares of classes": Net,
}

DIFFERS = "is not that of plain Lightning in step [01] of a worker"
MOVES = "its trained weights change by something else than steps of its optimizer"
TRAINS_OTHERS = "(begins or ends to train|optimizer received) weights"
SKIPS = "(returned -1|the step of the one before had ended)"


def seen_so_far(module, points):
    module.seen.append(points.mean())
    return torch.stack(module.seen).mean()


def seen_by_all_copies(module, points, steps=[]):  # noqa: B006
    steps.append(0)
    return min(1, len(steps) / 100)


def step_and_warm_up(module, epoch, batch_idx, optimizer, optimizer_closure):
    optimizer.step(closure=optimizer_closure)
    module.set_rate(min(1, (module.trainer.global_step + 1) / 16))


def step_every_second_batch(module, epoch, batch_idx, optimizer, optimizer_closure):
    if batch_idx % 2:
        optimizer.step(closure=optimizer_closure)
    else:
        optimizer_closure()


def step_uphill_first(module, epoch, batch_idx, optimizer, optimizer_closure):
    """Sharpness-aware: take the gradient where the loss is larger."""
    optimizer_closure()
    held = [weight.detach().clone() for weight in module.parameters()]
    for weight in module.parameters():
        weight.data += 0.05 * weight.grad

    def second():
        loss = optimizer_closure()
        for weight, before in zip(module.parameters(), held, strict=True):
            weight.data.copy_(before)
        return loss

    optimizer.step(closure=second)


def normalise_rows(module, optimizer):
    """In new memory."""
    module.line[2].weight.data = nn.functional.normalize(module.line[2].weight.data)


def prune(module, batch, batch_idx):
    points, labels = batch
    module.kept = points.mean(0) > module.kept.double().mean() / 2
    return cross_entropy(module(points * module.kept), labels)


def add_to_shares(module):
    module.shares += torch.eye(3, dtype=module.shares.dtype)[0]


def plateau_by_hand(module):
    optimizer = Net.configure_optimizers(module)
    module.plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    return optimizer


def unfreezing(when):
    """Trains its first layer from the epoch on of which `when(epoch, epochs)` is True."""

    def on_train_epoch_start(self):
        if when(self.current_epoch, self.trainer.max_epochs):
            self.line[0].requires_grad_(True)

    return users(
        add=lambda self: self.line[0].requires_grad_(False),
        on_train_epoch_start=on_train_epoch_start,
    )


def leaving(first):
    """Leaves its epochs at a batch."""
    return users(on_train_batch_start=lambda _, batch, batch_idx: -1 if batch_idx >= first else 0)


# By the kind of module: what is said of it, and the module.
REFUSED = {
    "a layer that begins to train in the last epoch": (
        TRAINS_OTHERS,
        unfreezing(lambda epoch, epochs: epoch == epochs - 1),
    ),
    "an end of training": refused(
        "sets trainer.should_stop",
        on_train_epoch_end=lambda self: setattr(self.trainer, "should_stop", True),
    ),
    "an end of the epoch": (SKIPS, leaving(1)),
    "a seed for all workers": refused(
        "seeds the generator of torch", on_fit_start=lambda _: seed_everything(42)
    ),
    "a meeting in training": (
        "it calls torch.distributed.all_reduce",
        weighed(lambda _, points: dist.all_reduce(points.clone()) or 1),
    ),
    "a meeting by Lightning": (
        "it calls all_gather",
        weighed(lambda self, points: self.all_gather(points) is not None),
    ),
    "the length of an epoch, within it": refused(
        "trainer.num_training_batches has no meaning in a run: in an epoch",
        on_train_batch_start=lambda self, batch, batch_idx: self.set_rate(
            batch_idx / self.trainer.num_training_batches
        ),
    ),
    "a loss by what it has seen": (
        DIFFERS,
        weighed(seen_so_far, add=lambda self: setattr(self, "seen", [])),
    ),
    "a loss by what all its copies have seen": (
        "is not that of plain Lightning in step 0 of a worker",
        weighed(seen_by_all_copies),
    ),
    "a teacher of the first worker": refused(
        DIFFERS,
        Student,
        on_train_batch_end=lambda self, *_: self.trainer.is_global_zero and self.follow(),
    ),
    "a rate by its validation": refused(
        "the rate, or another option of its optimizer, changes by its validation",
        on_validation_end=lambda self: self.set_rate(0.9),
    ),
    "a loss by its validation": refused(
        "shares changes by its validation",
        add=lambda self: self.register_buffer("shares", torch.ones(3)),
        on_validation_epoch_end=add_to_shares,
    ),
    "a scheduler that it keeps": refused(
        "configure_optimizers does not return its scheduler", configure_optimizers=plateau_by_hand
    ),
    "a scheduler that it steps": (
        "steps its StepLR",
        scheduled(
            lambda _, optimizer: lr_scheduler.StepLR(optimizer, 5),
            users(on_train_batch_end=lambda self, *_: self.lr_schedulers().step()),
        ),
    ),
    "a scheduler that ends before the run": (
        "its OneCycleLR fails before the end of a run of 36 steps in 3 epochs: Tried",
        scheduled(
            lambda _, optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 20, cycle_momentum=False),
            interval="step",
        ),
    ),
    "a limit of gradients, larger than those of a worker": refused(
        r"hooks make another gradient of line\.0\.weight of the mean over workers",
        on_before_optimizer_step=lambda self, _: nn.utils.clip_grad_norm_(
            self.parameters(), 1000.0
        ),
    ),
    "a limit of weights after a step": refused(MOVES, on_train_batch_end=Net.clamp),
    "a limit of weights before a step": refused(DIFFERS, on_before_optimizer_step=Net.clamp),
    "weights that are replaced before gradients are cleared": refused(
        MOVES, on_before_zero_grad=normalise_rows
    ),
    "a teacher that moves at the end of epochs": refused(
        r"teacher\.0\.weight changes after the last step",
        Student,
        on_train_epoch_end=Student.follow,
    ),
    "no loss": refused(
        "training_step returns None, which skips a step",
        training_step=lambda self, batch, batch_idx: None,
    ),
    "a rate set after a step": refused(
        "the rate, or another option of its optimizer, is not that of plain",
        optimizer_step=step_and_warm_up,
    ),
    "a buffer made in training": refused(
        "it adds weights after setup and configure_model, or buffers",
        on_train_start=lambda self: self.register_buffer("late", torch.ones(())),
    ),
    "logits by the epoch": refused(
        "its forward depends on the epoch",
        forward=lambda self, points: self.line(points) * (1 + self.current_epoch),
    ),
    "gradients that it accumulates": refused(
        "its optimizer takes no step in some batch", optimizer_step=step_every_second_batch
    ),
    "two gradients a step": refused(DIFFERS, optimizer_step=step_uphill_first),
    "a mask that changes": refused(
        "a buffer of bools changes between its steps",
        add=lambda self: self.register_buffer("kept", torch.ones(3, dtype=torch.bool)),
        training_step=prune,
    ),
    "a function in a checkpoint": refused(
        "a run could not go on from its checkpoint",
        add=lambda self: self.save_hyperparameters(
            {"activation": functools.partial(nn.functional.elu, alpha=2)}
        ),
    ),
    "another number of threads": refused(
        "it changes torch's number of threads from 1 to 3: set cluster.threads",
        add=lambda _: torch.set_num_threads(torch.get_num_threads() + 1),
    ),
    "no optimizer": refused(
        r"\.configure_optimizers returns no optimizer", configure_optimizers=lambda self: None
    ),
    "no weights": refused("has no weights after", add=lambda self: setattr(self, "line", None)),
    "a head that forward does not have": refused(
        r"head\.bias is trained, and has no part in what forward returns",
        WithHead,
        validation_step=lambda *_: None,
    ),
    "a validation by another head": refused(
        "its validation_step says val/acc",
        WithHead,
        scored=lambda self, points: 1 - self.head(self(points)),
    ),
    "a validation of other images": refused(
        "its validation_step gives forward other values than the images",
        Validating,
        scored=lambda self, points: self((points - 0.5) / 0.3),
    ),
    "a test by a teacher": refused(
        "hooks such as on_test_start change what forward returns",
        Student,
        by_teacher=False,
        forward=lambda self, points: (self.teacher if self.by_teacher else self.line)(points),
        on_test_epoch_start=lambda self: setattr(self, "by_teacher", True),
    ),
    "a question of validation": refused(
        "fails in a rehearsal of a few steps: KeyError: 'of_validation'",
        UsersClassifier,
        on_train_epoch_end=lambda self: self.trainer.callback_metrics["of_validation"],
    ),
}


def skip_in_the_middle(module, batch, batch_idx):
    loss = Net.training_step(module, batch, batch_idx)
    return None if 12 <= module.global_step < 18 else loss


# What no rehearsal sees, and is said when it happens.
LATE = {
    "a layer that begins to train in the second epoch": (
        TRAINS_OTHERS,
        unfreezing(lambda epoch, epochs: epoch == 1),
    ),
    "a later end of the epoch": (SKIPS, leaving(3)),
    "no loss in the middle": refused(
        "training_step returned None, which skips a step", training_step=skip_in_the_middle
    ),
}


class SeedingItself(Net):
    """Begins with the same weights for every seed."""

    def __init__(self, lr):
        torch.manual_seed(1)
        super().__init__(lr)


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


class SkippingOften(Net):
    """Skips the images of the first batches, and never decays meanwhile."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx % 3 == 1 else super().training_step(batch, batch_idx)

    def configure_optimizers(self):
        return self.optimizer(torch.optim.SGD, momentum=0.9, weight_decay=0.1)


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


class InTwoPasses(Net):
    def backward(self, loss, *_, **__):
        (loss / 4).backward(retain_graph=True)
        (loss * 3 / 4).backward()


OTHERS = {
    "plain": Net,
    "the same weights for every seed": SeedingItself,
    "a seed for the first weights": SeededAlike,
    "no loss in some batches": SkippingOften,
    "an optimizer around another": users(
        configure_optimizers=lambda self: Around(Net.configure_optimizers(self))
    ),
    "a gradient in two passes": InTwoPasses,
    "a teacher that moves once, in the middle": users(
        Student, on_train_batch_end=lambda self, *_: self.global_step == 12 and self.follow()
    ),
    "no more gradients after training": users(on_train_end=lambda _: torch.set_grad_enabled(False)),
}


def build(kind, lr):
    """The module of a kind."""
    refused = {kind: module for kind, (_, module) in (REFUSED | LATE).items()}
    return (WORKING | OTHERS | refused)[kind](lr)


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


def lazy_network():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(5), nn.Tanh(), nn.LazyLinear(3))


def synchronised_network():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.SyncBatchNorm(3))


def network_of_size():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3 * dist.get_world_size()))


def said_of_each(points, folder):
    """What is said of each point in a process that takes part in one after the other."""
    store, said = os.environ[STORE], []
    for number, point in enumerate(points):
        os.environ |= {STORE: f"{store}.{number}", "WORLD_SIZE": str(sum(point.num_processes))}
        (folder / str(number)).mkdir(exist_ok=True)
        try:
            run(point, folder / str(number))
            said.append(None)
        except SettingError as error:
            said.append(str(error))
            leave()
    return said
